"""Asking rules by name: each scores an image, the higher the more its label is wanted.

A rule enters itself, here, in another module of this package or in a plugin:

    @rule("confidence", why="It is among the images the model is least sure of.")
    def confidence(candidate: Candidate) -> float:
        return 1.0 - float(candidate.probs.max())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.errors import SettingsError, StateError
from taps.registry import Registry
from taps.saved import check_plain, whole
from taps.types import Array

NOISE = 0.01  # EATTA's standard deviation, for each entry of a feature
RANDOM_SCORE = 1e6  # what is put on record as the score of an image that was drawn at random
SURE = 0.5  # margin above which the model does not hesitate: it asks about the least sure there is


class Candidate:
    """An image that may be asked about, as an asking rule sees it.

    Numbers are worked out when a rule reads them, and not every method knows all of them.

    Attributes:
        probs: Prediction of the image [K].
        entropy: H_t.
        chance: A uniform number that follows from the seed and the count of images.
        feature: The image's feature [d].
        counts: Labels held of each class [K].
        leverage: How new the image is to the labelled ones: xᵀ(I + Σ x xᵀ)⁻¹x.
        sensitivity: By how much its prediction changes with a little noise on its feature.
        density: How typical it is: mean cosine to the recent images most like it; with a head only.
    """

    probs: Array
    entropy: float
    chance: float
    feature: Array
    counts: Array
    leverage: float
    sensitivity: float
    density: float

    def __init__(self, **known: Callable[[], Any]) -> None:
        self._known = known

    def __getattr__(self, name: str) -> Any:
        """A number at its first reading."""
        if name not in Candidate.__annotations__:
            raise AttributeError(name)
        if name not in self._known:
            raise SettingsError(
                f"The asking rule reads {name!r}, which this method does not know of an image; name it in "
                "the rule's `needs`, or choose another rule."
            )
        value = self._known[name]()
        setattr(self, name, value)
        return value


@dataclass(frozen=True)
class Asked:
    """What the sentence that says why an image is asked about may speak of.

    Attributes:
        top: The likeliest classes and their probabilities, as in `Prediction.to_json`.
        entropy: H_t.
        threshold: What the score was compared with; None where it was compared with none.
        views: How many views of the image the method looks at.
    """

    top: Sequence[Sequence[Any]]
    entropy: float
    threshold: float | None
    views: int


@dataclass(frozen=True)
class Rule:
    """An asking rule; for its attributes see `rule`."""

    score: Callable[[Candidate], float]
    why: str | Callable[[Asked], str]
    needs: tuple[str, ...] = ()


RULES = Registry[Rule]("asking rule", "taps.asking")


def rule(
    name: str, *, why: str | Callable[[Asked], str], needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Candidate], float]], Callable[[Candidate], float]]:
    """Give an asking rule its name; it stands above a function from a candidate to its score.

    Args:
        name: What users type for the setting `acquisition`.
        why: The sentence that tells an annotator why the image was chosen, or what makes it.
        needs: "leverage" or "sensitivity" where the rule reads it: methods that learn on features alone keep
            a matrix for the one, and not all of them have the other.
    """

    def entered(score: Callable[[Candidate], float]) -> Callable[[Candidate], float]:
        RULES.enter(name, Rule(score, why, needs), score.__module__)
        return score

    return entered


class Acquisition:
    """Scores images by one rule: how much an answer for each is wanted.

    Args:
        rule: The name of one of `RULES`.
        seed: For chance. Draws follow from it and from the count of images, so there is no generator to save.
    """

    def __init__(self, rule: str, seed: int) -> None:
        self.rule, self.seed, self.images = rule, seed, 0
        self.needs = RULES[rule].needs

    def score(self, **known: Callable[[], Any]) -> float:
        """How much the answer for this image is wanted, from what a `Candidate` of it is made of."""
        score = float(RULES[self.rule].score(Candidate(chance=self._draw, **known)))
        self.images += 1
        return score

    def _draw(self) -> float:
        return float(np.random.default_rng([self.seed, self.images]).random())

    def noise(self, dim: int) -> Array:
        """Noise for the present image's feature, to measure how sensitive its prediction is [d]."""
        return NOISE * np.random.default_rng([self.seed, self.images, 2]).standard_normal(dim)

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        return {"rule": self.rule, "seed": self.seed, "images": self.images}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule and with the seed it was started with."""
        check_plain(values, {"seed": whole(), "images": whole()}, "acquisition")
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.seed, self.images = int(values["seed"]), int(values["images"])


def _above(asked: Asked) -> str:
    if asked.threshold is None:
        return "A question was due."
    begin = "Seen in parts, the model is unsure" if asked.views > 1 else "The model is unsure"
    return f"{begin}: its uncertainty is {asked.entropy:.2f}, and it asks above {asked.threshold:.2f}."


def _between(asked: Asked) -> str:
    if len(asked.top) < 2:
        return _above(asked)
    (first, high), (second, low) = asked.top[:2]
    begin = "The model hesitates between" if high - low < SURE else "The likeliest classes are"
    return f"{begin} “{first}” ({high:.0%}) and “{second}” ({low:.0%})."


@rule("random", why="It was drawn at random, so that the answers are a fair sample.")
def draw(candidate: Candidate) -> float:
    """Chance alone."""
    return candidate.chance


@rule("entropy", why=_above)
def uncertainty(candidate: Candidate) -> float:
    """H_t: the paper's."""
    return candidate.entropy


@rule("margin", why=_between)
def margin(candidate: Candidate) -> float:
    """The two likeliest classes are near each other."""
    return narrowness(candidate.probs)


@rule("confidence", why="It is among the images the model is least sure of.")
def unsureness(candidate: Candidate) -> float:
    """1 − the likeliest class's probability."""
    return 1.0 - float(candidate.probs.max())


@rule("sensitivity", why="A little noise would change what the model says.", needs=("sensitivity",))
def sensitivity(candidate: Candidate) -> float:
    """EATTA's: a little noise on the feature changes the prediction most."""
    return candidate.sensitivity


@rule(
    "vessal",
    why="The model is unsure, and it is unlike the images that were answered so far.",
    needs=("leverage",),
)
def gradient_leverage(candidate: Candidate) -> float:
    """VeSSAL's: the gradient of the likeliest class is new to the labels.

    The gradient of a linear head is (p − e_ŷ) ⊗ x; with the labelled images' Gram matrix alike for each
    class, g'A⁻¹g is |p − e_ŷ|² times the leverage of x. The policy turns it into questions at a rate.
    """
    off = candidate.probs.copy()
    off[off.argmax()] -= 1.0
    return float(off @ off) * candidate.leverage


def narrowness(probs: Array) -> float:
    """1 − margin between the two likeliest classes: 1 where they are equally likely.

    >>> round(narrowness(np.array([0.1, 0.6, 0.3])), 4)
    0.7
    """
    second, first = np.partition(probs, -2)[-2:]
    return float(1.0 - (first - second))


def novelty(features: Array, known: Array) -> Array:
    """1 − highest cosine of each image [N, d] to the known ones [M, d]; 1 where none is known [N].

    Features have length 1.

    >>> novelty(np.eye(2), np.array([[0.6, 0.8]])).round(2).tolist()
    [0.4, 0.2]
    """
    if not len(known) or not len(features):
        return np.ones(len(features))
    likeness: Array = np.clip(features @ known.T, 0.0, 1.0).max(axis=1)
    return 1.0 - likeness
