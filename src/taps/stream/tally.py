"""Counts of a stream so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Tally:
    """What has happened so far; saved with every checkpoint.

    Attributes:
        position: Images of the stream dealt with, broken ones too.
        broken: Images that could not be read; they are not counted in the accuracy.
        known: Predictions that are known to be right or wrong.
        correct: Right ones of them.
        hits: Those whose class was among the five likeliest.
        asked: Questions put to the expert.
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
        """What the accuracy is one of: where only answers say what is right, of the images asked about."""
        return "accuracy on answered" if 0 < self.known <= self.answered else "accuracy"
