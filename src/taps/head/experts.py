"""The experts: base predictions alone, with a ridge on top, with a logistic fit on top; and class shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from taps.head.linear import UNKNOWN, Logistic, Ridge, possible, with_constant
from taps.head.mixture import SMALLEST
from taps.head.neighbours import LOWEST
from taps.saved import Shape
from taps.types import Array

LEAST, WORK = 32, 12_800  # of many classes fewer labels are refitted, so that a label's work stays the same
UNSEEN = 0.5  # answers that are taken for given, spread evenly over all classes


@dataclass(frozen=True)
class HeadSettings:
    """The grid of experts. Nothing here is tuned to a stream: the mixture weighs them by its labels.

    Attributes:
        sharpness: Factors on the logits of the bases; 1 leaves a base as it is.
        ridge_penalty: λ of the ridge.
        strengths: How many nats a ridge's score of 1 adds to a class.
        penalties: λ of the logistic fits.
        kept: Factors on the logits of the base that a logistic fit is learned on top of; 0 leaves it out.
        wrong: Shares ε of answers that are a class drawn at random, whatever the image shows. Without them a
            confident base pays more for a wrong answer than a flat one, and flat bases, which are easily
            overruled, would gain weight for no better reason.
        alone: Prior of the bases alone.
        ridge: Of what is left, the part of the ridge; half as much for each strength as for the one below it.
        votes: τ, factors on the neighbours' log-odds; half of the prior is on taking no votes.
        shares: κ, factors on the logarithms of the classes' shares of the answers; with τ = ½.
        fading: γ, factors on older answers in these shares.
        shares_prior: Of the mixture with the neighbours, the prior of all that add shares. A stream in any
            order gains nothing by them, and early on they may seem right by chance.
        refit: Of how many of the last labels the logistic coefficients are refitted with every new one; of
            more than 100 classes fewer.
    """

    sharpness: tuple[float, ...] = (0.5, 1.0, 2.0)
    ridge_penalty: float = 1.0
    strengths: tuple[float, ...] = (2.5, 16.0)
    penalties: tuple[float, ...] = (0.03, 0.3)
    kept: tuple[float, ...] = (0.0, 0.5, 1.0)
    wrong: tuple[float, ...] = (0.0, 0.1, 0.3)
    alone: float = 0.7
    ridge: float = 0.2
    votes: tuple[float, ...] = (0.25, 0.5, 1.0)
    shares: tuple[float, ...] = (0.5, 1.0)
    fading: tuple[float, ...] = (0.5, 0.9)
    shares_prior: float = 0.03
    refit: int = 128


class Experts:
    """All experts, and the models that they share.

    The ridge and the logistic fits start at 0: without labels every expert is a base. A class nobody asked
    about only loses what it was wrongly given on labelled images like this one.

    Args:
        features: How many features an image has, and of what length [F, d].
        bases: B, how many predictions come with each image, the zero-shot one first.
        classes: K.
        settings: The grid.
    """

    def __init__(self, features: tuple[int, int], bases: int, classes: int, settings: HeadSettings) -> None:
        count, dim = features
        self.settings = settings
        self.ground = min(1, bases - 1)  # the base under the logistic fits: the views', where there are views
        self.ridge = Ridge(dim, classes, settings.ridge_penalty)
        refitted = min(settings.refit, max(LEAST, WORK // classes))
        self.logistic = [
            Logistic(dim, classes, len(settings.kept), settings.penalties, refitted) for _ in range(count)
        ]
        self.alone = bases * len(settings.sharpness)  # of the experts; they come first
        fits = product(range(count), range(len(settings.penalties)), range(len(settings.kept)))
        self.fitted = dict(enumerate(fits, self.alone + len(settings.strengths)))
        self.factors = self._factors(bases)
        # Of what the labels have beforehand, half as much for each strength as for the one below it.
        learned, louder = 1 - settings.alone, 0.5 ** np.arange(len(settings.strengths))
        ridged = learned * settings.ridge * louder / louder.sum()
        each = settings.alone / self.alone, learned * (1 - settings.ridge) / len(self.fitted)
        self.prior: Array = np.array([each[0]] * self.alone + [*ridged] + [each[1]] * len(self.fitted))

    def _factors(self, bases: int) -> Array:
        """Of each base in each expert's logits, and what labels change of them [2, n, B]."""
        base = np.eye(bases)
        alone = np.concatenate([sharpness * base for sharpness in self.settings.sharpness])
        ridged = base[[0] * len(self.settings.strengths)]
        fitted = base[[self.ground] * len(self.fitted)]
        kept = np.array([[self.settings.kept[offset] - 1] for _, _, offset in self.fitted.values()])
        changes = np.concatenate([0 * alone, 0 * ridged, kept * fitted])
        return np.stack([np.concatenate([alone, ridged, fitted]), changes])

    def strengths(self, which: Sequence[int]) -> Array:
        """Of the ridge in those of some experts that have it [r, 1]."""
        places = enumerate(self.settings.strengths, self.alone)
        return np.array([[strength] for place, strength in places if place in which])

    def fits(self, features: Array, which: Sequence[int]) -> Iterator[Array]:
        """What the logistic fits among some experts add to the log-odds of images [m, F, d], by feature."""
        chosen = [self.fitted[place] for place in which if place in self.fitted]
        for feature, logistic in enumerate(self.logistic):
            if mine := tuple(fit[1:] for fit in chosen if fit[0] == feature):
                yield logistic.scores(with_constant(features[:, feature]), mine)

    def learn(self, features: Array, logs: Array, label: int, no: tuple[int, ...] = ()) -> None:
        """Learn one label.

        Args:
            features: Of its image [F, d].
            logs: Log-probabilities of the bases when it was predicted [B, K], of fewer classes where some
                were added later: these are no part of what is learned.
            label: Its class; ignored where `no` is given.
            no: Classes it is not of.
        """
        new = (0, self.ridge.weights.shape[1] - logs.shape[1])
        probs = np.exp(logs[0])
        left = possible(label, no, len(probs)) * (np.maximum(probs, SMALLEST) if no else 1.0)
        self.ridge.add(features[0], np.pad(left / left.sum() - probs, new))
        offsets = np.array(self.settings.kept)[:, None] * np.maximum(logs[self.ground], LOWEST)
        offsets = np.pad(offsets, ((0, 0), new), constant_values=UNKNOWN)
        for feature, logistic in zip(features, self.logistic, strict=True):
            logistic.add(feature, offsets, label, no)

    def grow(self, classes: int) -> None:
        for _, held in self._parts():
            held.grow(classes)

    def arrays(self) -> dict[str, Array]:
        """Everything that labels change; none of these arrays is ever changed in place."""
        return {f"{part}.{name}": a for part, held in self._parts() for name, a in held.arrays().items()}

    def shapes(self) -> dict[str, Shape]:
        """Of `arrays`."""
        shapes = {f"ridge.{name}": shape for name, shape in self.ridge.shapes().items()}
        for place, fit in enumerate(self.logistic):
            own = fit.shapes(labels=f"labels of feature {place}")
            shapes |= {f"logistic.{place}.{name}": shape for name, shape in own.items()}
        return shapes

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where `arrays` was taken."""
        for part, held in self._parts():
            held.restore({name: arrays[f"{part}.{name}"] for name in held.arrays()})

    def _parts(self) -> list[tuple[str, Ridge | Logistic]]:
        return [("ridge", self.ridge), *((f"logistic.{i}", fit) for i, fit in enumerate(self.logistic))]


class ClassShares:
    """Classes of the last answers, for streams that come class after class or are mostly of one class.

    The share of a class is (n_c + a/K) / (Σ n + a), a being `UNSEEN` and n_c its answers, each worth
    γ^(answers since). The mixture adds κ times the shares' logarithms to a prediction, and weighs by the
    answers whether that helps.

    Example:
        >>> shares = ClassShares(classes=2, fading=(0.5,), strengths=(1.0,))
        >>> shares.learn(0)
        >>> np.exp(shares.logits(2)).round(3).tolist()
        [[0.833, 0.167]]
    """

    def __init__(self, classes: int, fading: tuple[float, ...], strengths: tuple[float, ...]) -> None:
        self.fading: Array = np.array(fading)[:, None]
        self.strengths: Array = np.array(strengths)[:, None, None]
        self.answers: Array = np.zeros((len(fading), classes))

    def learn(self, label: int) -> None:
        self.answers = self.answers * self.fading + np.eye(self.answers.shape[1])[label]

    def logits(self, classes: int, answers: Array | None = None) -> Array:
        """What to add to the logits of the first `classes`, for every κ with every γ [κ · γ, K].

        `answers` of each class, where given, are taken in place of those that fade.
        """
        held = self.answers if answers is None else np.broadcast_to(answers, self.answers.shape)
        held = held[:, :classes]
        logs = np.log((held + UNSEEN / classes) / (held.sum(axis=1, keepdims=True) + UNSEEN))
        added: Array = (self.strengths * logs).reshape(-1, classes)
        return added
