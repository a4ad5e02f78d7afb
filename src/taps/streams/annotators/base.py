"""What an annotator is: it answers a question now, later or never.

Each is a file, here or in a plugin, and enters itself: `@annotator("mine")` above what makes it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from taps.errors import SettingsError
from taps.registry import Registry
from taps.types import Answer, Query

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.learner import Learner

Reply = int | str | Answer
"""A class by index or by name, or any other `Answer`."""


class Annotator(Protocol):
    """Answers questions.

    It may also have methods `due` (late answers) and `corrections` (answers that replace earlier ones) and an
    attribute `repeatable`; the functions below read them.
    """

    def answer(self, query: Query) -> Reply | None:
        """The answer to a question; None where there is none, or none yet."""
        ...


def late_answers(annotator: Annotator, seen: int) -> list[tuple[int, Reply]]:
    """Answers to earlier questions that have arrived by the time `seen` images were seen."""
    due = getattr(annotator, "due", None)
    return [] if due is None else list(due(seen))


def corrections(annotator: Annotator) -> list[tuple[Query, Reply]]:
    """Answers that replace those to earlier questions; each is returned once."""
    found = getattr(annotator, "corrections", None)
    return [] if found is None else list(found())


def is_repeatable(annotator: Annotator | None) -> bool:
    """Whether it would answer the same if asked again; answers of others (people) are saved at once."""
    return annotator is None or getattr(annotator, "repeatable", False)


@dataclass(frozen=True)
class Context:
    """What an annotator is made in.

    Attributes:
        learner: Whose questions it answers.
        dataset: The images, where they are a data set.
        truth: Answers from the data set's labels; None where there are none.
    """

    learner: Learner
    dataset: Dataset | None
    truth: Annotator | None


@dataclass(frozen=True)
class Registered:
    """What is known of an annotator.

    Attributes:
        make: Makes it, or nobody (None): `make(context, **options)`. Options are its arguments by keyword.
        by_labels: Whether it cannot answer without labels.
    """

    make: Callable[..., Annotator | None]
    by_labels: bool

    @property
    def options(self) -> dict[str, Any]:
        """Its options and their defaults."""
        parameters = inspect.signature(self.make).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


ANNOTATORS: Registry[Registered] = Registry("annotator", "taps.streams.annotators")
M = TypeVar("M", bound=Callable[..., Any])


def annotator(name: str, *, by_labels: bool = False) -> Callable[[M], M]:
    """Give an annotator its name: above a class, or a function that makes one (see `Registered`)."""

    def entered(make: M) -> M:
        ANNOTATORS.enter(name, Registered(make, by_labels), make.__module__)
        return make

    return entered


def find_annotator(text: str) -> Registered:
    """The annotator that a text names, with the options it gives: "folder", "noisy:rate=0.2,seed=1"."""
    name, _, given = text.partition(":")
    found = ANNOTATORS[name]
    pairs = [pair.partition("=") for pair in given.split(",") if pair]
    options = {key: _option(found, name, key, value) for key, _, value in pairs}
    return replace(found, make=partial(found.make, **options))


def _option(found: Registered, name: str, key: str, text: str) -> Any:
    if key not in found.options:
        known = ", ".join(found.options) or "none"
        raise SettingsError(f"The annotator {name!r} has no option {key!r}; its options are: {known}.")
    default = found.options[key]
    if isinstance(default, str):
        return text
    with suppress(ValueError, SyntaxError):
        value = ast.literal_eval(text)
        if type(value) in (type(default), int):
            return value
    raise SettingsError(f"The annotator's option {key} is {text!r}; give a value such as {default!r}.")


def true_labels(context: Context) -> Annotator:
    """Who answers from the labels."""
    if context.truth is None:
        raise SettingsError("This annotator answers from labels; give a data set that has some.")
    return context.truth
