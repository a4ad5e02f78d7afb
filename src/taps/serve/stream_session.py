"""What may happen to a stream: predict, label, skip, undo, ask, new classes, and time passing.

Everything here runs on the one thread that owns the learner. A request is applied to the learner, put on
record, and only then answered.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from taps.asking.rules import RANDOM_SCORE
from taps.errors import QueryError, TapsError, UnknownClassError
from taps.learner.prepared import Prepared
from taps.plain_names import refuse_alike
from taps.serve.errors import ConflictError, GoneError, NotFoundError, StoreDownError, UnusableError
from taps.serve.learner_log import RETRY, SETTLE, LearnerLog
from taps.serve.learners import RemoteLearner
from taps.serve.records import Event
from taps.streams import log as events
from taps.streams.row import LABELLED, OPEN, UNQUERIED, Row
from taps.types import TOP, Answer, FloatArray, Prediction

COMPARED = 1000  # images that a question is chosen from, at most
USED = "This idempotency key was used for something else; use a new one."


@dataclass(frozen=True)
class Outcome:
    """The result of a prediction.

    Attributes:
        row: The prediction; its id and its question mean nothing unless it is recorded.
        recorded: Whether it is in the log.
        repeated: Whether it was recorded before, under the same idempotency key.
        hold: Seconds the caller waits for the annotator's answer.
    """

    row: Row
    recorded: bool = True
    repeated: bool = False
    hold: float = 0.0


@dataclass(frozen=True)
class AnswerResult:
    """The result of an answer, a skip or an undo: the question as it is now, and whether it changed."""

    row: Row
    changed: bool = True


class StreamSession:
    """One stream; `helpers` write files while the learner computes."""

    def __init__(self, learner_log: LearnerLog, helpers: Executor) -> None:
        self.learner_log, self.helpers = learner_log, helpers
        self.stream, self.store = learner_log.stream, learner_log.store

    def predict(
        self, data: bytes, name: str, who: str, key: str | None = None, known: Prepared | None = None
    ) -> Outcome:
        """Predict one image, which may be `known` (prepared before), and put it on record."""
        learner = self.learner_log.learner()
        if self.learner_log.trouble:
            return self._unrecorded(data, name)
        try:
            if key is not None and (earlier := self.store.by_key(self.stream.id, key)):
                return self._again(earlier, data, hold=self._hold(learner))
        except StoreDownError as error:
            self.learner_log.fail(error)
            return self._unrecorded(data, name)
        seq = self.learner_log.seq
        writing = self.helpers.submit(self.store.blobs.put, data)
        try:
            prediction = self.step(lambda: learner.predict_one(data, name, known=known))
            row = self._row(prediction, learner.classes, name)
            try:
                row = replace(row, image=writing.result())
                event = Event(row.seq, events.PREDICTED, row.id, None, who, row.at, key, row.image)
                self.learner_log.record(event, row, new=True)
            except StoreDownError:
                return Outcome(row, recorded=False)
            except OSError as error:
                self.learner_log.fail(error)
                return Outcome(row, recorded=False)
        finally:
            self._release(writing, recorded=self.learner_log.seq == seq + 1)
        if row.state == OPEN:
            self._drop_forgotten()
        return Outcome(row, hold=self._hold(learner))

    def label(
        self, id: int, label: Answer | str | int, who: str, key: str | None = None, *, unasked: bool = False
    ) -> AnswerResult:
        """Record an answer, or a class by name or index; `unasked` if nobody may have been asked.

        An answer that follows from the recorded one changes nothing; another corrects it.
        """
        learner, row = self.learner_log.writable(), self._question(id, unasked=unasked)
        given = Answer.of(label)
        if key is not None and (earlier := self.store.by_key(self.stream.id, key)):
            alone: Answer = self.step(lambda: learner.normalise_answer(given))
            same = earlier.kind in (events.ANSWERED, events.REPEATED) and earlier.prediction == id
            if same and repeats(alone, Answer.from_json(earlier.value)):
                return AnswerResult(row, changed=False)
            raise ConflictError(USED)
        if given.no:  # "not this class" adds up
            given = replace(given, no=(*row.no, *given.no))
        answer: Answer = self.step(lambda: learner.normalise_answer(given))
        if row.state in LABELLED and answer.follows_from(row.said):
            if key is not None:  # sent again after another answer, it must not replace that one
                event = Event(self._next, events.REPEATED, id, answer.to_json(), who, time.time(), key)
                self.learner_log.record(event, row)
            return AnswerResult(row, changed=False)
        if row.state == events.SKIPPED:
            raise ConflictError(f"Question {id} was skipped; undo that first.")
        self.step(lambda: learner.learn_one(id, answer))
        return self._end(row, events.ANSWERED, who, key, answer)

    def skip(self, id: int, who: str, key: str | None = None) -> AnswerResult:
        """Close a question without an answer; it goes back to the budget (`Learner.skip`)."""
        learner = self.learner_log.writable()
        if self._done(key, events.SKIPPED, id):
            return AnswerResult(self.store.prediction(self.stream.id, id), changed=False)
        row = self._question(id)
        if row.state == events.SKIPPED:
            return AnswerResult(row, changed=False)
        if row.state != OPEN:
            raise ConflictError(f"Question {id} was answered already; undo the answer instead.")
        self.step(lambda: learner.skip(id))
        return self._end(row, events.SKIPPED, who, key)

    def undo(self, id: int, who: str, key: str | None = None) -> AnswerResult:
        """Take an answer or a skip back; the question, if there was one, is open again."""
        learner = self.learner_log.writable()
        if self._done(key, events.UNDONE, id):
            return AnswerResult(self.store.prediction(self.stream.id, id), changed=False)
        row = self._question(id)
        if row.state == OPEN:
            raise ConflictError(f"Question {id} is open: there is nothing to take back.")
        self.step(lambda: learner.undo(id))
        now = time.time()
        event = Event(self._next, events.UNDONE, id, None, who, now, key)
        return self._change(event, row, deadline=self._deadline(now) if row.asked else None)

    def add_classes(self, names: list[str], who: str, key: str | None = None) -> list[str]:
        """Add classes; the names of all."""
        learner = self.learner_log.writable()
        if not self._done(key, events.CLASSES_ADDED, None, list(names)):
            refuse_alike(names, learner.classes)
            self.step(lambda: learner.add_class(names))
            event = Event(self._next, events.CLASSES_ADDED, None, list(names), who, time.time(), key)
            self.learner_log.record(event)
        return list(learner.classes)

    def ask(self, id: int, who: str, *, drawn: bool = False) -> AnswerResult:
        """Ask about an image that was not asked about when it came; `drawn` if it was drawn at random."""
        learner, row = self.learner_log.writable(), self.store.prediction(self.stream.id, id)
        if row.state != UNQUERIED:
            raise ConflictError(f"Prediction {id} was asked about, or has a label; choose another one.")
        value, now = events.DRAWN if drawn else None, time.time()
        self.step(lambda: learner.ask(id, drawn))
        score = RANDOM_SCORE if drawn else row.score
        event = Event(self._next, events.ASKED, id, value, who, now)
        return self._change(event, row, state=OPEN, deadline=self._deadline(now), score=score)

    def ask_next(self, who: str, *, drawn: bool, without: Container[int] = ()) -> AnswerResult | None:
        """Ask about the image with the highest acquisition score, or one at random; None where none is left.

        Nobody is asked about the images `without`. Of very many images a random part is compared: answers
        wait meanwhile.
        """
        learner, chance = self.learner_log.writable(), Random(f"{self.stream.id} {self._next}")
        rows = self.store.predictions(self.stream.id, states=[UNQUERIED])
        ids = [row.id for row in rows if row.id not in without]
        some = ids if len(ids) <= COMPARED else chance.sample(ids, COMPARED)
        scores = self.step(lambda: learner.wanted_kept(some))
        if not scores:
            return None
        id = chance.choice(sorted(scores)) if drawn else max(scores, key=scores.__getitem__)
        return self.ask(id, who, drawn=drawn)

    def repredict_kept(self, ids: Sequence[int]) -> dict[int, list[list[Any]]]:
        """The likeliest classes now, by id, of images whose features the learner keeps."""
        learner = self.learner_log.learner()
        found = self.step(lambda: learner.repredict_kept(ids))
        return {id: likeliest(probs, learner.classes) for id, probs in found.items()}

    def repredict(self, row: Row, data: bytes | None = None) -> Prediction:
        """The prediction of an image by the learner as it is now; `data` where it may no longer be kept."""
        learner = self.learner_log.learner()
        image = self.store.blobs.read(row.image) if data is None else data
        prediction: Prediction = self.step(lambda: learner.repredict(row.id, image))
        return prediction

    def summary(self) -> dict[str, Any]:
        """The learner's summary, its classes, and warnings."""
        learner = self.learner_log.learner()
        found = learner.summary()
        trouble = [self.learner_log.trouble] if self.learner_log.trouble else []
        notes = [*found.get("notes", []), *self.learner_log.notes, *trouble]
        known = {"classes": list(learner.classes), "order": learner.order, "seq": self.learner_log.seq}
        return {**found, "notes": notes, **known}

    def tick(self) -> float:
        """Do what is due; seconds until something may be due again."""
        if self.learner_log.trouble:
            self.learner_log.learner()  # tries the store again
            return RETRY
        now = time.time()
        with suppress(StoreDownError):
            for id in [id for id, at in self.learner_log.open.items() if at is not None and at <= now]:
                self.learner_log.writable()
                self._end(self.store.prediction(self.stream.id, id), events.EXPIRED, "clock")
        self.learner_log.snapshot_if_worth()
        return min(
            [SETTLE, *(max(at - now, 0.01) for at in self.learner_log.open.values() if at is not None)]
        )

    @property
    def _next(self) -> int:
        return self.learner_log.seq + 1

    def step(self, act: Callable[[], Any]) -> Any:
        """Let the learner do something; where it fails half-way it is dropped, and restored from the log."""
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
            self.learner_log.drop()
            raise

    def _unrecorded(self, data: bytes, name: str) -> Outcome:
        """A prediction that changes nothing, and about which nobody is asked."""
        learner = self.learner_log.learner()
        prediction = self.step(lambda: learner.predict_one(data, name, update=False))
        return Outcome(self._row(prediction, learner.classes, name), recorded=False)

    def _done(self, key: str | None, kind: str, id: int | None, value: Any = None) -> bool:
        """Whether this was recorded before under the same key; raises where something else was."""
        earlier = None if key is None else self.store.by_key(self.stream.id, key)
        if earlier is None:
            return False
        if earlier.kind != kind or (earlier.prediction, earlier.value) != (id, value):
            raise ConflictError(USED)
        return True

    def _hold(self, learner: RemoteLearner) -> float:
        return self.stream.hold if learner.order == "ask_first" else 0.0

    def _again(self, earlier: Event, data: bytes, hold: float) -> Outcome:
        if earlier.kind != events.PREDICTED or earlier.prediction is None:
            raise ConflictError(USED)
        row = self.store.prediction(self.stream.id, earlier.prediction)
        if row.image != hashlib.sha256(data).hexdigest():
            raise ConflictError("This idempotency key was used for another image; use a new one.")
        return Outcome(row, repeated=True, hold=hold)

    def _release(self, writing: Future[str], *, recorded: bool) -> None:
        """Release the image; remove one that was not recorded."""
        with suppress(OSError, StoreDownError):
            image = writing.result()
            self.store.blobs.release(image)
            if not recorded:
                self.store.blobs.remove(image, self.store.needs)

    def _row(self, prediction: Prediction, classes: Sequence[str], name: str) -> Row:
        at = time.time()
        deadline = self._deadline(at) if prediction.ask else None
        known = {"seq": self._next, "at": at, "kept": True, "name": name, "deadline": deadline}
        return Row.of(prediction.to_json(classes), **known)

    def _deadline(self, at: float) -> float | None:
        return None if self.stream.deadline is None else at + self.stream.deadline

    def _question(self, id: int, *, unasked: bool = False) -> Row:
        """The row of a question that may be answered, skipped or undone now."""
        row = self.store.prediction(self.stream.id, id)
        if row.state == UNQUERIED and not unasked:
            raise NotFoundError(f"Nobody was asked about prediction {id}.")
        if row.state == OPEN and row.deadline is not None and row.deadline <= time.time():
            row = self._end(row, events.EXPIRED, "clock").row
        if row.state == events.EXPIRED:
            raise GoneError(f"Question {id} expired before it was answered.")
        return row

    def _drop_forgotten(self) -> None:
        """Close the questions that the learner no longer keeps: it keeps the newest ones."""
        forgotten = self.learner_log.open.keys() - self.learner_log.learner().pending
        with suppress(StoreDownError):
            for id in sorted(forgotten):
                self._end(self.store.prediction(self.stream.id, id), events.EXPIRED, "learner")

    def _end(
        self, row: Row, kind: str, who: str, key: str | None = None, answer: Answer | None = None
    ) -> AnswerResult:
        """Put the end of a question on record."""
        now, value = time.time(), None if answer is None else answer.to_json()
        event = Event(self._next, kind, row.id, value, who, now, key)
        return self._change(event, row, answer, ended_by=who, ended_at=now)

    def _change(self, event: Event, row: Row, answer: Answer | None = None, **more: Any) -> AnswerResult:
        changes = {**row.changes(event.kind, answer or Answer()), **more}
        after = replace(row, **changes)
        self.learner_log.record(event, after, **changes)
        return AnswerResult(after)


def likeliest(probs: FloatArray, classes: Sequence[str]) -> list[list[Any]]:
    """The likeliest classes and their probabilities, as `Prediction.to_json` has them."""
    best = (-probs).argsort(kind="stable")[:TOP].tolist()
    return [[classes[index], float(probs[index])] for index in best]


def repeats(answer: Answer, earlier: Answer) -> bool:
    """Whether an answer is the recorded one, sent again; that one may hold more, where they added up.

    >>> repeats(Answer(no=("cat",)), Answer(no=("cat", "dog"))), repeats(Answer("cat"), Answer("dog"))
    (True, False)
    """
    part = bool(answer.no) and set(answer.no) <= set(earlier.no)
    return answer.annotator == earlier.annotator and (part or answer.follows_from(earlier))
