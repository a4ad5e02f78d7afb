"""What may happen to a stream: predict, label, skip, undo, new classes, and time passing.

Everything here runs on the one thread that owns the learner. An input is applied to the learner, put on
record, and only then answered.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from taps.errors import QueryError, TapsError, UnknownClassError
from taps.serve.errors import ConflictError, GoneError, NotFoundError, StoreDownError, UnusableError
from taps.serve.keeper import RETRY, SETTLE, Keeper
from taps.serve.learners import Held
from taps.serve.records import (
    ANSWERED,
    CORRECTED,
    EXPIRED,
    LABELLED,
    OPEN,
    SILENT,
    SKIPPED,
    UNASKED,
    Event,
    Row,
    answer_of,
    plain,
)
from taps.types import Answer, Prediction

NOTHING_SAID: dict[str, Any] = {"answer": None, "no": [], "none": False, "ended_by": None, "ended_at": None}
TOP = 9  # classes shown with a prediction: one for each number key


@dataclass(frozen=True)
class Outcome:
    """What came of a prediction.

    Attributes:
        row: The prediction; its id and its question count for nothing unless it is recorded.
        recorded: Whether it is in the log.
        repeated: Whether it was recorded before, under the same idempotency key.
        hold: Seconds the caller waits for the expert's answer.
    """

    row: Row
    recorded: bool = True
    repeated: bool = False
    hold: float = 0.0


@dataclass(frozen=True)
class Given:
    """What came of an answer, a skip or an undo: the question as it is now, and whether anything changed."""

    row: Row
    changed: bool = True


class Live:
    """One stream.

    Args:
        keeper: Its learner and log.
        helpers: Writes files while the learner computes.
    """

    def __init__(self, keeper: Keeper, helpers: Executor) -> None:
        self.keeper, self.helpers = keeper, helpers
        self.stream, self.store = keeper.stream, keeper.store

    def predict(self, data: bytes, name: str, who: str, key: str | None = None) -> Outcome:
        """Predict one image, and put it on record."""
        learner = self.keeper.learner()
        if self.keeper.trouble:
            return self._unrecorded(data, name)
        try:
            if key is not None and (earlier := self._earlier(key)):
                return self._again(earlier, data, hold=self._hold(learner))
        except StoreDownError as error:
            self.keeper.fail(error)
            return self._unrecorded(data, name)
        seq, writing = self.keeper.seq, self.helpers.submit(self.store.blobs.put, data)
        try:
            prediction = self._step(lambda: learner.predict_one(data, name))
            row = self._row(prediction, learner.classes, name)
            try:
                row = replace(row, image=writing.result())
                event = Event(row.seq, "predict", row.id, None, who, row.at, key, row.image)
                self.keeper.record(event, row, new=True)
            except StoreDownError:
                return Outcome(row, recorded=False)
            except OSError as error:
                self.keeper.fail(error)
                return Outcome(row, recorded=False)
        finally:
            self._release(writing, recorded=self.keeper.seq == seq + 1)
        if row.state == OPEN:
            self._drop_forgotten()
        return Outcome(row, hold=self._hold(learner))

    def label(
        self, id: int, label: Answer | str | int, who: str, key: str | None = None, *, unasked: bool = False
    ) -> Given:
        """Take in an expert's answer. One that follows from the first changes nothing; another corrects it.

        Args:
            id: Of the prediction.
            label: The class, by name or index; or any `Answer`.
            who: Id of the token.
            key: Idempotency key.
            unasked: Whether an image that nobody was asked about may be labelled too.
        """
        learner, row = self.keeper.writable(), self._question(id, unasked=unasked)
        said = label if isinstance(label, Answer) else Answer(label)
        if key is not None and (earlier := self._earlier(key)):
            alone: Answer = self._step(lambda: learner.resolved(said))
            same = (earlier.kind, earlier.prediction) == ("label", id)
            if same and repeats(alone, answer_of(earlier.value)):
                return Given(row, changed=False)
            raise ConflictError("This idempotency key was used for something else; use a new one.")
        if said.no:  # what it is not of adds up
            said = replace(said, no=(*row.no, *said.no))
        answer: Answer = self._step(lambda: learner.resolved(said))
        if row.state in LABELLED and answer.follows_from(Answer(row.answer, tuple(row.no), row.none)):
            return Given(row, changed=False)
        if row.state == SKIPPED:
            raise ConflictError(f"Question {id} was skipped; undo that first.")
        self._step(lambda: learner.learn_one(id, answer))
        state = CORRECTED if row.state in UNASKED else ANSWERED
        now = {"answer": answer.label, "no": list(answer.no), "none": answer.none}
        return self._end(row, "label", state, who, key=key, value=plain(answer), **now)

    def skip(self, id: int, who: str) -> Given:
        """Somebody does not know. The question is over, and goes back to the budget (`Learner.skip`)."""
        learner, row = self.keeper.writable(), self._question(id)
        if row.state == SKIPPED:
            return Given(row, changed=False)
        if row.state != OPEN:
            raise ConflictError(f"Question {id} was answered already; undo the answer instead.")
        self._step(lambda: learner.skip(id))
        return self._end(row, "skip", SKIPPED, who)

    def undo(self, id: int, who: str) -> Given:
        """Take an answer or a skip back; the question, if there was one, is open with a new deadline."""
        learner, row = self.keeper.writable(), self._question(id)
        if row.state == OPEN:
            raise ConflictError(f"Question {id} is open: there is nothing to take back.")
        self._step(lambda: learner.undo(id))
        now, asked = time.time(), row.state != CORRECTED
        changes = {"state": OPEN if asked else SILENT, "deadline": self._deadline(now) if asked else None}
        event = Event(self._next, "undo" if row.state in LABELLED else "reopen", id, None, who, now)
        return self._change(event, row, **changes, **NOTHING_SAID)

    def add_classes(self, names: list[str], who: str) -> list[str]:
        """Make room for new classes; the names of all."""
        learner = self.keeper.writable()
        self._step(lambda: learner.add_class(names))
        self.keeper.record(Event(self._next, "classes", None, list(names), who, time.time()))
        return list(learner.classes)

    def look_again(self, row: Row, data: bytes | None = None) -> Prediction:
        """What it would say of an image now; nothing changes.

        Args:
            row: What it said then.
            data: The image, where it may be kept no longer.
        """
        learner = self.keeper.learner()
        image = self.store.blobs.read(row.image) if data is None else data
        said: Prediction = self._step(lambda: learner.predict_again(row.id, image))
        return said

    def summary(self) -> dict[str, Any]:
        """What the learner says of itself, its classes, and what a person should know."""
        learner = self.keeper.learner()
        found = learner.summary()
        trouble = [self.keeper.trouble] if self.keeper.trouble else []
        found["notes"] = [*found.get("notes", []), *self.keeper.notes, *trouble]
        return {**found, "classes": list(learner.classes), "order": learner.order, "seq": self.keeper.seq}

    def tick(self) -> float:
        """Do what is due; seconds until something may be due again."""
        if self.keeper.trouble:
            self.keeper.learner()  # tries the store again
            return RETRY
        now = time.time()
        with suppress(StoreDownError):
            for id in [id for id, at in self.keeper.open.items() if at is not None and at <= now]:
                self.keeper.writable()
                self._end(self.store.prediction(self.stream.id, id), "expire", EXPIRED, "clock")
        self.keeper.snapshot_if_worth()
        return min([SETTLE, *(max(at - now, 0.01) for at in self.keeper.open.values() if at is not None)])

    @property
    def _next(self) -> int:
        return self.keeper.seq + 1

    def _step(self, act: Callable[[], Any]) -> Any:
        """Let the learner do something; where it fails half-way it is dropped."""
        try:
            return act()
        except QueryError as error:
            raise ConflictError(str(error)) from error
        except UnknownClassError as error:
            route = f"POST /v1/streams/{self.stream.name}/classes"
            raise UnusableError(f"{error.args[0]}; if it is a new one, add it with `{route}`.") from error
        except TapsError:
            raise  # refused before anything was changed
        except BaseException:
            self.keeper.drop()
            raise

    def _unrecorded(self, data: bytes, name: str) -> Outcome:
        """A prediction from the state as it stands. It leaves no trace, and nobody is asked about it."""
        learner = self.keeper.learner()
        prediction = self._step(lambda: learner.peek(data, name))
        return Outcome(self._row(prediction, learner.classes, name), recorded=False)

    def _earlier(self, key: str) -> Event | None:
        return self.store.by_key(self.stream.id, key)

    def _hold(self, learner: Held) -> float:
        return self.stream.hold if learner.order == "ask_first" else 0.0

    def _again(self, earlier: Event, data: bytes, hold: float) -> Outcome:
        if earlier.kind != "predict" or earlier.prediction is None:
            raise ConflictError("This idempotency key was used for something else; use a new one.")
        row = self.store.prediction(self.stream.id, earlier.prediction)
        if row.image != hashlib.sha256(data).hexdigest():
            raise ConflictError("This idempotency key was used for another image; use a new one.")
        return Outcome(row, repeated=True, hold=hold)

    def _release(self, writing: Future[str], *, recorded: bool) -> None:
        """Leave the image to the record; one that is on no record is removed."""
        with suppress(OSError, StoreDownError):
            image = writing.result()
            self.store.blobs.release(image)
            if not recorded:
                self.store.blobs.remove(image, self.store.needs)

    def _row(self, prediction: Prediction, classes: Sequence[str], name: str) -> Row:
        best = (-prediction.probs).argsort(kind="stable")[:TOP].tolist()
        at = time.time()
        return Row(
            id=prediction.id,
            seq=self._next,
            at=at,
            image="",
            kept=True,
            name=name,
            index=prediction.index,
            label=prediction.label,
            top=[[classes[index], float(prediction.probs[index])] for index in best],
            entropy=prediction.entropy,
            threshold=_finite(prediction.threshold),
            seconds=prediction.seconds,
            state=OPEN if prediction.ask else SILENT,
            question=prediction.question,
            deadline=self._deadline(at) if prediction.ask else None,
            score=_finite(prediction.score),
        )

    def _deadline(self, at: float) -> float | None:
        return None if self.stream.deadline is None else at + self.stream.deadline

    def _question(self, id: int, *, unasked: bool = False) -> Row:
        """A question that may be answered, skipped or undone now."""
        row = self.store.prediction(self.stream.id, id)
        if row.state == SILENT and not unasked:
            raise NotFoundError(f"Nobody was asked about prediction {id}.")
        if row.state == OPEN and row.deadline is not None and row.deadline <= time.time():
            row = self._end(row, "expire", EXPIRED, "clock").row
        if row.state == EXPIRED:
            raise GoneError(f"Question {id} expired before it was answered.")
        return row

    def _drop_forgotten(self) -> None:
        """Close the questions the learner no longer holds: it keeps the newest ones."""
        forgotten = self.keeper.open.keys() - self.keeper.learner().pending
        with suppress(StoreDownError):
            for id in sorted(forgotten):
                self._end(self.store.prediction(self.stream.id, id), "expire", EXPIRED, "learner")

    def _end(
        self, row: Row, kind: str, state: str, who: str, *, key: str | None = None, value: Any = None,
        **changes: Any,
    ) -> Given:  # fmt: skip
        """Put the end of a question on record."""
        now = time.time()
        event = Event(self._next, kind, row.id, value, who, now, key)
        return self._change(event, row, state=state, ended_by=who, ended_at=now, **changes)

    def _change(self, event: Event, row: Row, **changes: Any) -> Given:
        after = replace(row, **changes)
        self.keeper.record(event, after, **changes)
        return Given(after)


def repeats(answer: Answer, earlier: Answer) -> bool:
    """Whether an answer is the one on record, sent again: that one may say more where they added up.

    >>> repeats(Answer(no=("cat",)), Answer(no=("cat", "dog"))), repeats(Answer("cat"), Answer("dog"))
    (True, False)
    """
    part = bool(answer.no) and set(answer.no) <= set(earlier.no)
    return answer.expert == earlier.expert and (part or answer.follows_from(earlier))


def _finite(value: float) -> float | None:
    """A database and JSON hold no infinity."""
    return value if math.isfinite(value) else None
