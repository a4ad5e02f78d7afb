"""What an oracle is: it answers a question now, later or never."""

from __future__ import annotations

from typing import Protocol

from taps.types import Answer, Query

Reply = int | str | Answer
"""A class by index or by name, or any other `Answer`."""


class Oracle(Protocol):
    """Answers questions.

    It may also have methods `due` (late answers) and `corrections` (answers that replace earlier ones) and an
    attribute `repeatable`; the functions below read them.
    """

    def answer(self, query: Query) -> Reply | None:
        """The answer to a question; None where there is none, or none yet."""
        ...


def late_answers(oracle: Oracle, seen: int) -> list[tuple[int, Reply]]:
    """Answers to earlier questions that have arrived by the time `seen` images were seen."""
    due = getattr(oracle, "due", None)
    return [] if due is None else list(due(seen))


def corrections(oracle: Oracle) -> list[tuple[Query, Reply]]:
    """Answers that replace those to earlier questions; each is returned once."""
    found = getattr(oracle, "corrections", None)
    return [] if found is None else list(found())


def is_repeatable(oracle: Oracle | None) -> bool:
    """Whether it would answer the same if asked again; answers of others (people) are saved at once."""
    return oracle is None or getattr(oracle, "repeatable", False)
