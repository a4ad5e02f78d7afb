"""Which images may be labelled, and which answers can be taken back: bounded, however long the stream."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from taps.adapt.memory import ReplayItem, on_host, replay_item_from, replay_item_tensors, views_bytes
from taps.errors import QueryError
from taps.types import Answer

PENDING = 1000  # questions that may wait for an answer at one time
PENDING_BYTES = 1 << 30  # of the views they hold, for methods that need them: about 110 questions of 64 views
RECENT_BYTES = 1 << 27  # of the views of images that nobody asked about

Items = OrderedDict[int, ReplayItem]


@dataclass(frozen=True)
class AnswerRecord:
    """An answer that can still be taken back.

    Attributes:
        answer: What was said, classes by index.
        item: What was kept of the image.
        asked: Whether a question was waiting for it.
        skipped: Where one was that nobody had an answer to: whether it was given back; else None.
    """

    answer: Answer
    item: ReplayItem
    asked: bool = True
    skipped: bool | None = None


class PendingQueries:
    """What is kept of the last images, by their ids.

    Args:
        recent: How many images that nobody asked about can still be labelled; the newest are kept.
        undo: How many answers can be taken back.
    """

    def __init__(self, recent: int, undo: int) -> None:
        self.most_recent, self.undo = recent, undo
        self.pending: Items = OrderedDict()
        self.recent: Items = OrderedDict()
        self.given: OrderedDict[int, AnswerRecord] = OrderedDict()
        self.done: OrderedDict[int, None] = OrderedDict()  # the last images that were answered
        self.skipped: OrderedDict[int, bool] = OrderedDict()  # the last skipped: was the question given back?
        self.yes_no: set[int] = set()  # of those asked about: where the answer is yes or no

    def kind(self, id: int) -> str:
        """Which kind of question was put about an image."""
        return "yes_no" if id in self.yes_no else "class"

    def keep(self, id: int, item: ReplayItem, asked: bool) -> None:
        """Keep an image until its label comes; the oldest go, so that memory does not grow."""
        self.yes_no &= {id} | self.pending.keys() | self.given.keys() | self.skipped.keys()
        if asked:
            self.pending[id] = on_host(item)
            shorten(self.pending, PENDING, PENDING_BYTES, least=1)
        elif self.most_recent:
            self.recent[id] = on_host(item)
            shorten(self.recent, self.most_recent, RECENT_BYTES, least=1)
            for gone in [id for id in self.skipped if id not in self.recent]:
                del self.skipped[gone]

    def kept(self, id: int) -> ReplayItem | None:
        """What was kept of an image that has no answer, if anything was."""
        return self.pending.get(id) or self.recent.get(id)

    def item(self, id: int) -> ReplayItem:
        """What was kept of an image that has no answer."""
        found = self.kept(id)
        if found is None:
            raise QueryError(self._why_not(id))
        return found

    def answer(self, id: int, answer: Answer) -> None:
        """Something was said about an image."""
        asked = id in self.pending
        item = self.pending.pop(id) if asked else self.recent.pop(id)
        self.given[id] = AnswerRecord(answer, item, asked, self.skipped.pop(id, None))
        self.done[id] = None
        while len(self.done) > PENDING:
            self.done.popitem(last=False)

    def ask(self, id: int) -> None:
        """A question is put about an image that nobody was asked about."""
        self.keep(id, self.recent.pop(id), asked=True)

    def skip(self, id: int, given_back: bool) -> None:
        """Nobody knows: the question is over, and the image one of those that nobody asks about."""
        self.keep(id, self.pending.pop(id), asked=False)
        if id in self.recent:
            self.skipped[id] = given_back

    def reopen(self, id: int) -> bool:
        """A question that was skipped is open again; whether it had been given back."""
        self.keep(id, self.recent.pop(id), asked=True)
        return self.skipped.pop(id)

    def shorten(self, forgotten: list[int]) -> None:
        """Let go of answers that the method no longer remembers, and of the oldest."""
        for old in forgotten:
            del self.given[old]
        held = sum(views_bytes(given.item) for given in self.given.values())
        while len(self.given) > self.undo or held > PENDING_BYTES:
            held -= views_bytes(self.given.popitem(last=False)[1].item)

    def answered(self, id: int) -> AnswerRecord:
        """The answer for an image, where it can still be taken back."""
        if id in self.given:
            return self.given[id]
        if id in self.done:
            raise QueryError(
                f"The answer for sample {id} is not among the last {len(self.given)} that are remembered."
            )
        raise QueryError(f"Sample {id} has no answer that could be taken back.")

    def take_back(self, id: int) -> None:
        """Nothing is said about an image any more; it may be given another answer."""
        given = self.given.pop(id)
        self.done.pop(id, None)
        self.keep(id, given.item, given.asked)
        if given.skipped is not None and id in self.recent:
            self.skipped[id] = given.skipped

    def _why_not(self, id: int) -> str:
        if id in self.done:
            return f"Sample {id} was answered before; an answer is taken once."
        others = f" and the last {self.most_recent} others (setting `recent`)" if self.most_recent else ""
        return (
            f"Sample {id} was not asked about (or waits no longer); "
            f"answer only predictions whose `ask` is true{others}."
        )

    def tensors(self) -> dict[str, Tensor]:
        """What is kept of the images."""
        answered = {id: given.item for id, given in self.given.items()}
        named = {"pending": self.pending, "recent": self.recent, "answers": answered}
        return {
            name: tensor
            for part, items in named.items()
            for id, item in items.items()
            for name, tensor in replay_item_tensors(f"{part}.{id}", item)
        }

    def values(self) -> dict[str, Any]:
        """Ids and labels, as plain values."""
        return {
            "pending": list(self.pending),
            "recent": list(self.recent),
            "done": list(self.done),
            "skipped": [[id, back] for id, back in self.skipped.items()],
            "yes_no": sorted(self.yes_no),
            "answers": [[id, one.answer.to_json(), one.asked, one.skipped] for id, one in self.given.items()],
        }

    def restored(
        self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], device: Any
    ) -> PendingQueries:
        """One of the same size in a saved state; pixels go to the model's device, views stay on the host."""
        kept = {
            name: value.cpu() if name.endswith(".views") else value.to(device)
            for name, value in tensors.items()
            if name.startswith(("pending.", "recent.", "answers."))
        }
        other = PendingQueries(self.most_recent, self.undo)
        for part, items in (("pending", other.pending), ("recent", other.recent)):
            items.update((id, replay_item_from(f"{part}.{id}", kept)) for id in values[part])
        for id, said, *asked in values["answers"]:
            item = replay_item_from(f"answers.{id}", kept)
            other.given[id] = AnswerRecord(Answer.from_json(said), item, *asked)
        other.skipped.update((id, back) for id, back in values["skipped"])
        other.yes_no.update(values["yes_no"])
        other.done.update((id, None) for id in values["done"])
        return other


def shorten(items: Items, most: int, most_bytes: int, least: int) -> None:
    """Let the oldest go while there are too many, or their views take too much; `least` may stay anyway."""
    held = sum(map(views_bytes, items.values()))
    while len(items) > most or (held > most_bytes and len(items) > least):
        held -= views_bytes(items.popitem(last=False)[1])
