"""Who answers: one file a kind.

Read first: `base.py`.
Must not know: how a run is recorded.
"""

from taps.streams.annotators.base import (
    Annotator,
    Context,
    Reply,
    annotator,
    corrections,
    find_annotator,
    is_repeatable,
    late_answers,
)
from taps.streams.annotators.console import Console
from taps.streams.annotators.delayed import Delayed
from taps.streams.annotators.folder import GroundTruth
from taps.streams.annotators.noisy import Noisy

__all__ = [
    "Annotator",
    "Console",
    "Context",
    "Delayed",
    "GroundTruth",
    "Noisy",
    "Reply",
    "annotator",
    "corrections",
    "find_annotator",
    "is_repeatable",
    "late_answers",
]
