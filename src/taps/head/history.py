"""The last answers, so that each can be taken back, also after the stream was resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.head.head import Head, LabelledExample, State
from taps.head.neighbours import NEAR, Neighbourhood, row_length
from taps.saved import Shape, check_arrays, check_plain, whole
from taps.types import OUTSIDE

SPACING = 25  # answers between two states that are kept, at most


class History:
    """The last answers a head learned, and states of the head to learn them again from.

    To take an answer back, the head returns to a state from before it and learns the later answers again, all
    but this one: to the bit what would be if it had never been given. States are kept at every 25th answer
    after the first, or oftener, as far back as needed; they share what did not change. Only the first state
    is saved; the others are made again as they are needed.

    Args:
        head: Learns.
        undo: How many of the last answers can be taken back.
    """

    def __init__(self, head: Head, undo: int) -> None:
        self.head, self.undo = head, undo
        self.spacing = max(1, min(SPACING, undo))
        self.examples: dict[int, LabelledExample] = {}
        self.marks: dict[int, State] = {}  # states before these examples

    def remembers(self, id: int) -> bool:
        """Whether an answer is one of the last `undo`."""
        return id in list(self.examples)[max(0, len(self.examples) - self.undo) :]

    def learn(
        self, id: int, look: Neighbourhood, label: int, no: tuple[int, ...] = (), person: int = 0
    ) -> None:
        """Learn the answer for an image."""
        self._mark(id)
        self.examples[id] = self.head.learn(look, label, no=no, person=person)
        self._make_second()
        self._trim()

    def forget(self, id: int) -> None:
        """Take back an answer that is remembered."""
        ids = list(self.examples)
        before = [mark for mark in self.marks if ids.index(mark) <= ids.index(id)]
        self.head.go_to(self.marks[before[-1]])
        again = {other: self.examples.pop(other) for other in ids[ids.index(before[-1]) :]}
        for other in again:
            self.marks.pop(other, None)
        del again[id]
        self._learn_again(again)

    def learn_all_again(self) -> None:
        """After classes were added: with more of them sums are rounded in another order, and every way to
        this state must round them alike."""
        if not self.examples:
            return
        again, (first, *_) = self.examples, self.marks.values()
        self.head.go_to(first)
        self.examples, self.marks = {}, {}
        self._learn_again(again)

    def _learn_again(self, examples: dict[int, LabelledExample]) -> None:
        for id, example in examples.items():
            self._mark(id)
            self.examples[id] = self.head.learn_again(example)

    def _mark(self, id: int) -> None:
        if len(self.examples) % self.spacing == 0:  # the same places whether or not it was saved meanwhile
            self.marks[id] = self.head.state()

    def _make_second(self) -> None:
        """Where the second state is missing and could be the first, learn up to it again."""
        ids, (first, *later) = list(self.examples), self.marks
        if len(ids) - self.spacing < max(1, self.undo) or set(later) & set(ids[: self.spacing + 1]):
            return
        now = self.head.state()
        self.head.go_to(self.marks[first])
        for id in ids[: self.spacing]:
            self.head.learn_again(self.examples[id])
        second = {ids[self.spacing]: self.head.state()}
        self.marks = {first: self.marks[first], **second, **{mark: self.marks[mark] for mark in later}}
        self.head.go_to(now)

    def _trim(self) -> None:
        """Forget what is older than the last state that lies `undo` answers back."""
        ids = list(self.examples)
        marks = list(self.marks)
        while len(marks) > 1 and len(ids) - ids.index(marks[1]) >= self.undo:
            del self.marks[marks.pop(0)]
        for old in ids[: ids.index(marks[0])]:
            del self.examples[old]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The examples and the first of the states; the others follow from these."""
        if not self.examples:
            return {}
        plain = [
            (id, one.label, one.alike, one.gain, one.doubt, one.person) for id, one in self.examples.items()
        ]
        arrays: dict[str, NDArray[Any]] = {"examples": np.array(plain)}
        for place, one in enumerate(self.examples.values()):
            arrays[f"example.{place}.look"] = one.look.rows
            arrays[f"example.{place}.usual"] = one.usual
            arrays[f"example.{place}.no"] = np.array(one.no, dtype=np.int64)
        state = next(iter(self.marks.values()))
        return arrays | {f"mark.{name}": value for name, value in state.items()}

    def check(self, arrays: Mapping[str, NDArray[Any]], people: int) -> None:
        """Refuse what is not such as `arrays` gives, of answers by so many people."""
        if "examples" not in arrays:
            return
        check_arrays(arrays, {"examples": (range(1, len(arrays) + 1), 6)})
        for place, row in enumerate(arrays["examples"].tolist()):
            name = f"example.{place}"
            check_arrays(arrays, {f"{name}.usual": (range(1, len(self.head.counts) + 1),)}, at_least=0)
            classes = len(arrays[f"{name}.usual"])
            width = row_length(self.head.recent.shape, classes)
            check_arrays(arrays, {f"{name}.look": (range(1, 2 + NEAR), width)}, kind="float32")
            no: dict[str, Shape] = {f"{name}.no": (range(classes + 1),)}
            check_arrays(arrays, no, kind="int64", at_least=0, at_most=classes - 1)
            id, label, *_, person = (int(each) if each.is_integer() else each for each in row)
            wanted = (whole(), whole(classes - 1, OUTSIDE), whole(people - 1))
            check_plain((id, label, person), wanted, name)
        self.head.check(_mark_of(arrays))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of `arrays`."""
        self.examples, self.marks = {}, {}
        if "examples" not in arrays:
            return
        for place, row in enumerate(arrays["examples"].tolist()):
            id, label, alike, gain, doubt, person = row
            look = Neighbourhood(arrays[f"example.{place}.look"], self.head.recent.shape)
            usual = arrays[f"example.{place}.usual"]
            no = tuple(arrays[f"example.{place}.no"].tolist())
            self.examples[int(id)] = LabelledExample(
                look, int(label), alike, usual, gain, doubt, no, int(person)
            )
        self.marks[next(iter(self.examples))] = _mark_of(arrays)


def _mark_of(arrays: Mapping[str, NDArray[Any]]) -> State:
    """The first of the states among the arrays that are saved."""
    return {name.removeprefix("mark."): value for name, value in arrays.items() if name.startswith("mark.")}
