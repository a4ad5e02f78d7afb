"""Annotators: the true labels, noisy or late ones, a person at the keyboard, or one of a plugin."""

from taps.oracles.base import (
    Context,
    Oracle,
    Reply,
    annotator,
    corrections,
    find_annotator,
    is_repeatable,
    late_answers,
)
from taps.oracles.console import Console
from taps.oracles.delayed import Delayed
from taps.oracles.folder import GroundTruth
from taps.oracles.noisy import Noisy

__all__ = [
    "Console",
    "Context",
    "Delayed",
    "GroundTruth",
    "Noisy",
    "Oracle",
    "Reply",
    "annotator",
    "corrections",
    "find_annotator",
    "is_repeatable",
    "late_answers",
]
