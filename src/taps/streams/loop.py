"""The loop: predict, commit the prediction, ask, learn. A label is read after its prediction is committed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import FrameType
from typing import Any, Generic, TypeVar

from taps.errors import DataError, ImageError, QueryError
from taps.learner import Learner
from taps.learner.pending import PENDING
from taps.learner.prepared import ViewedImage
from taps.model.images.prefetch import prefetch
from taps.streams import score
from taps.streams.annotators import Annotator, GroundTruth, Reply, corrections, is_repeatable, late_answers
from taps.streams.log import ANSWERED, PREDICTED, UNDO_FAILED, UNDONE, UNREADABLE, apply, kind_of
from taps.streams.record import Record
from taps.streams.score import ImageScore, RunningScore, StreamStep
from taps.streams.sequence import Images, Stream
from taps.types import Answer, Prediction, Query

Seen = tuple[Any, ViewedImage | None]
"""What a stream gives of an image, and its views where they were made beforehand."""


class Interrupt:
    """While it is entered, the first Ctrl-C only sets `wanted`; a second one stops at once.

    Attributes:
        wanted: Whether somebody pressed Ctrl-C.
        at_once: Whether the first one stops at once, too: a person is being asked.
    """

    def __init__(self) -> None:
        self.wanted = self.at_once = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        # Where another handler is at work, as in worker processes, that one decides; so it does in threads.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):
                self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.wanted or self.at_once:
            raise KeyboardInterrupt
        self.wanted = True


S = TypeVar("S", bound=Images)


@dataclass
class Session(Generic[S]):
    """One learner on one stream, and the annotator it asks.

    `predict` and `learn` are the two halves of a step; `steps` is the loop over them.

    Attributes:
        learner: Predicts and learns.
        stream: The images and their labels.
        record: The files of the run; `NO_RECORD` for none.
        running: The counts so far.
        digest: Gives the digest of the file at a place, to be recorded with its prediction.
        wrap: Makes the annotator from one who knows the labels: noisy, late, a person instead, or nobody.
        positions: Place in the stream of each image with an open question, by the learner's id.
        last_asked: Place of the last question; −1 before the first.
        denied: Id of the last image where the answer was that it is not of the predicted class.
    """

    learner: Learner
    stream: S
    record: Record
    running: RunningScore
    wrap: Callable[[Annotator], Annotator | None] = lambda annotator: annotator
    digest: Callable[[int], str] | None = None
    positions: dict[int, int] = field(default_factory=dict)
    last_asked: int = -1
    denied: int | None = None

    def __post_init__(self) -> None:
        self.annotator = self.wrap(GroundTruth(self._truth))
        self.interrupt = Interrupt()
        self._ask_again()

    def _truth(self, id: int) -> Reply | None:
        return score.truth(self.learner, self.stream.label(self.positions[id]))

    def predict(self, t: int, path: str, image: Any) -> Prediction:
        """Predict one image and commit the prediction to the record."""
        known = {} if self.digest is None else {"image": self.digest(t)}
        began = time.perf_counter()
        prediction = self.learner.predict_one(image)
        self.running.method_s += time.perf_counter() - began
        self.record.commit(t, path, prediction, self.learner.classes, **known)
        self.record.keep(self.learner, prediction.id)
        if prediction.ask:
            self.running.asked += 1
            self.positions[prediction.id] = t
            if len(self.positions) > PENDING:  # the learner has dropped the oldest, too
                del self.positions[min(self.positions)]
        return prediction

    def learn(self, id: int, answer: Reply) -> int | None:
        """Learn from an annotator's answer, now or later; its index, where it names a class."""
        given = Answer.of(answer)
        kind, began = kind_of(given), time.perf_counter()
        apply(self.learner, kind, id, given)
        self.running.method_s += time.perf_counter() - began
        self.running.answered += kind == ANSWERED
        values = {} if given.unknown else given.named(self.learner.classes).to_json()
        self.record.event(kind, id=id, t=self.positions.pop(id, None), **values)
        return None if given.label is None else self.learner.class_index(given.label)

    def ask(self, t: int, prediction: Prediction) -> int | None:
        """Put a question to the annotator and learn from the answer, if it comes at once."""
        if self.annotator is None:
            return None
        query = score.query_about(prediction, self.stream.path(t))
        self.interrupt.at_once = not is_repeatable(self.annotator)
        try:
            answer = self.annotator.answer(query)
        finally:
            self.interrupt.at_once = False
        for earlier, instead in corrections(self.annotator):
            self.correct(earlier, instead)
        self.last_asked = t
        if answer is None:
            return None
        index = self.learn(prediction.id, answer)
        self._note_denial(prediction, answer)
        return index

    def _note_denial(self, prediction: Prediction, answer: Reply) -> None:
        self.denied = prediction.id if score.denies(self.learner, prediction, answer) else None

    def correct(self, query: Query, answer: Reply) -> None:
        """Replace the answer to the last question, also in the counts and in the row."""
        prediction, t = query.prediction, self.last_asked
        held = self.learner.answered
        try:
            before = apply(self.learner, UNDONE, query.id)
        except QueryError as error:  # its image has left the memory
            self.record.event(UNDO_FAILED, id=query.id, t=t, error=str(error))
            return
        self.positions[query.id] = t
        old = None if before is None else self.learner.class_index(before)
        self.running.answered -= held - self.learner.answered
        self.record.event(UNDONE, id=query.id, t=t, label=before)
        self.counted(t, prediction, old).add_to(self.running, -1)
        new = self.learn(prediction.id, answer)
        self._note_denial(prediction, answer)
        counted = self.counted(t, prediction, new)
        counted.add_to(self.running)
        phase = self.stream.phase(t)
        self.record.replace_row(t, query.path, prediction, counted, self.learner.classes, phase)

    def counted(self, t: int, prediction: Prediction, answer: int | None) -> ImageScore:
        """What an image counts as, with the answer that was given at once, if one was."""
        label, denied = self.stream.label(t), prediction.id == self.denied
        return score.score_image(self.learner, prediction, label, answer, denied=denied)

    def take_late_answers(self) -> int:
        """Learn from answers to earlier questions that have arrived; how many."""
        late = [] if self.annotator is None else late_answers(self.annotator, self.learner.seen)
        for id, answer in late:
            self.learn(id, answer)
        return len(late)

    def _ask_again(self) -> None:
        """After a restart, ask again what was waiting for a late answer."""
        if not self.learner.pending or not hasattr(self.annotator, "due"):
            return
        events = {e["id"]: e for e in self.record.events() if e["event"] == PREDICTED}
        for id in filter(events.__contains__, self.learner.pending):
            t = self.positions[id] = events[id]["t"]
            yes_no = events[id]["index"] if events[id].get("question") == "yes_no" else None
            self.annotator.answer(Query(id, self.stream.path(t), None, yes_no))  # type: ignore[union-attr, arg-type]


def steps(
    session: Session[S],
    places: Iterable[int],
    *,
    stop: Callable[[], bool] = lambda: False,
    prefetched: int = 0,
) -> Iterator[StreamStep]:
    """The loop: what came of the image at each of these places, when its answer is learned and recorded."""
    record, running = session.record, session.running
    for t, look in _images(session, places, prefetched):
        if stop():
            return
        began = time.perf_counter()
        asked_before = running.asked
        step = _one_image(session, t, look)
        late = session.take_late_answers()
        running.position = t + 1
        # A person's answer is on the disk before the next question.
        if (late or running.asked > asked_before) and not is_repeatable(session.annotator):
            record.checkpoint(session.learner, running)
        else:
            record.checkpoint_if_due(session.learner, running)
        running.wall_s += time.perf_counter() - began
        yield step


def follow(
    session: Session[Stream],
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[StreamStep, RunningScore], None] = lambda step, running: None,
    prefetched: int = 0,
) -> bool:
    """Go through the stream from the position of `session.running`; whether its end was reached.

    Ctrl-C is raised after the current image, when all is saved; while a person is asked it is raised at once,
    and the question is asked again after a restart.

    Args:
        session: What to run.
        stop: Called before every image; the run is saved and left when it returns True.
        progress: Called after every image.
        prefetched: Images to decode beforehand, on a CPU with their views; 0 where times are measured.
    """
    record, running, stream = session.record, session.running, session.stream
    with session.interrupt as interrupt:
        places = range(running.position, len(stream))
        for step in steps(session, places, stop=lambda: stop() or interrupt.wanted, prefetched=prefetched):
            progress(step, running)
        if running.position > record.position or record.saved is None:
            record.checkpoint(session.learner, running)
        if interrupt.wanted:
            raise KeyboardInterrupt
    return running.position >= len(stream)


def _images(
    session: Session[S], places: Iterable[int], prefetched: int
) -> Iterator[tuple[int, Callable[[], Seen]]]:
    """Each place in the stream, and a function that gives its image."""
    stream, learner = session.stream, session.learner
    if not prefetched:
        for t in places:
            yield t, lambda t=t: (stream.image(t), None)  # type: ignore[misc]
        return
    numbers = count(learner.seen)
    viewed = learner.clip.device.type == "cpu" and stream.look is None

    def ahead(t: int) -> Seen:
        pixels = stream.image(t)  # where it cannot be read, no number is used up
        return pixels, learner.view_one(pixels, next(numbers)) if viewed else None

    places = list(places)
    for t, future in zip(places, prefetch(places, ahead, threads=1, depth=prefetched), strict=True):
        yield t, future.result


def _one_image(session: Session[S], t: int, look: Callable[[], Seen]) -> StreamStep:
    stream, running, record = session.stream, session.running, session.record
    path = stream.path(t)
    began = time.perf_counter()
    try:
        pixels, viewed = look()
        running.decode_s += time.perf_counter() - began
        prediction = session.predict(t, path, pixels if viewed is None else viewed)
    except (ImageError, DataError) as error:  # not an image, or no file that can be read
        running.broken += 1
        record.event(UNREADABLE, t=t, path=path, error=str(error))
        return StreamStep(t, path, error=str(error))
    answer = session.ask(t, prediction) if prediction.ask else None
    counted = session.counted(t, prediction, answer)
    counted.add_to(running)
    record.row(t, path, prediction, counted, session.learner.classes, stream.phase(t))
    return StreamStep.of(t, path, pixels, prediction, counted, answer, session.learner.classes)
