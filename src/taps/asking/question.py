"""Kinds of questions ("class": which one is it? "yes_no": is it this one?) and the annotator's time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.saved import check_plain, real, whole

KINDS = ("class", "yes_no")
YES_NO_SECONDS = 1.6  # people's median for a yes or no; one of 50 classes takes them 11.7 s
EACH_DOUBLING = 2.175  # seconds more for twice as many classes, which is what leads from one to the other


def class_seconds(classes: int) -> float:
    """Seconds in which a person picks one of so many classes.

    >>> [round(class_seconds(classes), 1) for classes in (2, 7, 50, 1000)]
    [1.6, 5.5, 11.7, 21.1]
    """
    return YES_NO_SECONDS + EACH_DOUBLING * max(0.0, math.log2(classes) - 1)


def information(probs: NDArray[Any]) -> dict[str, float]:
    """Expected information of each kind of question in nats: H(p), and h of the likeliest class.

    >>> {kind: round(nats, 2) for kind, nats in information(np.array([0.5, 0.25, 0.25])).items()}
    {'class': 1.04, 'yes_no': 0.69}
    """
    likeliest = float(probs.max())
    return {"class": _entropy(probs), "yes_no": _entropy(np.array([likeliest, 1.0 - likeliest]))}


def _entropy(probs: NDArray[Any]) -> float:
    some = probs[probs > 0].astype(np.float64)
    return float(-(some * np.log(some)).sum())


class Questions:
    """Chooses the kind of each question and counts the annotator's time.

    Where both kinds are allowed, the one of more expected information per second is chosen.

    Args:
        kinds: "class", "yes_no" or "both".
        seconds: What a question of each kind takes.
        total: Seconds for all questions together; None for no limit.

    Example:
        >>> questions = Questions("both", {"class": 5.0, "yes_no": 1.0}, total=6.5)
        >>> questions.choose(np.array([0.5, 0.3, 0.2]))
        'yes_no'
        >>> questions.put("class"), questions.choose(np.array([0.01] * 100)), questions.put("yes_no")
        (1, 'yes_no', 0.2)
        >>> questions.choose(np.array([0.5, 0.5])) is None
        True
    """

    def __init__(self, kinds: str, seconds: dict[str, float], total: float | None = None) -> None:
        self.kinds = KINDS if kinds == "both" else (kinds,)
        self.seconds, self.total = seconds, total
        self.counts = dict.fromkeys(KINDS, 0)
        self.spent = 0.0

    def choose(self, probs: NDArray[Any]) -> str | None:
        """The kind of question to put about an image; None where there is no time for any."""
        left = math.inf if self.total is None else self.total - self.spent + 1e-9
        affordable = [kind for kind in self.kinds if self.seconds[kind] <= left]
        if len(affordable) < 2:
            return affordable[0] if affordable else None
        nats = information(probs)
        return max(affordable, key=lambda kind: nats[kind] / self.seconds[kind])

    def put(self, kind: str) -> float:
        """Count a question that was put; its `share`."""
        self.counts[kind] += 1
        self.spent += self.seconds[kind]
        return self.share(kind)

    def share(self, kind: str) -> float:
        """What a question takes of the budget: its time as a share of a "class" question's."""
        return 1 if kind == "class" else self.seconds[kind] / self.seconds["class"]

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        return {"counts": dict(self.counts), "spent": self.spent}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved."""
        check_plain(values, {"counts": dict.fromkeys(KINDS, whole()), "spent": real(0)}, "questions")
        self.counts = {kind: values["counts"][kind] for kind in KINDS}
        self.spent = float(values["spent"])
