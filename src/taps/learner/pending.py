"""Images that wait for a label and answers that can be undone: a bounded number, however long the stream."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from taps.errors import QueryError
from taps.learning.memory import ReplayItem, on_host, replay_item_from, replay_item_tensors, views_bytes
from taps.saved import check_plain, flag, maybe, whole
from taps.types import Answer

PENDING = 1000  # questions that may wait for an answer at one time
PENDING_BYTES = 1 << 30  # of their views, for methods that need them: about 110 questions of 64 views
RECENT_BYTES = 1 << 27  # of the views of unqueried images

Items = OrderedDict[int, ReplayItem]


@dataclass(frozen=True)
class AnswerRecord:
    """An answer that can still be undone."""

    answer: Answer  # classes by index
    item: ReplayItem
    asked: bool = True  # whether a question was open
    skipped: bool | None = None  # of a skipped question: whether the budget got it back; None for others

    @property
    def views(self) -> Tensor | None:
        return self.item.views


@dataclass(eq=False)
class PendingQueries:
    """What is kept of the last images, by id."""

    most_recent: int  # how many unqueried images can still be labelled; the newest are kept
    undo: int  # how many answers can be undone
    pending: Items = field(default_factory=OrderedDict)
    recent: Items = field(default_factory=OrderedDict)
    given: OrderedDict[int, AnswerRecord] = field(default_factory=OrderedDict)
    done: OrderedDict[int, None] = field(default_factory=OrderedDict)  # the last images that were answered
    skipped: OrderedDict[int, bool] = field(default_factory=OrderedDict)  # whether the budget got it back
    yes_no: set[int] = field(default_factory=set)  # images with a yes/no question

    def kind(self, id: int) -> str:
        """The kind of question about an image."""
        return "yes_no" if id in self.yes_no else "class"

    def keep(self, id: int, item: ReplayItem, asked: bool) -> None:
        """Keep an image until its label comes; the oldest are dropped, so that memory does not grow."""
        self.yes_no &= {id} | self.pending.keys() | self.given.keys() | self.skipped.keys()
        if asked:
            self.pending[id] = on_host(item)
            drop_oldest(self.pending, PENDING, PENDING_BYTES, least=1)
        elif self.most_recent:
            self.recent[id] = on_host(item)
            drop_oldest(self.recent, self.most_recent, RECENT_BYTES, least=1)
            for gone in [id for id in self.skipped if id not in self.recent]:
                del self.skipped[gone]

    def kept(self, id: int) -> ReplayItem | None:
        """The item of an image that has no answer, if it is kept."""
        return self.pending.get(id) or self.recent.get(id)

    def item(self, id: int) -> ReplayItem:
        """The item of an image that has no answer.

        Raises:
            QueryError: It was answered before, or is not kept.
        """
        if (item := self.kept(id)) is not None:
            return item
        if id in self.done:
            raise QueryError(f"Sample {id} was answered before; an answer is taken once.")
        others = f" and the last {self.most_recent} others (setting `recent`)" if self.most_recent else ""
        raise QueryError(
            f"Sample {id} was not asked about (or waits no longer); "
            f"answer only predictions whose `ask` is true{others}."
        )

    def answer(self, id: int, answer: Answer) -> None:
        """Record an answer about an image."""
        asked = id in self.pending
        item = self.pending.pop(id) if asked else self.recent.pop(id)
        self.given[id] = AnswerRecord(answer, item, asked, self.skipped.pop(id, None))
        self.done[id] = None
        while len(self.done) > PENDING:
            self.done.popitem(last=False)

    def ask(self, id: int) -> None:
        """Open a question about an unqueried image."""
        self.keep(id, self.recent.pop(id), asked=True)

    def skip(self, id: int, given_back: bool) -> None:
        """Close a question without an answer; the image becomes an unqueried one."""
        self.keep(id, self.pending.pop(id), asked=False)
        if id in self.recent:
            self.skipped[id] = given_back

    def reopen(self, id: int) -> bool:
        """Open a skipped question again; whether the budget had got it back."""
        self.keep(id, self.recent.pop(id), asked=True)
        return self.skipped.pop(id)

    def shorten(self, forgotten: list[int]) -> None:
        """Drop the answers that the method no longer remembers, and the oldest."""
        for old in forgotten:
            del self.given[old]
        drop_oldest(self.given, self.undo, PENDING_BYTES)

    def answered(self, id: int) -> AnswerRecord:
        """The answer for an image, where it can still be undone."""
        if id in self.given:
            return self.given[id]
        if id in self.done:
            raise QueryError(
                f"The answer for sample {id} is not among the last {len(self.given)} that are remembered."
            )
        raise QueryError(f"Sample {id} has no answer that could be taken back.")

    def take_back(self, id: int) -> None:
        """Undo an answer; the image may be given another."""
        given = self.given.pop(id)
        self.done.pop(id, None)
        self.keep(id, given.item, given.asked)
        if given.skipped is not None and id in self.recent:
            self.skipped[id] = given.skipped

    def tensors(self) -> dict[str, Tensor]:
        """The tensors to save, by name."""
        answered = {id: given.item for id, given in self.given.items()}
        named = {"pending": self.pending, "recent": self.recent, "answers": answered}
        return {
            name: tensor
            for part, items in named.items()
            for id, item in items.items()
            for name, tensor in replay_item_tensors(f"{part}.{id}", item)
        }

    def values(self) -> dict[str, Any]:
        """Everything else to save, as plain values."""
        return {
            "pending": list(self.pending),
            "recent": list(self.recent),
            "done": list(self.done),
            "skipped": [[id, back] for id, back in self.skipped.items()],
            "yes_no": sorted(self.yes_no),
            "answers": [[id, one.answer.to_json(), one.asked, one.skipped] for id, one in self.given.items()],
        }

    def items(self) -> Iterator[ReplayItem]:
        """All that is kept of images."""
        yield from (*self.pending.values(), *self.recent.values(), *(one.item for one in self.given.values()))

    def restored(
        self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], device: Any
    ) -> PendingQueries:
        """A copy in a saved state; pixels go to the model's device, views stay on the host."""
        seen = whole(values["seen"] - 1)
        ids = {name: [seen] for name in ("pending", "recent", "done", "yes_no")}
        rows = {
            "skipped": [(values["recent"].__contains__, flag)],
            "answers": [(seen, {}, flag, maybe(flag))],
        }
        check_plain(values, ids | rows, "learner")
        kept = {
            name: value.cpu() if name.endswith(".views") else value.to(device)
            for name, value in tensors.items()
            if name.startswith(("pending.", "recent.", "answers."))
        }
        other = PendingQueries(self.most_recent, self.undo)
        for part, items in (("pending", other.pending), ("recent", other.recent)):
            items.update((id, replay_item_from(f"{part}.{id}", kept)) for id in values[part])
        for id, answer, *asked in values["answers"]:
            item = replay_item_from(f"answers.{id}", kept)
            other.given[id] = AnswerRecord(Answer.from_json(answer), item, *asked)
        other.skipped.update((id, back) for id, back in values["skipped"])
        other.yes_no.update(values["yes_no"])
        other.done.update((id, None) for id in values["done"])
        return other


def drop_oldest(kept: OrderedDict[int, Any], most: int, most_bytes: int, least: int = 0) -> None:
    """Drop the oldest while there are too many, or more than `least` whose views take too much memory."""
    held = sum(map(views_bytes, kept.values()))
    while len(kept) > most or (held > most_bytes and len(kept) > least):
        held -= views_bytes(kept.popitem(last=False)[1])
