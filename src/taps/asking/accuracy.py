"""The accuracy of all predictions, estimated from the answers, and what more answers would add to it.

Every image has a chance π of being asked about, known before its question is drawn: 1 where the rule asks,
the share of random questions elsewhere. With m the probability of the predicted class and r whether it was
right, the mean of m + [asked] · (r − m) / π over all images has the expectation of the accuracy: each term
has, whatever came before it. This is inverse-probability weighting with m as the control variate
("prediction-powered inference"): the better m is calibrated, the narrower the interval.

Where questions are chosen among images that are all at hand (`sample`), some are drawn at random among those
that nobody was asked about. The estimate is then the share of these that was predicted right when drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from taps.saved import check_arrays, check_plain, flag, maybe, real, whole
from taps.types import Answer, Array

NEEDED = 8  # answers to random questions before accuracy is estimated
COVERAGE = 0.95
MORE = 20  # answers ahead that are forecast
FEWEST = 10  # answers before anything is forecast
# Fitted to the development sets by recipes/pace.py: with n answers, m more bring about
# 100 · GROWTH · 4·c·(1 − c) · ln((1 + n + m) / (1 + n)) points, where c is the mean confidence so far.
GROWTH = 0.205
NINE_OF_TEN = (0.0, 0.54)  # between which growths nine of ten streams lie


@dataclass(frozen=True)
class AccuracyEstimate:
    """Share of right predictions, with a 95 % interval.

    Attributes:
        images: How many predictions it is the accuracy of: those that could have been asked about.
        answers: Answers to random questions that it rests on.
    """

    value: float
    low: float
    high: float
    images: int
    answers: int

    def plain(self) -> dict[str, Any]:
        """For JSON, rounded."""
        return {name: round(value, 4) for name, value in vars(self).items()}


@dataclass(slots=True)
class AskedImage:
    """A prediction that was asked about: its class, m, π (both 0 in `sample`), and whether it was right."""

    predicted: int
    sure: float
    chance: float
    right: bool | None = None


class RunningAccuracy:
    """Estimates the accuracy of all predictions so far, also of each predicted class.

    Example:
        >>> running = RunningAccuracy(classes=2)
        >>> for id in range(100):
        ...     running.add(id, id % 2, sure=0.7, chance=0.2, asked=id % 5 == 0)
        >>> running.describe()
        'not known yet: 0 random answers, 8 needed'
        >>> for id in range(0, 100, 5):
        ...     running.answer(id, Answer(id % 2 if id % 3 else 1 - id % 2))
        >>> running.describe()
        'about 65% right (41 to 89)'
    """

    def __init__(self, classes: int) -> None:
        # By predicted class: images that were sure to be asked about; images that chance decided on, and
        # the sum of their m.
        self.sums: Array = np.zeros((3, classes))
        self.asked: dict[int, AskedImage] = {}
        self.images, self.all_sure = 0, 0.0  # of all images, their m in all
        self.pool = 0  # images that one was drawn from the last time

    def add(self, id: int, predicted: int, sure: float, chance: float, asked: bool) -> None:
        """Count a prediction; one that could not have been asked about has a chance of 0."""
        self.images, self.all_sure = self.images + 1, self.all_sure + sure
        if chance >= 1:
            self.sums[0, predicted] += 1
        elif chance > 0:
            self.sums[1:, predicted] += 1, sure
        if asked:
            self.asked[id] = AskedImage(predicted, sure, chance)

    def sample(self, id: int, predicted: int, pool: int) -> None:
        """Count an image that was drawn at random among `pool`, with its present prediction."""
        self.asked[id], self.pool = AskedImage(predicted, 0.0, 0.0), pool

    def answer(self, id: int, answer: Answer | None) -> None:
        """Record the answer about an image, classes by index; None takes it back."""
        if (one := self.asked.get(id)) is None:
            return
        if answer is None or (answer.no and one.predicted not in answer.no):
            one.right = None  # unknown: the answer excludes other classes only
        else:
            one.right = answer.label == one.predicted

    def estimate(self, predicted: int | None = None) -> AccuracyEstimate | None:
        """The accuracy so far, of one predicted class where it is given; None while too little is known."""
        among = slice(None) if predicted is None else predicted
        certain, drawn, sure = (float(each[among].sum()) for each in self.sums)
        known = [
            one for one in self.asked.values() if one.right is not None and predicted in (None, one.predicted)
        ]
        if self.pool:
            return self._estimate_pool(known) if predicted is None else None
        sure_to = [one for one in known if one.chance >= 1]
        by_chance = [one for one in known if one.chance < 1]
        total, few = certain + drawn, drawn > 0 and len(by_chance) < NEEDED
        # Half of all predictions, at least, must have had a chance of being asked about.
        mostly_possible = 2 * float(self.sums[:2].sum()) >= self.images
        if few or (certain and not sure_to) or not total or not mostly_possible:
            return None
        right, doubt = _certain_part(sure_to, certain)
        mean = sure / max(drawn, 1.0)
        off, error = _residuals(by_chance) if drawn else (0.0, 0.0)
        value = (certain * right + drawn * (mean + off)) / total
        half = quantile(len(by_chance)) * math.hypot(certain * doubt, drawn * error) / total
        return _with_interval(value, half, int(total), len(by_chance))

    def _estimate_pool(self, drawn: list[AskedImage]) -> AccuracyEstimate | None:
        """The accuracy from images drawn by `sample`."""
        if len(drawn) < NEEDED:
            return None
        value, error = _residuals(drawn)
        return _with_interval(value, quantile(len(drawn)) * error, self.pool, len(drawn))

    def describe(self) -> str:
        """The estimate in words, or why there is none."""
        if (found := self.estimate()) is not None:
            return f"about {found.value:.0%} right ({100 * found.low:.0f} to {100 * found.high:.0f})"
        if (held := self.random_answers) >= NEEDED:
            return "unknown: most images had no chance of being asked about"
        return f"not known yet: {held} random answer{'s' * (held != 1)}, {NEEDED} needed"

    @property
    def random_answers(self) -> int:
        """Answers to questions that were put at random."""
        return sum(one.right is not None and one.chance < 1 for one in self.asked.values())

    def summary(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """The estimate as plain values; by predicted class where there are answers enough."""
        found = self.estimate()
        by_chance = Counter(one.predicted for one in self.asked.values() if one.chance < 1)
        enough = sorted(index for index, answers in by_chance.items() if answers >= NEEDED)
        each = {classes[index]: self.estimate(index) for index in enough}
        return {
            "said": self.describe(),
            "needed": NEEDED,
            "random_answers": self.random_answers,
            "estimate": None if found is None else found.plain(),
            "by_class": {name: one.plain() for name, one in each.items() if one is not None},
        }

    def forecast(self, answers: int) -> Forecast | None:
        """The gain of `MORE` further answers; None while it is too early."""
        return forecast(answers, self.all_sure / max(1, self.images))

    def grow(self, classes: int) -> None:
        """Make room for classes added later."""
        self.sums = np.pad(self.sums, ((0, 0), (0, classes - self.sums.shape[1])))

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        counts = {"images": self.images, "all_sure": self.all_sure, "pool": self.pool}
        asked = [[id, one.predicted, one.sure, one.chance, one.right] for id, one in self.asked.items()]
        return counts | {"sums": self.sums.tolist(), "asked": asked}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved."""
        classes = self.sums.shape[1]
        one = (whole(), whole(classes - 1), real(0, 1), chance, maybe(flag))
        sums = ([real(0)],) * 3
        check_plain(values, {"sums": sums, "asked": [one], "images": whole(), "pool": whole()}, "accuracy")
        check_plain(values, {"all_sure": real(0, 1e-6 + values["images"])}, "accuracy")
        self.sums = np.array(values["sums"], np.float64)
        check_arrays({"sums": self.sums}, {"sums": (3, classes)})
        self.asked = {int(id): AskedImage(*rest) for id, *rest in values["asked"]}
        self.images, self.all_sure = int(values["images"]), float(values["all_sure"])
        self.pool = int(values["pool"])


def chance(value: Any) -> bool:
    """Whether it is a π as it is saved: 0, or none so small that 1/π² is infinite."""
    return real(0, 1)(value) and not 0 < value < 1e-100


def quantile(answers: int) -> float:
    """Student's t at 97.5 % by its expansion in 1/ν; ν is one less than the answers.

    >>> round(quantile(9), 2), round(quantile(41), 2)
    (2.3, 2.02)
    """
    z, nu = NormalDist().inv_cdf(0.5 + COVERAGE / 2), max(1, answers - 1)
    return z + (z**3 + z) / (4 * nu) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)


def _with_interval(value: float, half: float, images: int, answers: int) -> AccuracyEstimate:
    """A share and its interval, cut to between 0 and 1."""
    value, low, high = (min(1.0, max(0.0, each)) for each in (value, value - half, value + half))
    return AccuracyEstimate(value, low, high, images, answers)


def _certain_part(known: list[AskedImage], images: float) -> tuple[float, float]:
    """Share of right predictions among images that were sure to be asked about, and its standard error."""
    if not known:
        return 0.0, 0.0
    right = sum(bool(one.right) for one in known) / len(known)
    lacking = max(0.0, 1 - len(known) / images)
    return right, math.sqrt(lacking * right * (1 - right) / len(known))


def _residuals(drawn: list[AskedImage]) -> tuple[float, float]:
    """Mean of r − m weighted by 1/π, and its standard error.

    The error counts one more answer of each kind, as few answers tend to agree by chance.
    """
    weights = np.array([1 / (one.chance or 1.0) for one in drawn])
    off = np.array([bool(one.right) - one.sure for one in drawn])
    mean = float(weights @ off / weights.sum())
    sure = float(np.mean([one.sure for one in drawn]))
    pseudo, usual = np.array([1 - sure, -sure]), float(weights.mean())
    squares = float(weights**2 @ (off - mean) ** 2) + usual**2 * float(((pseudo - mean) ** 2).sum()) / 2
    count = len(drawn)
    return mean, math.sqrt(squares * count / (count - 1)) / float(weights.sum())


@dataclass(frozen=True)
class Forecast:
    """Gain in points of accuracy by `answers` more answers, with a 90 % interval."""

    answers: int
    gain: float
    low: float
    high: float

    def describe(self) -> str:
        """In words.

        >>> Forecast(20, 1.2, 0.2, 3.4).describe()
        '20 more answers: about +1 point (0 to +3)'
        """
        # A whole number of points with its sign; 0 has none.
        gain, low, high = (f"{round(x):+d}" if round(x) else "0" for x in (self.gain, self.low, self.high))
        unit = "point" if gain == "+1" else "points"
        return f"{self.answers} more answers: about {gain} {unit} ({low} to {high})"

    def plain(self) -> dict[str, Any]:
        """For JSON, rounded."""
        return {"said": self.describe(), **{name: round(value, 2) for name, value in vars(self).items()}}


def forecast(answers: int, sure: float, more: int = MORE) -> Forecast | None:
    """The gain in accuracy of `more` answers after `answers`; None while it is too early.

    `sure` is the mean probability of the predicted class over the images so far. Where it is near 1 there is
    little to gain; where it is near 0 there are too many classes for a few answers.

    >>> forecast(9, 0.5) is None
    True
    >>> early, late = forecast(10, 0.6), forecast(200, 0.6)
    >>> early.gain > 4 * late.gain > 0
    True
    """
    if answers < FEWEST:
        return None
    steps = 100 * 4 * sure * (1 - sure) * math.log((1 + answers + more) / (1 + answers))
    return Forecast(more, *(steps * growth for growth in (GROWTH, *NINE_OF_TEN)))
