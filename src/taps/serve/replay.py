"""A learner from its event log: the last good snapshot, and what came after, to the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taps.clip import Clip
from taps.errors import QueryError, StateError
from taps.learner import Learner
from taps.serve.blobs import Blobs
from taps.serve.errors import GoneError
from taps.serve.records import Event, Stream
from taps.serve.snapshots import Found

LOST = "lost"  # the value `taps recover` gives to a predict event whose image is gone
STAND_IN = np.full((32, 32, 3), 128, np.uint8)  # is predicted in its place, so that ids stay right


@dataclass
class Replayed:
    """A learner brought up to date.

    Attributes:
        learner: As it was when event `seq` was recorded.
        seq: The last event it has lived through.
        count: How many events were replayed.
        stuck: The event that could not be replayed, where there is one; `why` says why not.
        notes: What did not go as it should, in sentences.
    """

    learner: Learner
    seq: int
    count: int = 0
    stuck: Event | None = None
    why: str = ""
    notes: list[str] = field(default_factory=list)


def fresh(stream: Stream, clip: Clip) -> Learner:
    """A stream's learner as it began."""
    return Learner(clip, stream.classes, stream.method, seed=stream.seed, **stream.settings)


def restore(stream: Stream, clip: Clip, found: Found | None, blobs: Blobs, log: Sequence[Event]) -> Replayed:
    """Bring a stream's learner to the end of its log, or to the last event before one that is damaged.

    Args:
        stream: How it began.
        clip: The model.
        found: The newest whole snapshot; None where the learner begins anew.
        blobs: The images.
        log: At least the events after the snapshot.
    """
    found = found or Found(fresh(stream, clip), 0)
    replayed = Replayed(found.learner, found.seq)
    for event in log:
        if event.seq <= replayed.seq:
            continue
        if event.seq != replayed.seq + 1:
            raise StateError(f"Events of stream {stream.name!r} are missing before {event.seq}.")
        try:
            apply(replayed, event, blobs)
        except (StateError, GoneError) as error:
            replayed.stuck, replayed.why = event, str(error)
            break
    return replayed


def apply(replayed: Replayed, event: Event, blobs: Blobs) -> None:
    """Let a learner live through one event again."""
    learner = replayed.learner
    if event.kind == "predict":
        prediction = learner.predict_one(STAND_IN if event.value == LOST else image_of(event, blobs))
        if prediction.id != event.prediction:
            raise StateError(f"Event {event.seq} is of prediction {event.prediction}, not {prediction.id}.")
    elif event.kind == "classes":
        learner.add_class(event.value)
    elif event.kind in ("label", "undo"):
        assert event.prediction is not None
        try:
            if event.kind == "label":
                learner.learn_one(event.prediction, event.value)
            else:
                learner.undo(event.prediction)
        except QueryError as error:  # another machine's arithmetic may have asked about other images
            replayed.notes.append(f"Event {event.seq} could not be repeated: {error}")
    replayed.seq, replayed.count = event.seq, replayed.count + 1


def image_of(event: Event, blobs: Blobs) -> bytes:
    """The image of a predict event; raises where it is damaged or no longer kept."""
    if event.image is None:
        raise GoneError(f"The image of prediction {event.prediction} is no longer kept.")
    return blobs.read(event.image)
