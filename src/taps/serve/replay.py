"""Restores a learner from its newest whole snapshot and the events after it, to the same bits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taps.errors import QueryError, SettingsError, StateError
from taps.learner import Learner
from taps.learner.learns import Learns
from taps.registry import nearest
from taps.serve.blobs import Blobs
from taps.serve.errors import GoneError
from taps.serve.learners import STAND_IN
from taps.serve.records import Event, Stream
from taps.serve.store import Store
from taps.streams import log
from taps.streams.log import ANSWERED, PREDICTED
from taps.types import Answer

LOST = "lost"  # the value `taps recover` gives to the event of a prediction whose image is gone


@dataclass
class Replayed:
    """A learner brought up to date.

    Attributes:
        learner: As it was when event `seq` was recorded.
        seq: The last event it was given.
        count: How many events were replayed.
        different: Predictions that differ from those on record.
        stuck: The event that could not be replayed, and `why`.
        notes: Warnings, in sentences.
    """

    learner: Learns
    seq: int
    count: int = 0
    different: int = 0
    stuck: Event | None = None
    why: str = ""
    notes: list[str] = field(default_factory=list)


def restore(stream: Stream, learner: Learns, seq: int, blobs: Blobs, events: Sequence[Event]) -> Replayed:
    """Bring a stream's learner from event `seq` to the end of its log, or to the last replayable event."""
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
            "another processor or number of threads does that. The record stays as it is."
        )
    return replayed


def apply(replayed: Replayed, event: Event, blobs: Blobs) -> None:
    """Give a learner one event again."""
    if event.kind == PREDICTED:
        _predict(replayed, event, blobs)
    else:
        value = Answer.from_json(event.value) if event.kind == ANSWERED else event.value
        try:
            log.apply(replayed.learner, event.kind, event.prediction, value)
        except QueryError as error:  # another machine's arithmetic may have asked about other images
            replayed.notes.append(f"Event {event.seq} could not be repeated: {error}")
    replayed.seq, replayed.count = event.seq, replayed.count + 1


def _predict(replayed: Replayed, event: Event, blobs: Blobs) -> None:
    lost = event.value == LOST
    prediction = replayed.learner.predict_one(STAND_IN if lost else image_of(event, blobs))
    if prediction.id != event.prediction:
        raise StateError(f"Event {event.seq} is of prediction {event.prediction}, not {prediction.id}.")
    if event.said is not None and not lost:
        replayed.different += (prediction.label, prediction.entropy) != event.said


def image_of(event: Event, blobs: Blobs) -> bytes:
    """The image of a predict event; raises where it is damaged or no longer kept."""
    if event.image is None:
        raise GoneError(f"The image of prediction {event.prediction} is no longer kept.")
    return blobs.read(event.image)


def lost_images(events: Sequence[Event], blobs: Blobs) -> Iterator[tuple[Event, str]]:
    """Events whose image is damaged or gone, and why; without those that `taps recover` gave up."""
    for event in events:
        if event.kind == PREDICTED and event.value != LOST:
            try:
                image_of(event, blobs)
            except (StateError, GoneError) as error:
                yield event, str(error)


def learner_of(folder: Path, stream: str | None = None) -> Learner:
    """The learner of a stream, read from a store without writing: a service may use the store meanwhile.

    Args:
        folder: Of the store.
        stream: Its name; may be left out where the store has one stream.
    """
    with Store.existing(str(folder)) as store:
        found, seqs = chosen(store.streams(), stream, folder), list[int]()
        while True:
            try:
                return _saved_learner(store, found)
            except (StateError, GoneError, OSError):
                if seqs == (seqs := store.snapshots(found.id).seqs()):
                    raise  # no service has saved it anew meanwhile


def _saved_learner(store: Store, stream: Stream) -> Learner:
    """A stream's learner by its newest whole snapshot and the log after it."""
    snapshots, last = store.snapshots(stream.id), store.last_seq(stream.id)
    whole = (seq for seq in reversed(snapshots.seqs()) if snapshots.check(seq, last) is None)
    if (seq := next(whole, None)) is None:
        raise StateError(
            f"No learner of stream {stream.name!r} is saved in {store.files} yet; try again later."
        )
    replayed = Replayed(learner := Learner.load(snapshots.place(seq)), seq)
    for event in store.events(stream.id, seq):
        apply(replayed, event, store.blobs)
    return learner


def chosen(streams: list[Stream], name: str | None, folder: Path) -> Stream:
    """The stream of that name, or the only one where no name is given."""
    names = ", ".join(stream.name for stream in streams) or "none"
    if name is None and len(streams) != 1:
        raise SettingsError(f"The store {folder} holds the streams: {names}; choose one with --stream.")
    found = next((each for each in streams if name in (None, each.name)), None)
    if found is None:
        meant = nearest(str(name), [stream.name for stream in streams])
        raise SettingsError(f"The store {folder} holds no stream {name!r}; it holds: {names}.{meant}")
    return found


def predict_command(folder: Path, stream: str | None = None) -> str:
    """The command that predicts other images with a store's learner.

    >>> predict_command(Path("my photos.taps"))
    "taps predict NEW_IMAGES --learner 'my photos.taps'"
    """
    which = "" if stream is None else f" --stream {shlex.quote(stream)}"
    return f"taps predict NEW_IMAGES --learner {shlex.quote(str(folder))}{which}"
