"""Counts of a stream so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taps.types import OUTSIDE


@dataclass
class RunningScore:
    """What has happened so far; saved with every checkpoint.

    Attributes:
        position: Images of the stream dealt with, broken ones too.
        broken: Images that could not be read; they are not counted in the accuracy.
        known: Predictions that are known to be right or wrong.
        correct: Right ones of them.
        hits: Those whose class was among the five likeliest.
        asked: Questions put to the annotator.
        answered: Labels given to the method.
        decode_s: Time spent waiting for decoded images.
        method_s: Time of the method itself, predicting and learning.
        wall_s: Time of the whole loop.
        peak_mem_mb: Highest memory so far.
    """

    position: int = 0
    broken: int = 0
    known: int = 0
    correct: int = 0
    hits: int = 0
    asked: int = 0
    answered: int = 0
    decode_s: float = 0.0
    method_s: float = 0.0
    wall_s: float = 0.0
    peak_mem_mb: float = 0.0

    @property
    def accuracy(self) -> float | None:
        """Share of right predictions among those that are known to be right or wrong."""
        return self.correct / self.known if self.known else None

    @property
    def accuracy_of(self) -> str:
        """What the accuracy is taken over: answered images alone, where only answers say what is right."""
        return "accuracy on answered" if 0 < self.known <= self.answered else "accuracy"


@dataclass(frozen=True)
class ImageScore:
    """What an image counts as, by what is known of it.

    Attributes:
        final: Index of the class it is taken for: predicted, or answered where annotators are asked first.
        label: Index of its class, where the data set or an answer says; `OUTSIDE` for none; else None.
        hit: Whether the label is among the likeliest classes; None where it is not known.
        denied: Whether all that is known is that it is not of the predicted class.
    """

    final: int
    label: int | None
    hit: bool | None
    denied: bool = False

    @property
    def correct(self) -> bool | None:
        """Whether it was right; None where that is not known."""
        if self.hit is None:
            return False if self.denied else None
        return self.final == self.label

    def add_to(self, running: RunningScore, sign: int = 1) -> None:
        """Add it to the counts, or take it out of them."""
        running.known += sign * (self.correct is not None)
        running.correct += sign * bool(self.correct)
        running.hits += sign * bool(self.hit)

    def cells(self, classes: Sequence[str]) -> dict[str, Any]:
        """What the row of the image says of it."""
        label = "" if self.label in (None, OUTSIDE) else classes[self.label]
        return {
            "predicted": classes[self.final],
            "label": label,
            "correct": self.correct,
            "top5": self.hit,
            "truth": self.label,
        }
