"""The person at the keyboard: letters, echo, undo, new classes, and what is typed too early."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console as RichConsole

from taps.errors import ClassNameError
from taps.streams.annotators import Console, corrections
from taps.streams.annotators.console import matches
from taps.types import Answer, Prediction, Query

CLASSES = ("tabby cat", "dog", "dormouse", "snake")
UNKNOWN = Answer(unknown=True)


def question(id: int = 0, **changes: float) -> Query:
    probs = np.array([0.1, 0.6, 0.2, 0.1], np.float32)
    said = {"entropy": 1.0, "threshold": 0.5, **changes}
    score = said.pop("score", float("nan"))
    prediction = Prediction(id, 1, "dog", probs, said["entropy"], said["threshold"], True, 0.1, score)
    return Query(id, f"{id}.jpg", prediction)


class Keyboard:
    """Somebody who types these lines one after the other."""

    def __init__(self, typed: str, add_class: Callable[[str], None] | None = None, **more: Any) -> None:
        self.out = io.StringIO()
        rich = RichConsole(file=self.out, width=100)
        lines = iter(typed.split("\n"))

        def read(prompt: str = "", **_: object) -> str:
            self.out.write(prompt)
            try:
                return next(lines)
            except StopIteration:
                raise EOFError from None

        rich.input = read  # type: ignore[method-assign, assignment]
        self.console = Console(CLASSES, rich, add_class=add_class, **more)

    @property
    def said(self) -> str:
        return self.out.getvalue()


@pytest.mark.parametrize(
    ("typed", "answer", "said"),
    [
        ("dorm", 2, "→ dormouse"),
        ("1", 1, "→ dog"),
        ("do\ndog", 1, "'do' could be dog, dormouse; type more"),
        ("wolf\ndog", 1, "'wolf' is not one of the 4 classes"),
        ("s", UNKNOWN, ""),  # a letter of its own before it is the beginning of "snake"
        ("sn", 3, "→ snake"),
        ("?\ndog", 1, "undo: the question before"),
        ("u\ndog", 1, "This is the first question"),
        ("n\ndog", 1, "No class can be added"),
        ("not dor", Answer(no=(2,)), "→ not dormouse"),
        ("not do\nnone", Answer(none=True), "'do' could be dog, dormouse"),
        ("not none\ndog", 1, "'not none' is no answer"),
        ("not not dog\ndog", 1, "'not not dog' is no answer"),
    ],
)
def test_what_is_typed_and_what_is_echoed(typed: str, answer: int | Answer, said: str) -> None:
    keyboard = Keyboard(typed)
    assert keyboard.console.answer(question()) == answer
    assert said in keyboard.said


def test_a_name_in_full_is_not_echoed_and_wins_over_a_letter() -> None:
    keyboard = Keyboard("Dog\ns")
    assert keyboard.console.answer(question()) == 1
    assert "→" not in keyboard.said
    keyboard.console.classes = ("s", "n")
    query = question()
    two = Prediction(0, 0, "s", query.prediction.probs[:2], 1.0, 0.5, True, 0.1)
    assert keyboard.console.answer(Query(0, "0.jpg", two)) == 0


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("y", 1), ("YES", 1), ("n", Answer(no=(1,))), ("no", Answer(no=(1,))), ("snake", 3), ("", UNKNOWN)],
)
def test_yes_or_no(typed: str, answer: int | Answer) -> None:
    assert Keyboard(typed).console.answer(replace(question(), yes_no=1)) == answer


@pytest.mark.parametrize("typed", ["none", "not dog"])
def test_where_labels_alone_are_learned_nothing_else_is_taken(typed: str) -> None:
    keyboard = Keyboard(f"?\n{typed}\ndog", labels_only=True)
    assert keyboard.console.answer(question()) == 1
    assert "Which class is it? (number, name, ? for help)" in keyboard.said
    assert "none of the classes" not in keyboard.said
    assert "view_ensemble+" in keyboard.said


def test_who_answers_is_named() -> None:
    keyboard = Keyboard("dog\nu\nnone\nsnake", name="ann")
    assert keyboard.console.answer(question(0)) == Answer(1, annotator="ann")
    assert keyboard.console.answer(question(1)) == Answer(3, annotator="ann")
    assert [said for _, said in corrections(keyboard.console)] == [Answer(none=True, annotator="ann")]


@pytest.mark.parametrize("typed", ["q", "wolf", "n"])  # after the last two the input ends
def test_quit_and_the_end_of_the_input_are_ctrl_c(typed: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        Keyboard(typed, add_class=lambda name: None).console.answer(question())


def test_undo_asks_the_question_before_again() -> None:
    keyboard = Keyboard("dog\nu\nsnake\ndorm\n1")
    assert keyboard.console.answer(question(0)) == 1
    assert corrections(keyboard.console) == []
    assert keyboard.console.answer(question(1)) == 2
    assert [(query.id, answer) for query, answer in corrections(keyboard.console)] == [(0, 3)]
    assert corrections(keyboard.console) == []
    assert keyboard.said.count("0.jpg") == keyboard.said.count("1.jpg") == 2
    assert keyboard.console.answer(question(2)) == 1


def test_a_new_class() -> None:
    added: list[str] = []

    def add(name: str) -> None:
        if name == "dog":
            raise ClassNameError("The class 'dog' exists already")
        added.append(name)

    keyboard = Keyboard("n\ndog\nn\nzebra\nzeb", add)
    assert keyboard.console.answer(question()) == 4
    assert "already" in keyboard.said
    assert added == ["zebra"]
    assert keyboard.console.answer(question(1)) == 4


def test_why_it_asks() -> None:
    keyboard = Keyboard("dog")
    keyboard.console.answer(question())
    assert "The model is unsure: its uncertainty is 1.00, and it asks above 0.50." in keyboard.said


ASKER = """
import os
from taps.streams.annotators import Console
from tests.streams.annotators.test_console import CLASSES, question
annotator = Console(CLASSES)
answers = [annotator.answer(question(0)), annotator.answer(question(1))]
os.write(1, f"ANSWERS {answers}\\n".encode())
"""


def test_typing_ahead_does_not_answer_the_next_question() -> None:
    ours, theirs = pty.openpty()
    place, env = Path(__file__).parents[3], os.environ | {"TAPS_PICTURES": "none"}
    command = [sys.executable, "-c", ASKER]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=place, env=env) as person:
        wait_for(ours, "for help")
        os.write(ours, b"1\n2\n2\n")  # one answer, and two too many
        wait_for(ours, "for help")
        os.write(ours, b"4\n")
        said = wait_for(ours, "ANSWERS") + wait_for(ours, "]")
        assert person.wait() == 0
    os.close(ours)
    os.close(theirs)
    assert "ANSWERS [1, 3]" in said


def wait_for(terminal: int, text: str) -> str:
    """What the program writes up to a text and no further."""
    said = ""
    while not said.endswith(text):
        assert select.select([terminal], [], [], 120)[0], f"nothing more came after {said!r}"
        said += os.read(terminal, 1).decode(errors="replace")
    return said


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("dog", 1),
        ("Tabby_Cat", 0),
        ("1", 1),  # the likeliest stands first
        ("2", 2),
        ("t", 0),
        ("sn", 3),
        ("\n", Answer(unknown=True)),
        ("none", Answer(none=True)),
        ("not dog", Answer(no=(1,))),
        ("NOT 2", Answer(no=(2,))),
        ("not wolf\nnot\nnot 1", Answer(no=(1,))),
        ("do\nwolf\n9\ndog", 1),  # two begin with "do"; no wolf; no ninth line
    ],
)
def test_console_understands(typed: str, answer: int | Answer) -> None:
    assert Keyboard(typed).console.answer(question(5)) == answer


def test_console_shows_path_and_predictions() -> None:
    keyboard = Keyboard("dog")
    keyboard.console.answer(question(5))
    shown = keyboard.said
    assert "5.jpg" in shown
    assert shown.index("dog") < shown.index("dormouse") < shown.index("snake")
    assert "60.0%" in shown


def test_names_that_are_numbers_win_over_the_numbering() -> None:
    assert matches("2", ["1", "2", "3"], shown=[]) == [1]
    assert Console(["1", "2"], RichConsole(file=io.StringIO())).numbered is False
