"""The one loop: predict, commit the prediction, ask, learn; only then may anybody else read the label."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from taps.errors import DataError, ImageError, QueryError
from taps.images.prefetch import prefetch
from taps.learner import Learner
from taps.methods.known import ViewedImage
from taps.oracles import GroundTruth, Oracle, Reply, corrections, is_repeatable, late_answers
from taps.session.interrupt import Interrupt
from taps.session.log import ANSWERED, PREDICTED, UNDO_FAILED, UNDONE, UNREADABLE, apply, kind_of
from taps.session.record import Record, read_events
from taps.session.running_score import ImageScore, RunningScore
from taps.session.step import StreamStep, denies, query_about, row_of, score_image, truth
from taps.session.stream import Stream
from taps.types import Answer, Prediction, Query

Seen = tuple[Any, ViewedImage | None]
"""What a stream gives of an image, and its views where they were made beforehand."""


@dataclass
class Session:
    """One learner on one stream, and the annotator it asks.

    `predict` and `learn` are the two halves of a step, for whoever gets images and answers one by one;
    `follow` goes through a whole stream with them.

    Attributes:
        learner: Predicts and learns.
        stream: What comes.
        record: Where everything is written down.
        running: Counts so far.
        wrap: Makes the annotator from the one who knows the truth: noisy, late, a person instead, or nobody.
        positions: Place in the stream of each image that is being asked about, by the learner's id.
        last_asked: Place of the last question; −1 before the first.
        denied: Id of the last image where the answer was that it is not of the predicted class.
    """

    learner: Learner
    stream: Stream
    record: Record
    running: RunningScore
    wrap: Callable[[Oracle], Oracle | None] = lambda oracle: oracle
    positions: dict[int, int] = field(default_factory=dict)
    last_asked: int = -1
    denied: int | None = None

    def __post_init__(self) -> None:
        self.oracle = self.wrap(GroundTruth(self._truth))
        self.interrupt = Interrupt()
        self._ask_again()

    def _truth(self, id: int) -> Reply | None:
        return truth(self.learner, self.stream.label(self.positions[id]))

    def predict(self, t: int, path: str, image: Any) -> Prediction:
        """Predict one image and put the prediction on record: from here on it cannot be changed."""
        began = time.perf_counter()
        prediction = self.learner.predict_one(image)
        self.running.method_s += time.perf_counter() - began
        self.record.commit(t, path, prediction, self.learner.classes)
        if (row := row_of(self.learner, prediction.id)) is not None:
            self.record.keep(prediction.id, row)
        if prediction.ask:
            self.running.asked += 1
            self.positions[prediction.id] = t
        return prediction

    def learn(self, id: int, answer: Reply) -> int | None:
        """Take an annotator's answer in, now or later; its index, where it names a class."""
        said = Answer.of(answer)
        kind, began = kind_of(said), time.perf_counter()
        apply(self.learner, kind, id, said)
        self.running.method_s += time.perf_counter() - began
        self.running.answered += kind == ANSWERED
        told = {} if said.unknown else said.named(self.learner.classes).to_json()
        self.record.event(kind, id=id, t=self.positions.pop(id, None), **told)
        return None if said.label is None else self.learner.class_index(said.label)

    def ask(self, t: int, prediction: Prediction) -> int | None:
        """Put a question to the annotator and learn from the answer, if it comes at once."""
        if self.oracle is None:
            return None
        query = query_about(prediction, self.stream.path(t))
        if is_repeatable(self.oracle):
            answer = self.oracle.answer(query)
        else:
            with self.interrupt.at_once():
                answer = self.oracle.answer(query)
        for earlier, instead in corrections(self.oracle):
            self.correct(earlier, instead)
        self.last_asked = t
        if answer is None:
            return None
        index = self.learn(prediction.id, answer)
        self._note_denial(prediction, answer)
        return index

    def _note_denial(self, prediction: Prediction, answer: Reply) -> None:
        """Remember a no to the prediction."""
        self.denied = prediction.id if denies(self.learner, prediction, answer) else None

    def correct(self, query: Query, answer: Reply) -> None:
        """Put another answer in the place of that to the last question, in the counts and in the row too."""
        prediction, t = query.prediction, self.last_asked
        held = self.learner.answered
        try:
            before = apply(self.learner, UNDONE, query.id)
        except QueryError as error:  # its image has left the memory meanwhile
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
        cells = counted.cells(self.learner.classes)
        self.record.replace_row(t, query.source, prediction, **cells, phase=self.stream.phase(t))

    def counted(self, t: int, prediction: Prediction, answer: int | None) -> ImageScore:
        """What an image counts as, with the answer that was given at once, if one was."""
        label, denied = self.stream.label(t), prediction.id == self.denied
        return score_image(self.learner, prediction, label, answer, denied=denied)

    def take_late_answers(self) -> int:
        """Learn from answers to earlier questions that have arrived meanwhile; how many."""
        late = [] if self.oracle is None else late_answers(self.oracle, self.learner.seen)
        for id, answer in late:
            self.learn(id, answer)
        return len(late)

    def _ask_again(self) -> None:
        """After a stop: questions that waited for a late answer are put to the annotator again."""
        if not self.learner.pending or not hasattr(self.oracle, "due"):
            return
        said = {e["id"]: e for e in read_events(self.record.folder) if e["event"] == PREDICTED}
        for id in self.learner.pending:
            t = self.positions[id] = said[id]["t"]
            yes_no = said[id]["index"] if said[id].get("question") == "yes_no" else None
            self.oracle.answer(Query(id, self.stream.path(t), None, yes_no))  # type: ignore[union-attr, arg-type]


def follow(
    session: Session,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[StreamStep, RunningScore], None] = lambda step, running: None,
    prefetched: int = 0,
) -> bool:
    """Go through the stream from where the running stands.

    Ctrl-C saves after the image under way and is raised then; while a person is asked it is raised at once,
    and the question will be put again.

    Args:
        session: What to run.
        stop: Asked before every image; the run is saved and left when it says so.
        progress: Told after every image.
        prefetched: Images to decode beforehand, on a CPU with their views; 0 to do so in their turn, where
            times are to be measured.

    Returns:
        Whether the end of the stream was reached.
    """
    learner, record, running, stream = session.learner, session.record, session.running, session.stream
    with session.interrupt as interrupt:
        for t, look in _images(session, prefetched):
            if stop() or interrupt.wanted:
                break
            began = time.perf_counter()
            asked_before = running.asked
            step = _one_image(session, t, look)
            late = session.take_late_answers()
            running.position = t + 1
            # What a person said is on the disk before the next question is put.
            if (late or running.asked > asked_before) and not is_repeatable(session.oracle):
                record.checkpoint(learner, running)
            else:
                record.checkpoint_if_due(learner, running)
            running.wall_s += time.perf_counter() - began
            progress(step, running)
        if running.position > record.position or record.saved is None:
            record.checkpoint(learner, running)
        if interrupt.wanted:
            raise KeyboardInterrupt
    return running.position >= len(stream)


def _images(session: Session, prefetched: int) -> Iterator[tuple[int, Callable[[], Seen]]]:
    """Each place with a function that gives its image."""
    stream, learner = session.stream, session.learner
    places = range(session.running.position, len(stream))
    if not prefetched:
        for t in places:
            yield t, lambda t=t: (stream.image(t), None)  # type: ignore[misc]
        return
    numbers = count(learner.seen)
    viewed = learner.clip.device.type == "cpu" and stream.look is None

    def ahead(t: int) -> Seen:
        pixels = stream.image(t)  # where it cannot be read, no number is used up
        return pixels, learner.view_one(pixels, next(numbers)) if viewed else None

    for t, future in zip(places, prefetch(places, ahead, threads=1, depth=prefetched), strict=True):
        yield t, future.result


def _one_image(session: Session, t: int, look: Callable[[], Seen]) -> StreamStep:
    stream, running, record, learner = session.stream, session.running, session.record, session.learner
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
    record.row(t, path, prediction, **counted.cells(learner.classes), phase=stream.phase(t))
    return StreamStep(t, path, pixels, prediction, counted.label, answer, counted.correct)
