"""Timing of the stages of a prediction: recorded inside `keep_stages`, nearly free elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Stage = tuple[str, int, int]
"""Its name, and when it began and ended, in nanoseconds since 1970: other processes have the same clock."""
_kept: ContextVar[list[Stage] | None] = ContextVar("stages", default=None)


@contextmanager
def keep_stages() -> Iterator[list[Stage]]:
    """The stages that end meanwhile in this thread, in the order of their ends.

    >>> with keep_stages() as stages:
    ...     with stage("views"):
    ...         pass
    >>> [name for name, began, ended in stages if ended >= began]
    ['views']
    """
    stages: list[Stage] = []
    token = _kept.set(stages)
    try:
        yield stages
    finally:
        _kept.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A part of a prediction. On a GPU it ends when its work is queued, not when it is done."""
    stages = _kept.get()
    if stages is None:
        yield
        return
    began = time.time_ns()
    try:
        yield
    finally:
        stages.append((name, began, time.time_ns()))
