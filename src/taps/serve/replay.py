"""A learner from its event log: the last good snapshot, and what came after, to the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from taps.errors import QueryError, StateError
from taps.learner import Learner
from taps.serve.blobs import Blobs
from taps.serve.errors import GoneError
from taps.serve.learners import STAND_IN, RemoteLearner
from taps.serve.records import Event, Stream
from taps.session import log
from taps.session.log import ANSWERED, PREDICTED
from taps.types import Answer

LOST = "lost"  # the value `taps recover` gives to the event of a prediction whose image is gone


@dataclass
class Replayed:
    """A learner brought up to date.

    Attributes:
        learner: As it was when event `seq` was recorded.
        seq: The last event it has lived through.
        count: How many events were replayed.
        different: Predictions that came out otherwise than they are on record.
        stuck: The event that could not be replayed, where there is one; `why` says why not.
        notes: What did not go as it should, in sentences.
    """

    learner: Learner | RemoteLearner
    seq: int
    count: int = 0
    different: int = 0
    stuck: Event | None = None
    why: str = ""
    notes: list[str] = field(default_factory=list)


def restore(
    stream: Stream, learner: RemoteLearner, seq: int, blobs: Blobs, events: Sequence[Event]
) -> Replayed:
    """Bring a stream's learner to the end of its log, or to the last event before one that is damaged.

    Args:
        stream: How it began.
        learner: As it was after event `seq`.
        seq: The last event it has lived through.
        blobs: The images.
        events: At least those after that.
    """
    replayed = Replayed(learner, seq)
    for event in events:
        if event.seq <= replayed.seq:
            continue
        if event.seq != replayed.seq + 1:
            raise StateError(f"Events of stream {stream.name!r} are missing before {event.seq}.")
        try:
            apply(replayed, event, blobs)
        except (StateError, GoneError) as error:
            replayed.stuck, replayed.why = event, str(error)
            break
    if replayed.different:
        replayed.notes.append(
            f"{replayed.different} of {replayed.count} replayed events predict otherwise than is on record: "
            "another processor, or another number of threads, does that. What is on record stays."
        )
    return replayed


def apply(replayed: Replayed, event: Event, blobs: Blobs) -> None:
    """Let a learner live through one event again."""
    if event.kind == PREDICTED:
        _predict(replayed, event, blobs)
    else:
        value = Answer.from_json(event.value) if event.kind == ANSWERED else event.value
        learner = replayed.learner
        happen = learner.apply if isinstance(learner, RemoteLearner) else partial(log.apply, learner)
        try:
            happen(event.kind, event.prediction, value)
        except QueryError as error:  # another machine's arithmetic may have asked about other images
            replayed.notes.append(f"Event {event.seq} could not be repeated: {error}")
    replayed.seq, replayed.count = event.seq, replayed.count + 1


def _predict(replayed: Replayed, event: Event, blobs: Blobs) -> None:
    lost = event.value == LOST
    said = replayed.learner.predict_one(STAND_IN if lost else image_of(event, blobs))
    if said.id != event.prediction:
        raise StateError(f"Event {event.seq} is of prediction {event.prediction}, not {said.id}.")
    if event.said is not None and not lost:
        replayed.different += (said.label, said.entropy) != event.said


def image_of(event: Event, blobs: Blobs) -> bytes:
    """The image of a predict event; raises where it is damaged or no longer kept."""
    if event.image is None:
        raise GoneError(f"The image of prediction {event.prediction} is no longer kept.")
    return blobs.read(event.image)


def lost_images(events: Sequence[Event], blobs: Blobs) -> Iterator[tuple[Event, str]]:
    """Events that cannot be replayed for their image is damaged or gone, and why; not those given up."""
    for event in events:
        if event.kind == PREDICTED and event.value != LOST:
            try:
                image_of(event, blobs)
            except (StateError, GoneError) as error:
                yield event, str(error)
