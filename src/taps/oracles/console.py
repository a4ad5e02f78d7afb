"""A person at the keyboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from taps.types import Answer, Query

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

SHOWN = 5


class Console:
    """Shows the path and the likeliest classes, and takes what a person types.

    That is a number of the list, or a class name; "not" before either for what it is not; "none" for none of
    the classes, unless one is called so; nothing where the person does not know.

    Args:
        classes: Class names.
        console: Where to write and read; the terminal unless given.
    """

    def __init__(self, classes: Sequence[str], console: RichConsole | None = None) -> None:
        from rich.console import Console as RichConsole

        self.classes = tuple(classes)
        self.console = console or RichConsole(stderr=True)
        # Where classes are called "1", "2", … a typed number must mean the name.
        self.numbered = not any(name.isdigit() for name in self.classes)

    def answer(self, query: Query) -> int | Answer | None:
        from rich.markup import escape

        best = np.argsort(-query.prediction.probs, kind="stable")[:SHOWN].tolist()
        self.console.print(f"\n[bold]{escape(query.source)}[/bold]")
        for place, index in enumerate(best, start=1):
            number = f"{place}  " if self.numbered else ""
            self.console.print(
                f"  {number}{escape(self.classes[index])}  {query.prediction.probs[index]:.1%}"
            )
        while True:
            try:
                typed = self.console.input(
                    "Which class is it? (number, name, not …, none, empty: unknown) "
                ).strip()
            except EOFError:
                return None
            if not typed:
                return Answer(unknown=True)
            found = read_reply(typed, self.classes, best if self.numbered else [])
            if found is not None:
                return found
            self.console.print(f"{escape(repr(typed))} is none of the {len(self.classes)} classes.")


def read_reply(typed: str, classes: Sequence[str], shown: Sequence[int]) -> int | Answer | None:
    """What somebody meant: a class, "not" a class, or "none" of them; None where it is none of these.

    >>> read_reply("not 1", ["cat", "dog"], shown=[1, 0])
    Answer(label=None, no=(1,), none=False, unknown=False, expert='')
    """
    found = read_answer(typed, classes, shown)
    if found is not None:
        return found
    if _folded(typed) == "none":
        return Answer(none=True)
    first, _, rest = typed.partition(" ")
    out = read_answer(rest.strip(), classes, shown) if first.casefold() == "not" and rest.strip() else None
    return None if out is None else Answer(no=(out,))


def read_answer(typed: str, classes: Sequence[str], shown: Sequence[int]) -> int | None:
    """The class somebody meant: a name, a number of the list shown, or the beginning of one name only.

    >>> read_answer("2", ["cat", "dog"], shown=[1, 0])
    0
    >>> read_answer("D", ["cat", "dog"], shown=[])
    1
    """
    wanted = _folded(typed)
    names = [_folded(name) for name in classes]
    if wanted in names:
        return names.index(wanted)
    if typed.isdigit() and shown:
        return shown[int(typed) - 1] if 1 <= int(typed) <= len(shown) else None
    begins = [index for index, name in enumerate(names) if name.startswith(wanted)]
    return begins[0] if len(begins) == 1 else None


def _folded(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).casefold()
