"""Annotators: the true labels, noisy or late ones, a person at the keyboard."""

from taps.oracles.base import Oracle, Reply, corrections, is_repeatable, late_answers
from taps.oracles.console import Console
from taps.oracles.delayed import Delayed
from taps.oracles.noisy import Noisy
from taps.oracles.truth import GroundTruth

__all__ = [
    "Console",
    "Delayed",
    "GroundTruth",
    "Noisy",
    "Oracle",
    "Reply",
    "corrections",
    "is_repeatable",
    "late_answers",
]
