"""The label head: several predictors learned from the labels, and their mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import QueryError, SettingsError, StateError
from taps.head.examples import LabelledExample
from taps.head.mixture import Mixture
from taps.head.ridge import Ridge

Array = NDArray[np.float64]
DOUBT = 0.5  # an answer more likely wrong than this is worth a second look
PAIRS, POWER = 10, 4  # of `Head.fairness`: pairs of answers taken for fair beforehand; how steeply it falls


@dataclass(frozen=True)
class HeadSettings:
    """The grid of experts: every combination of a reading (below) and a share of wrong answers.

    Nothing here is tuned to a stream: the mixture finds out which combination its labels favour.

    Attributes:
        penalties: λ of the ridges.
        strengths: How many nats a ridge's score of 1 adds to a class.
        sharpness: Factors on the logits of the bases; 1 leaves a base as it is.
        wrong: Shares ε of answers that are a class drawn at random, whatever the image shows. Without them a
            confident base pays more for a wrong answer than a flat one, and flat bases, which the ridges can
            overrule, would be believed for no better reason.
        alone: Prior trust in the bases alone; what is left goes to the ridges, half as much to each strength
            as to the one below it: before there is evidence a loud voice is less likely right than a low one.
        discount: How much a label counts in the trust when one more has come.
    """

    penalties: tuple[float, ...] = (0.3, 1.0, 3.0)
    strengths: tuple[float, ...] = (1.0, 2.5, 6.0, 16.0)
    sharpness: tuple[float, ...] = (0.5, 1.0, 2.0)
    wrong: tuple[float, ...] = (0.0, 0.1, 0.3)
    alone: float = 0.7
    discount: float = 1.0


class Head:
    """Learns from labelled features on top of given predictions.

    A ridge learns the residuals one-hot − p of the first base's p: with no labels it adds nothing, so the
    bases' own predictions are where it starts, and a class nobody asked about only loses what it was wrongly
    given on labelled images like this one. A reading is a base, sharpened or not, with or without a ridge's
    scores on top; an expert is a reading together with a share ε of wrong answers, and gives to an answer
    (1 − ε)·p + ε/K. The experts' mixture predicts the answers (`taps.head.mixture` has what that promises);
    the prediction is the same mixture with the wrong answers left out.

    Args:
        dim: Length of a feature.
        classes: K.
        bases: How many predictions come with each image, the zero-shot one first.
        settings: The grid of experts.

    Example:
        >>> head = Head(dim=2, classes=2, bases=1)
        >>> even = np.log([[0.5, 0.5]])
        >>> for _ in range(10):
        ...     example = head.learn(np.array([1.0, 0.0]), even, label=1)
        >>> bool(head.predict(np.array([1.0, 0.0]), even)[1] > 0.7)
        True
    """

    def __init__(self, dim: int, classes: int, bases: int, settings: HeadSettings | None = None) -> None:
        if bases < 1:
            raise SettingsError("A head stands on one prediction at least; give the zero-shot one.")
        self.settings = settings or HeadSettings()
        self.ridges = [Ridge(dim, classes, penalty) for penalty in self.settings.penalties]
        self.counts: Array = np.zeros(classes)
        self.stream: Array = np.zeros(classes)  # what the first base says of all images seen, summed
        self.bases = bases
        self.gain = 0.0
        self.doubted = 0
        grid = self.settings
        self.alone = bases * len(grid.sharpness)  # readings that ignore the labels; they come first
        louder = np.repeat(0.5 ** np.arange(len(grid.strengths)), len(grid.penalties))
        helped = np.tile(louder / louder.sum(), self.alone)
        readings = np.concatenate([np.full(self.alone, grid.alone), (1 - grid.alone) * helped]) / self.alone
        even = np.full(len(grid.wrong), 1 / len(grid.wrong))
        self.mixture = Mixture(np.outer(readings, even).ravel(), grid.discount)

    @property
    def labels(self) -> int:
        """How many labels are held."""
        return int(self.counts.sum())

    @property
    def trust(self) -> float:
        """Share of the prediction that the labels have a say in."""
        return float(self._weights().sum(axis=1)[self.alone :].sum())

    @property
    def noise(self) -> float:
        """Share of answers that is believed to be wrong."""
        return float(self._weights().sum(axis=0) @ np.array(self.settings.wrong))

    def _weights(self) -> Array:
        """How much each reading is believed together with each share of wrong answers [readings, shares]."""
        return self.mixture.weights().reshape(-1, len(self.settings.wrong))

    def see(self, beliefs: Array) -> None:
        """Take note of an image of the stream: what classes there are to answer."""
        self.stream += np.exp(beliefs[0])

    @property
    def alike(self) -> float:
        """How likely two images of the stream are of one class, by the first base; 1 where none was seen."""
        total = float(self.stream.sum())
        return float((self.stream**2).sum()) / total**2 if total else 1.0

    def fairness(self, alike: float | None = None) -> float:
        """How far the answers name as many classes as the stream shows: 1 for a fair sample, 0 for one class.

        Features of one model point much the same way, so a ridge that knows few classes pulls every image
        to them, and its answers, all of these classes, speak for it. Two answers of a fair sample differ as
        often as two images do; where they differ less often, the ridges' scores shrink.
        """
        differ = 1 - (self.alike if alike is None else alike)
        if differ < 1e-9:
            return 1.0
        held = float(self.counts.sum())
        pairs = held * (held - 1) / 2
        different = pairs - float((self.counts * (self.counts - 1)).sum()) / 2
        return float(min(1.0, (different + PAIRS * differ) / ((pairs + PAIRS) * differ)) ** POWER)

    def predict(self, feature: Array, beliefs: Array) -> Array:
        """Probability of each class.

        Args:
            feature: Of the image, length 1 [d].
            beliefs: Log-probabilities of the bases [B, K].
        """
        blended: Array = self._weights().sum(axis=1) @ self.readings(feature, beliefs)
        return blended

    def readings(self, feature: Array, beliefs: Array, alike: float | None = None) -> Array:
        """What every reading says [N, K]: the bases alone first, those with a ridge on top after them."""
        floor = np.maximum(beliefs, -50.0)  # a base may say "impossible"; the labels must be able to object
        sharp = (np.array(self.settings.sharpness)[:, None, None] * floor).reshape(-1, floor.shape[1])
        scores = np.stack([ridge.scores(feature)[: floor.shape[1]] for ridge in self.ridges])
        strengths = self.fairness(alike) * np.array(self.settings.strengths)
        added = (strengths[:, None, None] * scores).reshape(-1, floor.shape[1])
        logits = np.concatenate([sharp, (sharp[:, None] + added[None]).reshape(-1, floor.shape[1])])
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs: Array = raised / raised.sum(axis=1, keepdims=True)
        return probs

    def learn(
        self,
        feature: Array,
        beliefs: Array,
        label: int,
        importance: float = 1.0,
        alike: float | None = None,
    ) -> LabelledExample:
        """Judge the experts by the label, then let the ridges learn it.

        Args:
            feature: Of the labelled image [d].
            beliefs: Log-probabilities of the bases when it was predicted [B, K], of fewer classes where some
                were added later.
            label: Its class.
            importance: How much it stands for in the trust, at most 1.
            alike: Of the stream, as it was when the label first came; now unless given.
        """
        alike = self.alike if alike is None else alike
        said = self.readings(feature, beliefs, alike)[:, label]
        wrong = np.array(self.settings.wrong)
        given = said[:, None] * (1 - wrong) + wrong / beliefs.shape[1]
        gain, doubt = self._compare(said, given)
        before = self.mixture.losses.copy()
        example = LabelledExample(
            feature.copy(), beliefs.copy(), int(label), importance, alike, before, gain, doubt
        )
        self.mixture.learn(given.ravel(), importance)
        for ridge in self.ridges:
            ridge.add(feature, example.residual(len(self.counts)))
        self._count(example, 1)
        return example

    def _compare(self, said: Array, given: Array) -> tuple[float, float]:
        """By how many nats the mixture foresaw an answer better than the bases; how likely it is wrong."""
        weights, alone = self._weights(), slice(None, self.alone)
        mixed = max(float((weights * given).sum()), 1e-12)
        bases = max(float((weights[alone] * given[alone]).sum()) / float(weights[alone].sum()), 1e-12)
        right = float((weights * (1 - np.array(self.settings.wrong))).sum(axis=1) @ said)
        return float(np.log(mixed / bases)), max(0.0, 1.0 - right / mixed)

    def _count(self, example: LabelledExample, sign: int) -> None:
        self.counts[example.label] += sign
        self.gain += sign * example.gain
        self.doubted += sign * (example.doubt > DOUBT)

    def forget(
        self, example: LabelledExample, later: Sequence[LabelledExample] = ()
    ) -> list[LabelledExample]:
        """Take a label back: everything is as if it had never come.

        The trust rests on what was predicted of each later label, with the one in question known. So these
        are taken back too, the newest first, and learned again.

        Args:
            example: What `learn` returned for it.
            later: The examples that came after it, all of them, the oldest first.

        Returns:
            The later examples, as they are now.
        """
        gone = [example, *later]
        if (np.bincount([each.label for each in gone], minlength=len(self.counts)) > self.counts).any():
            raise QueryError(f"No label of class {example.label} is held; it cannot be taken back.")
        for each in reversed(gone):
            for ridge in self.ridges:
                ridge.remove(each.feature, each.residual(len(self.counts)))
            self._count(each, -1)
        self.mixture.restore(example.losses, self.mixture.labels - len(gone))
        return [
            self.learn(each.feature, each.beliefs, each.label, each.importance, each.alike) for each in later
        ]

    def grow(self, classes: int) -> None:
        """Make room for classes added later; labels so far say nothing about them."""
        for ridge in self.ridges:
            ridge.grow(classes)
        missing = classes - len(self.counts)
        self.counts, self.stream = np.pad(self.counts, (0, missing)), np.pad(self.stream, (0, missing))

    def leverage(self, feature: Array) -> float:
        """How new an image is to the labels: 1 before any, near 0 where many like it were answered."""
        ridge = self.ridges[0]
        return ridge.penalty * ridge.leverage(feature)

    def summary(self) -> dict[str, Any]:
        """What the labels were worth, as plain values.

        `head_gain` is by how many nats a label the mixture beat the bases alone *before* learning each label:
        near 0 or below, the answers (wrong, or contradicting each other) taught nothing so far. `head_trust`
        says how much they are believed, `head_noise` what share of them seems wrong, `head_fairness` whether
        they name as many classes as the images show, `head_doubted` how many were more likely wrong than
        right when they came.
        """
        held = self.labels
        return {
            "head_labels": held,
            "head_classes": int((self.counts > 0).sum()),
            "head_trust": round(self.trust, 4),
            "head_gain": round(self.gain / held, 4) if held else 0.0,
            "head_noise": round(self.noise, 4),
            "head_fairness": round(self.fairness(), 4),
            "head_doubted": self.doubted,
        }

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning, but for the numbers in `numbers`."""
        arrays = {"counts": self.counts, "stream": self.stream, "losses": self.mixture.losses}
        for place, ridge in enumerate(self.ridges):
            arrays |= {f"ridge.{place}.{name}": value for name, value in ridge.arrays().items()}
        return arrays

    def numbers(self) -> dict[str, float]:
        """The plain numbers that change while learning."""
        return {"labels": self.mixture.labels, "gain": self.gain, "doubted": self.doubted}

    def restore(self, arrays: dict[str, Array], numbers: dict[str, float]) -> None:
        """Go on from where `arrays` and `numbers` were taken: the same bits follow.

        A head of fewer classes is taken in, too: the others were added since.
        """
        missing = len(self.counts) - len(arrays["counts"])
        if missing < 0:
            raise StateError(
                f"The saved head has {len(arrays['counts'])} classes, this one {len(self.counts)}; "
                "use the saved classes."
            )
        self.mixture.restore(arrays["losses"], int(numbers["labels"]))
        self.gain, self.doubted = float(numbers["gain"]), int(numbers["doubted"])
        self.counts = np.pad(arrays["counts"], (0, missing))
        self.stream = np.pad(arrays["stream"], (0, missing))
        for place, ridge in enumerate(self.ridges):
            inverse, weights = (arrays[f"ridge.{place}.{name}"] for name in ("inverse", "weights"))
            wider = np.pad(weights, ((0, 0), (0, missing)))
            ridge.restore({"inverse": inverse, "weights": wider}, self.labels)
