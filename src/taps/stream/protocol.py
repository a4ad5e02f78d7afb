"""The fair protocol: predict, commit the prediction, and only then may anybody read the label."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from taps.data.dataset import Dataset
from taps.errors import DataError, ImageError
from taps.learner import Learner
from taps.oracles import GroundTruth, Oracle, late_answers
from taps.stream.record import Record
from taps.types import PixelArray, Prediction, Query

TOP = 5


@dataclass(frozen=True)
class Stream:
    """A data set's images in the order in which they come; every label that is read is read through it.

    Attributes:
        dataset: The images.
        order: Indices into it.
    """

    dataset: Dataset
    order: Sequence[int]

    def __len__(self) -> int:
        return len(self.order)

    def key(self, t: int) -> str:
        return self.dataset.samples[self.order[t]].key

    def image(self, t: int) -> PixelArray:
        return self.dataset.image(self.order[t])

    def label(self, t: int) -> int:
        label = self.dataset.samples[self.order[t]].label
        if label is None:
            raise DataError(f"{self.key(t)} has no label; measuring needs one for every image.")
        return label


@dataclass
class Tally:
    """What has happened so far; saved with every checkpoint.

    Attributes:
        position: Images of the stream dealt with, broken ones too.
        broken: Images that could not be read; they are not counted in the accuracy.
        correct: Right predictions.
        hits: Images whose class was among the five likeliest.
        answered: Labels given to the method.
        decode_s: Time spent reading and decoding.
        method_s: Time of the method itself, predicting and learning.
        wall_s: Time of the whole loop.
        peak_mem_mb: Highest memory so far.
    """

    position: int = 0
    broken: int = 0
    correct: int = 0
    hits: int = 0
    answered: int = 0
    decode_s: float = 0.0
    method_s: float = 0.0
    wall_s: float = 0.0
    peak_mem_mb: float = 0.0

    @property
    def n(self) -> int:
        return self.position - self.broken


@dataclass
class Session:
    """One learner on one stream, and the expert it asks.

    Attributes:
        learner: Predicts and learns.
        stream: What comes.
        record: Where everything is written down.
        tally: Counts so far.
        wrap: Makes the expert from the one who knows the truth: spoilt, late, or as it is.
        positions: Place in the stream of each image that is being asked about, by the learner's id.
    """

    learner: Learner
    stream: Stream
    record: Record
    tally: Tally
    wrap: Callable[[Oracle], Oracle] = lambda oracle: oracle
    positions: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.oracle = self.wrap(GroundTruth(lambda id: self.stream.label(self.positions[id])))


def follow(
    session: Session,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> bool:
    """Go through the stream from where the tally stands.

    Args:
        session: What to run.
        stop: Asked before every image; the run is saved and left when it says so.
        progress: Told after every image.

    Returns:
        Whether the end of the stream was reached.
    """
    tally, record = session.tally, session.record
    for t in range(tally.position, len(session.stream)):
        if stop():
            record.checkpoint(session.learner, tally)
            return False
        began = time.perf_counter()
        _one_image(session, t)
        tally.position = t + 1
        record.checkpoint_if_worth(session.learner, tally)
        tally.wall_s += time.perf_counter() - began
        progress(tally)
    record.checkpoint(session.learner, tally)
    return True


def _one_image(session: Session, t: int) -> None:
    learner, stream, record, tally = session.learner, session.stream, session.record, session.tally
    began = time.perf_counter()
    try:
        pixels = stream.image(t)
        decoded = time.perf_counter()
        prediction = learner.predict_one(pixels)
    except (ImageError, DataError) as error:
        tally.broken += 1
        record.event("broken", t=t, key=stream.key(t), error=str(error))
        return
    tally.decode_s += decoded - began
    tally.method_s += time.perf_counter() - decoded
    best = most_likely(prediction)
    record.commit(t, stream.key(t), prediction, best)  # from here on the prediction cannot be changed
    if prediction.ask:
        session.positions[prediction.id] = t
        answer = session.oracle.answer(Query(prediction.id, stream.key(t), prediction))
        if answer is not None:
            _learn(session, prediction.id, answer)
    for id, late in late_answers(session.oracle, learner.seen):
        _learn(session, id, late)
    label = stream.label(t)
    tally.correct += prediction.index == label
    tally.hits += label in best
    record.row(t, stream.key(t), prediction, learner.classes[label], prediction.index == label, label in best)


def _learn(session: Session, id: int, answer: int | str) -> None:
    began = time.perf_counter()
    session.learner.learn_one(id, answer)
    session.tally.method_s += time.perf_counter() - began
    session.tally.answered += 1
    session.record.event("answered", id=id, t=session.positions.pop(id, None), answer=answer)


def most_likely(prediction: Prediction) -> list[int]:
    """Indices of the five likeliest classes, the predicted one first."""
    best: list[int] = np.argsort(-prediction.probs, kind="stable")[:TOP].tolist()
    return best
