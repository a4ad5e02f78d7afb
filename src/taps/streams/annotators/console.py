"""The console annotator: a person at the keyboard answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taps.asking.reasons import reason
from taps.asking.rules import RANDOM_SCORE
from taps.errors import TapsError
from taps.streams.annotators.base import Context, annotator
from taps.types import Answer, Query

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

SHOWN = 5
HELP = """\
  a number    the class of that number in the list above
  a name      a class, or the beginning of its name, if only one begins so
{others}  nothing, s  you do not know: the question is skipped
  u           undo: the question before this one is asked again
  n           a new class: you are asked for its name; where it asks "Is it …?", no
  q           quit: everything is saved, and `taps run --resume` goes on
  ?           this help; classes called like one of these letters win over it"""
OTHERS = """\
  not …       what it is not: "not 1", "not dog"
  none        none of the classes
"""
PROMPT = "Which class is it? (number, name{others}, ? for help) "
YES_OR_NO = "Is it {}? (y for yes, n for no, or another answer, ? for help) "


class Console:
    """Shows an image, why it is asked about and the likeliest classes; reads an answer.

    What is typed before a question is shown does not count as its answer. The end of the input acts as "q".

    Args:
        classes: Class names.
        console: The terminal unless given.
        picture: Reads an image file by its path; without it no image is shown.
        add_class: Adds a class to the learner; without it no class can be added.
        labels_only: Whether the method learns from classes alone: no "not …", no "none".
        name: Who answers; every answer carries this name.
        settings: Of the method, to say why it asks.
    """

    def __init__(
        self,
        classes: Sequence[str],
        console: RichConsole | None = None,
        *,
        picture: Callable[[str], bytes] | None = None,
        add_class: Callable[[str], None] | None = None,
        labels_only: bool = False,
        name: str = "",
        settings: Any = None,
    ) -> None:
        from rich.console import Console as RichConsole

        self.classes = tuple(classes)
        self.console = console or RichConsole(stderr=True)
        self.picture, self.add_class = picture, add_class
        self.labels_only, self.name, self.settings = labels_only, name, settings
        self._before: Query | None = None
        self._corrections: list[tuple[Query, int | Answer]] = []
        self._way: str | None = None

    @property
    def numbered(self) -> bool:
        """Whether a number means a place in the list; not where a class is called "1", "2", …"""
        return not any(name.isdigit() for name in self.classes)

    def answer(self, query: Query) -> int | Answer:
        while (given := self._ask(query)) is None:
            self._undo()
        self._before = query
        return self._signed(given)

    def _undo(self) -> None:
        """Ask the question before again."""
        if self._before is None:
            self._print("This is the first question.")
        elif (again := self._ask(self._before)) is None:
            self._print("The answer before stays as it was.")
        else:
            self._corrections.append((self._before, self._signed(again)))
            self._before = None

    def _signed(self, given: int | Answer) -> int | Answer:
        return replace(Answer.of(given), annotator=self.name) if self.name else given

    def corrections(self) -> list[tuple[Query, int | Answer]]:
        """Answers that replace those to earlier questions; each is returned once."""
        given, self._corrections = self._corrections, []
        return given

    def _ask(self, query: Query) -> int | Answer | None:
        """The answer; None where the question before is to be asked again."""
        shown = self._show(query)
        prompt = PROMPT.format(others="" if self.labels_only else ", not …, none")
        if query.yes_no is not None:
            prompt = YES_OR_NO.format(self.classes[query.yes_no])
        while True:
            flush_typed()
            typed = self._typed(prompt)
            command = "" if _folded(typed) in map(_folded, self.classes) else typed.lower()
            if not typed or command == "s":
                return Answer(unknown=True)
            if query.yes_no is not None and command in ("y", "yes"):
                return query.yes_no
            if query.yes_no is not None and command in ("n", "no"):
                return Answer(no=(query.yes_no,))
            if command == "q":
                raise KeyboardInterrupt
            if command == "u":
                return None
            if command == "?":
                self._print(HELP.format(others="" if self.labels_only else OTHERS))
                continue
            found = self._new_class() if command == "n" else self._read(typed, shown)
            if found is not None:
                return found

    def _show(self, query: Query) -> list[int]:
        """Print the question; return the listed classes, by index."""
        from rich.markup import escape

        prediction = query.prediction
        best, values = prediction.likeliest(SHOWN), prediction.to_json(self.classes)
        self.console.print(f"\n[bold]{escape(query.path)}[/bold]")
        self._draw(query.path)
        known = {name: values[name] for name in ("top", "entropy", "threshold")}
        score = RANDOM_SCORE if prediction.why == "random" else values["score"]
        self._print(reason(self.settings, **known, score=score))
        for place, index in enumerate(best, start=1):
            number = f"{place}  " if self.numbered else ""
            self._print(f"  {number}{self.classes[index]}  {prediction.probs[index]:.1%}")
        return best if self.numbered else []

    def _draw(self, source: str) -> None:
        if self.picture is None:
            return
        from taps.streams.annotators.picture import find_way, show_picture  # here: it imports torch

        self._way = self._way or find_way(os.environ, terminal=self.console.is_terminal)
        try:
            show_picture(self.console, self.picture(source), source, self._way)
        except (TapsError, OSError) as error:
            self._print(f"The image cannot be shown: {error}")

    def _read(self, typed: str, shown: Sequence[int], before: str = "") -> int | Answer | None:
        found = matches(typed, self.classes, shown)
        if len(found) == 1:
            if _folded(typed) != _folded(self.classes[found[0]]):
                self._print(f"→ {before}{self.classes[found[0]]}")
            return found[0]
        first, _, rest = typed.partition(" ")
        if not found and (_folded(typed) == "none" or (first.casefold() == "not" and rest.strip())):
            return self._other(typed, rest.strip(), shown)
        names = ", ".join(self.classes[index] for index in found[:SHOWN])
        several = f"could be {names}{', …' if len(found) > SHOWN else ''}; type more of the name."
        self._print(f"{typed!r} {several if found else f'is not one of the {len(self.classes)} classes.'}")
        return None

    def _other(self, typed: str, out: str, shown: Sequence[int]) -> Answer | None:
        """The answer "none", or "not" and what it is not."""
        if self.labels_only:
            self._print(
                "This method learns from classes alone; methods with a head (view_ensemble+) from more."
            )
            return None
        if not out:
            return Answer(none=True)
        found = self._read(out, shown, before="not ")
        if isinstance(found, Answer):
            self._print(f'{typed!r} is no answer; after "not" comes a class.')
        return Answer(no=(found,)) if isinstance(found, int) else None

    def _new_class(self) -> int | None:
        if self.add_class is None:
            self._print("No class can be added here.")
            return None
        name = self._typed("Its name (empty to go back): ")
        if not name:
            return None
        try:
            self.add_class(name)
        except TapsError as error:
            self._print(str(error))
            return None
        self.classes = (*self.classes, name)
        return len(self.classes) - 1

    def _typed(self, prompt: str) -> str:
        try:
            return self.console.input(prompt, markup=False, emoji=False).strip()
        except EOFError:  # the input has ended: the question stays open for the next run
            raise KeyboardInterrupt from None

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


@annotator("console")
def at_the_console(context: Context, *, name: str = "") -> Console:
    """A person at this terminal, whose answers carry their name."""
    learner = context.learner
    return Console(
        learner.classes,
        picture=None if context.dataset is None else context.dataset.source.read,
        add_class=learner.add_class,
        labels_only=not learner.method.takes_any_answer,
        name=name,
        settings=learner.settings,
    )


def matches(typed: str, classes: Sequence[str], shown: Sequence[int]) -> list[int]:
    """The classes that a text may mean: a name, a number of the list shown, or beginnings of names.

    >>> matches("2", ["cat", "dog"], shown=[1, 0])
    [0]
    >>> matches("D", ["cat", "dog", "dormouse"], shown=[])
    [1, 2]
    """
    wanted = _folded(typed)
    names = [_folded(name) for name in classes]
    if wanted in names:
        return [names.index(wanted)]
    if typed.isdigit() and shown:
        return [shown[int(typed) - 1]] if 1 <= int(typed) <= len(shown) else []
    return [index for index, name in enumerate(names) if name.startswith(wanted)]


def flush_typed() -> None:
    """Discard what was typed before now, at a terminal; what comes through a pipe stays."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return
    try:
        import termios
    except ImportError:
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _folded(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).casefold()
