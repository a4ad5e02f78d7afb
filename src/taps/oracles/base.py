"""What an annotator is to a stream: somebody who may answer a question, now, later or never."""

from __future__ import annotations

from typing import Protocol

from taps.types import Answer, Query

Reply = int | str | Answer
"""A class by index or by name, or what else can be said of an image."""


class Oracle(Protocol):
    """One who is asked."""

    def answer(self, query: Query) -> Reply | None:
        """What is said of the image asked about, or None where nothing is said, or not yet."""
        ...


def late_answers(oracle: Oracle, seen: int) -> list[tuple[int, Reply]]:
    """Answers to earlier questions that have arrived by the time `seen` images were seen.

    Oracles that answer late have a method `due`; the others have none and nothing arrives late.
    """
    due = getattr(oracle, "due", None)
    return [] if due is None else list(due(seen))


def corrections(oracle: Oracle) -> list[tuple[Query, Reply]]:
    """Answers that take the place of what was answered to earlier questions.

    Oracles that can change their mind have a method `corrections`; what it gives, it gives once.
    """
    found = getattr(oracle, "corrections", None)
    return [] if found is None else list(found())


def is_repeatable(oracle: Oracle | None) -> bool:
    """Whether it would answer the same if it were asked again.

    Those that do say so by an attribute `repeatable`. What others say, people above all, is saved at once.
    """
    return oracle is None or getattr(oracle, "repeatable", False)
