"""The one loop: predict, commit the prediction, ask, learn; only then may anybody else read the label."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taps.errors import DataError, ImageError, QueryError
from taps.images.prefetch import prefetch
from taps.learner import Learner
from taps.oracles import GroundTruth, Oracle, Reply, corrections, is_repeatable, late_answers
from taps.stream.interrupt import Interrupt
from taps.stream.record import Record, read_events
from taps.stream.stream import Stream
from taps.stream.tally import Counted, Tally
from taps.types import OUTSIDE, Answer, PixelArray, Prediction, Query

TOP = 5


@dataclass(frozen=True)
class Streamed:
    """One image of a stream, and what came of it.

    Attributes:
        t: Its place in the stream.
        path: Its path.
        pixels: The decoded image; None where it could not be read.
        prediction: What was predicted; None where it could not be read.
        label: Its class, where the data set or an answer says, `OUTSIDE` for none of them; else None.
        answer: The class an expert answered at once; else None.
        correct: Whether the prediction was right; None where the class is not known.
    """

    t: int
    path: str
    pixels: PixelArray | None = None
    prediction: Prediction | None = None
    label: int | None = None
    answer: int | None = None
    correct: bool | None = None


@dataclass
class Session:
    """One learner on one stream, and the expert it asks.

    `predict` and `learn` are the two halves of a step, for whoever gets images and answers one by one;
    `follow` goes through a whole stream with them.

    Attributes:
        learner: Predicts and learns.
        stream: What comes.
        record: Where everything is written down.
        tally: Counts so far.
        wrap: Makes the expert from the one who knows the truth: spoilt, late, a person instead, or nobody.
        positions: Place in the stream of each image that is being asked about, by the learner's id.
        last_asked: Place of the last question; −1 before the first.
        denied: Id of the last image where the answer was that it is not of the predicted class.
    """

    learner: Learner
    stream: Stream
    record: Record
    tally: Tally
    wrap: Callable[[Oracle], Oracle | None] = lambda oracle: oracle
    positions: dict[int, int] = field(default_factory=dict)
    last_asked: int = -1
    denied: int | None = None

    def __post_init__(self) -> None:
        self.oracle = self.wrap(GroundTruth(lambda id: self._truth(self.positions[id])))
        self.interrupt = Interrupt()
        self._ask_again()

    def _truth(self, t: int) -> Reply | None:
        """What one who knows says of an image. Methods that learn from labels alone cannot be told "none"."""
        label = self.stream.label(t)
        if label != OUTSIDE:
            return label
        return Answer(none=True) if self.learner.method.takes_any_answer else Answer(unknown=True)

    def predict(self, t: int, path: str, pixels: PixelArray) -> Prediction:
        """Predict one image and put the prediction on record: from here on it cannot be changed."""
        began = time.perf_counter()
        prediction = self.learner.predict_one(pixels)
        self.tally.method_s += time.perf_counter() - began
        self.record.commit(t, path, prediction, most_likely(prediction))
        if prediction.ask:
            self.tally.asked += 1
            self.positions[prediction.id] = t
        return prediction

    def learn(self, id: int, answer: Reply) -> int | None:
        """Take an expert's answer in, now or later; its index, where it names a class."""
        index, said = self._said(answer if isinstance(answer, Answer) else Answer(answer))
        began = time.perf_counter()
        if said is None:
            self.learner.skip(id)
        else:
            self.learner.learn_one(id, answer if index is None or isinstance(answer, Answer) else index)
        self.tally.method_s += time.perf_counter() - began
        self.tally.answered += said is not None
        kind = "skipped" if said is None else "answered"
        self.record.event(kind, id=id, t=self.positions.pop(id, None), **said or {})
        return index

    def _said(self, answer: Answer) -> tuple[int | None, dict[str, Any] | None]:
        """The class an answer names, and the answer as it is put on record; None for no answer."""
        if answer.unknown:
            return None, None
        learner, by = self.learner, {"expert": answer.expert} if answer.expert else {}
        if answer.label is not None:
            index = learner.class_index(answer.label)
            return index, {"answer": index, "label": learner.classes[index], **by}
        if answer.none:
            return None, {"none": True, **by}
        return None, {"no": [learner.classes[learner.class_index(each)] for each in answer.no], **by}

    def ask(self, t: int, prediction: Prediction) -> int | None:
        """Put a question to the expert and learn from the answer, if it comes at once."""
        if self.oracle is None:
            return None
        is_it = prediction.index if prediction.question == "is_it" else None
        query = Query(prediction.id, self.stream.path(t), prediction, is_it)
        if is_repeatable(self.oracle):
            answer = self.oracle.answer(query)
        else:
            with self.interrupt.at_once():
                answer = self.oracle.answer(query)
        for earlier, instead in corrections(self.oracle):
            self.correct(earlier, instead)
        self.last_asked = t
        return None if answer is None else self._take(prediction, answer)

    def _take(self, prediction: Prediction, answer: Reply) -> int | None:
        """Learn an answer and take note of a no to the prediction; its index, where it names a class."""
        index = self.learn(prediction.id, answer)
        out = answer.no if isinstance(answer, Answer) else ()
        self.denied = prediction.id if prediction.index in map(self.learner.class_index, out) else None
        return index

    def correct(self, query: Query, answer: Reply) -> None:
        """Put another answer in the place of that to the last question, in the counts and in the row too."""
        prediction, t = query.prediction, self.last_asked
        held = self.learner.answered
        try:
            before = self.learner.undo(query.id)
        except QueryError as error:  # its image has left the memory meanwhile
            self.record.event("not_corrected", id=query.id, t=t, error=str(error))
            return
        self.positions[query.id] = t
        old = None if before is None else self.learner.class_index(before)
        self.tally.answered -= held - self.learner.answered
        self.record.event("undone", id=query.id, t=t, answer=old)
        self.counted(t, prediction, old).add_to(self.tally, -1)
        new = self._take(prediction, answer)
        counted = self.counted(t, prediction, new)
        counted.add_to(self.tally)
        cells = counted.cells(self.learner.classes)
        self.record.replace_row(t, query.source, prediction, **cells, phase=self.stream.phase(t))

    def counted(self, t: int, prediction: Prediction, answer: int | None) -> Counted:
        """What an image counts as, with the answer that was given at once, if one was."""
        label = self.stream.label(t)
        label = answer if label is None else label
        # Where experts are asked first, their answer is the prediction.
        final = answer if answer is not None and self.learner.order == "ask_first" else prediction.index
        known = label is not None and label != OUTSIDE
        hit = label in (final, *most_likely(prediction)) if known else None
        return Counted(final, label, hit, denied=label is None and prediction.id == self.denied)

    def take_late_answers(self) -> int:
        """Learn from answers to earlier questions that have arrived meanwhile; how many."""
        late = [] if self.oracle is None else late_answers(self.oracle, self.learner.seen)
        for id, answer in late:
            self.learn(id, answer)
        return len(late)

    def _ask_again(self) -> None:
        """After a stop: questions that waited for a late answer are put to the expert again."""
        if not self.learner.pending or not hasattr(self.oracle, "due"):
            return
        said = {e["id"]: e for e in read_events(self.record.folder) if e["event"] == "predicted"}
        for id in self.learner.pending:
            t = self.positions[id] = said[id]["t"]
            is_it = said[id]["top5"][0] if said[id].get("question") == "is_it" else None
            self.oracle.answer(Query(id, self.stream.path(t), None, is_it))  # type: ignore[union-attr, arg-type]


def follow(
    session: Session,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Streamed, Tally], None] = lambda streamed, tally: None,
    prefetched: int = 0,
) -> bool:
    """Go through the stream from where the tally stands.

    Ctrl-C saves after the image under way and is raised then; while a person is asked it is raised at once,
    and the question will be put again.

    Args:
        session: What to run.
        stop: Asked before every image; the run is saved and left when it says so.
        progress: Told after every image.
        prefetched: Images to decode beforehand; 0 to decode each in its turn, where times are to be measured.

    Returns:
        Whether the end of the stream was reached.
    """
    learner, record, tally, stream = session.learner, session.record, session.tally, session.stream
    with session.interrupt as interrupt:
        for t, decode in _images(stream, tally.position, prefetched):
            if stop() or interrupt.wanted:
                break
            began = time.perf_counter()
            asked_before = tally.asked
            streamed = _one_image(session, t, decode)
            late = session.take_late_answers()
            tally.position = t + 1
            # What a person said is on the disk before the next question is put.
            if (late or tally.asked > asked_before) and not is_repeatable(session.oracle):
                record.checkpoint(learner, tally)
            else:
                record.checkpoint_if_due(learner, tally)
            tally.wall_s += time.perf_counter() - began
            progress(streamed, tally)
        if tally.position > record.position or record.saved is None:
            record.checkpoint(learner, tally)
        if interrupt.wanted:
            raise KeyboardInterrupt
    return tally.position >= len(stream)


def _images(stream: Stream, begin: int, prefetched: int) -> Iterator[tuple[int, Callable[[], PixelArray]]]:
    """Each place with a function that gives its pixels."""
    places = range(begin, len(stream))
    if not prefetched:
        for t in places:
            yield t, lambda t=t: stream.image(t)  # type: ignore[misc]
        return
    futures: Iterator[Future[PixelArray]] = prefetch(places, stream.image, threads=1, depth=prefetched)
    for t, future in zip(places, futures, strict=True):
        yield t, future.result


def _one_image(session: Session, t: int, decode: Callable[[], PixelArray]) -> Streamed:
    stream, tally, record, learner = session.stream, session.tally, session.record, session.learner
    path = stream.path(t)
    began = time.perf_counter()
    try:
        pixels = decode()
        tally.decode_s += time.perf_counter() - began
        prediction = session.predict(t, path, pixels)
    except (ImageError, DataError) as error:  # not an image, or no file that can be read
        tally.broken += 1
        record.event("broken", t=t, path=path, error=str(error))
        return Streamed(t, path)
    answer = session.ask(t, prediction) if prediction.ask else None
    counted = session.counted(t, prediction, answer)
    counted.add_to(tally)
    record.row(t, path, prediction, **counted.cells(learner.classes), phase=stream.phase(t))
    return Streamed(t, path, pixels, prediction, counted.label, answer, counted.correct)


def most_likely(prediction: Prediction) -> list[int]:
    """Indices of the five likeliest classes, the predicted one first."""
    best: list[int] = np.argsort(-prediction.probs, kind="stable")[:TOP].tolist()
    return best
