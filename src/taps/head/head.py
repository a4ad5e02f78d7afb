"""The label head: several ways of reading the labels, each trusted as far as it would have predicted them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import QueryError, SettingsError
from taps.head.mixture import Mixture
from taps.head.ridge import Ridge

Array = NDArray[np.float64]
ABSURD = 0.1  # of chance: a label less likely than this is counted as doubtful


@dataclass(frozen=True)
class HeadSettings:
    """The grid of experts: every combination of a base, a temperature, a penalty and a strength.

    Nothing here is tuned to a stream: the mixture finds out which combination its labels favour.

    Attributes:
        penalties: λ of the ridges.
        strengths: How many nats a ridge's score of 1 adds to a class.
        sharpness: Factors on the logits of the bases; 1 leaves a base as it is.
        discount: How much a label counts in the trust when one more has come.
    """

    penalties: tuple[float, ...] = (0.3, 1.0, 3.0)
    strengths: tuple[float, ...] = (1.0, 2.5, 6.0, 16.0)
    sharpness: tuple[float, ...] = (0.5, 1.0, 2.0)
    discount: float = 1.0


@dataclass(frozen=True)
class Lesson:
    """All that one label changed, so that it can be taken back: `Head.forget`."""

    feature: Array
    residual: Array
    label: int
    told: tuple[int, Array]
    gain: float
    doubted: bool


class Head:
    """Learns from labelled features on top of given predictions.

    A ridge learns the residuals one-hot − p of the first base's p: with no labels it adds nothing, so the
    bases' own predictions are where it starts, and a class nobody asked about only loses what it was wrongly
    given on labelled images like this one. An expert is a base, sharpened or not, with or without a ridge's
    scores on top. The prediction is their mixture (see `taps.head.mixture` for what that promises).

    Args:
        dim: Length of a feature.
        classes: K.
        bases: How many predictions come with each image, the zero-shot one first.
        settings: The grid of experts.

    Example:
        >>> head = Head(dim=2, classes=2, bases=1)
        >>> even = np.log([[0.5, 0.5]])
        >>> for _ in range(10):
        ...     lesson = head.learn(np.array([1.0, 0.0]), even, label=1)
        >>> bool(head.predict(np.array([1.0, 0.0]), even)[1] > 0.7)
        True
    """

    def __init__(self, dim: int, classes: int, bases: int, settings: HeadSettings | None = None) -> None:
        if bases < 1:
            raise SettingsError("A head stands on one prediction at least; give the zero-shot one.")
        self.settings = settings or HeadSettings()
        self.ridges = [Ridge(dim, classes, penalty) for penalty in self.settings.penalties]
        self.counts: Array = np.zeros(classes)
        self.bases = bases
        self.gain = 0.0
        self.doubted = 0
        alone, helped = bases * len(self.settings.sharpness), self._helped()
        # As much prior trust in the bases alone as in all that the labels add.
        prior = np.concatenate([np.full(alone, 0.5 / alone), np.full(helped, 0.5 / max(1, helped))])
        self.mixture = Mixture(prior, self.settings.discount)

    @property
    def labels(self) -> int:
        """How many labels are held."""
        return int(self.counts.sum())

    @property
    def trust(self) -> float:
        """Share of the prediction that the labels have a say in."""
        weights = self.mixture.weights()
        return float(weights[self.bases * len(self.settings.sharpness) :].sum())

    def predict(self, feature: Array, beliefs: Array) -> Array:
        """Probability of each class.

        Args:
            feature: Of the image, length 1 [d].
            beliefs: Log-probabilities of the bases [B, K].
        """
        return self.mixture.blend(self.experts(feature, beliefs))

    def experts(self, feature: Array, beliefs: Array) -> Array:
        """What every expert says [N, K]: the bases alone first, those with a ridge on top after them."""
        floor = np.maximum(beliefs, -50.0)  # a base may say "impossible"; the labels must be able to object
        sharp = (np.array(self.settings.sharpness)[:, None, None] * floor).reshape(-1, floor.shape[1])
        scores = np.stack([ridge.scores(feature) for ridge in self.ridges])
        added = (np.array(self.settings.strengths)[:, None, None] * scores).reshape(-1, floor.shape[1])
        logits = np.concatenate([sharp, (sharp[:, None] + added[None]).reshape(-1, floor.shape[1])])
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs: Array = raised / raised.sum(axis=1, keepdims=True)
        return probs

    def learn(self, feature: Array, beliefs: Array, label: int, importance: float = 1.0) -> Lesson:
        """Judge the experts by the label, then let the ridges learn it.

        Args:
            feature: Of the labelled image [d].
            beliefs: Log-probabilities of the bases when it was predicted [B, K].
            label: Its class.
            importance: How much it stands for in the trust, at most 1.
        """
        experts = self.experts(feature, beliefs)
        given = experts[:, label]
        gain, doubted = self._compare(given)
        told = self.mixture.learn(given, importance)
        residual = -np.exp(beliefs[0])
        residual[label] += 1.0
        lesson = Lesson(feature.copy(), residual, int(label), told, gain, doubted)
        for ridge in self.ridges:
            ridge.add(feature, residual)
        self.counts[label] += 1
        self.gain += gain
        self.doubted += doubted
        return lesson

    def _compare(self, given: Array) -> tuple[float, bool]:
        """By how many nats the mixture predicted a label better than the bases did; is it absurd?."""
        weights, alone = self.mixture.weights(), self.bases * len(self.settings.sharpness)
        mixed = max(float(weights @ given), 1e-12)
        bases = max(float(weights[:alone] @ given[:alone]) / float(weights[:alone].sum()), 1e-12)
        return float(np.log(mixed / bases)), mixed * len(self.counts) < ABSURD

    def forget(self, lesson: Lesson) -> None:
        """Take a label back: the ridges are as if it had never come, and it speaks for no expert any more."""
        if self.counts[lesson.label] < 1:
            raise QueryError(f"No label of class {lesson.label} is held; it cannot be taken back.")
        residual = np.pad(lesson.residual, (0, len(self.counts) - len(lesson.residual)))
        for ridge in self.ridges:
            ridge.remove(lesson.feature, residual)
        self.mixture.forget(lesson.told)
        self.counts[lesson.label] -= 1
        self.gain -= lesson.gain
        self.doubted -= lesson.doubted

    def grow(self, classes: int) -> None:
        """Make room for classes added later; labels so far say nothing about them."""
        for ridge in self.ridges:
            ridge.grow(classes)
        self.counts = np.pad(self.counts, (0, classes - len(self.counts)))

    def leverage(self, feature: Array) -> float:
        """How new an image is to the labels: 1 before any, near 0 where many like it were answered."""
        ridge = self.ridges[0]
        return ridge.penalty * ridge.leverage(feature)

    def summary(self) -> dict[str, Any]:
        """What the labels were worth, as plain values.

        `head_gain` is by how many nats a label the mixture beat the bases alone *before* learning each label:
        near 0 or below, the answers (wrong, or contradicting each other) taught nothing so far. `head_trust`
        says how much they are believed, `head_doubted` how many were less likely than a tenth of chance.
        """
        held = self.labels
        return {
            "head_labels": held,
            "head_classes": int((self.counts > 0).sum()),
            "head_trust": round(self.trust, 4),
            "head_gain": round(self.gain / held, 4) if held else 0.0,
            "head_doubted": self.doubted,
        }

    def _helped(self) -> int:
        grid = self.settings
        return self.bases * len(grid.sharpness) * len(grid.strengths) * len(grid.penalties)

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning, but for the numbers in `numbers`."""
        arrays = {"counts": self.counts, "losses": self.mixture.losses}
        for place, ridge in enumerate(self.ridges):
            arrays |= {f"ridge.{place}.{name}": value for name, value in ridge.arrays().items()}
        return arrays

    def numbers(self) -> dict[str, float]:
        """The plain numbers that change while learning."""
        return {"labels": self.mixture.labels, "gain": self.gain, "doubted": self.doubted}

    def restore(self, arrays: dict[str, Array], numbers: dict[str, float]) -> None:
        """Go on from where `arrays` and `numbers` were taken: the same bits follow."""
        self.mixture.restore(arrays["losses"], int(numbers["labels"]))
        self.gain, self.doubted = float(numbers["gain"]), int(numbers["doubted"])
        self.counts = arrays["counts"].copy()
        for place, ridge in enumerate(self.ridges):
            prefix = f"ridge.{place}."
            own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            ridge.restore(own, self.labels)
