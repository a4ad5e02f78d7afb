"""Oracles: the true labels, noisy or late ones, a person at the keyboard."""

from taps.oracles.base import Oracle, Reply, corrections, is_repeatable, late_answers
from taps.oracles.console import Console
from taps.oracles.simulated import Delayed, GroundTruth, Noisy

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
