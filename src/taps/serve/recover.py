"""Make a damaged store usable again. What cannot be saved is given up, and said so."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import update

from taps.errors import StateError
from taps.serve import tables as t
from taps.serve.errors import GoneError
from taps.serve.records import Event, Stream
from taps.serve.replay import LOST, image_of
from taps.serve.store import Store


def recover(store: Store) -> Iterator[str]:
    """Set damaged snapshots aside and give lost images up; what was done, in sentences.

    Nothing is done to a stream that could not be replayed at all: a backup may still have what it lacks.
    """
    for stream in store.streams():
        yield from _stream(store, stream)
    yield from _images(store)
    removed = store.sweep()
    if removed:
        yield f"{removed} files that belong to no record were removed."


def _stream(store: Store, stream: Stream) -> Iterator[str]:
    snapshots, last, whole = store.snapshots(stream.id), store.last_seq(stream.id), 0
    for seq in snapshots.seqs():
        if snapshots.check(seq) is None and seq <= last:
            whole = seq
        else:
            snapshots.set_aside(seq)
            yield f"Stream {stream.name!r}: the damaged snapshot of event {seq} was set aside."
    lost = [event for event in store.events(stream.id, whole) if _is_lost(event, store)]
    if lost and not whole:
        yield (
            f"Stream {stream.name!r} has no whole snapshot and lacks images since its beginning: its learner "
            "cannot be made again. Put a backup back, or export what it has and delete it."
        )
        return
    for event in lost:
        _give_up(store, stream, event)
        yield (
            f"Stream {stream.name!r}: the image of prediction {event.prediction} is lost; a grey one stands "
            "in for it when the log is replayed."
        )


def _is_lost(event: Event, store: Store) -> bool:
    if event.kind != "predict" or event.value == LOST:
        return False
    try:
        image_of(event, store.blobs)
    except (StateError, GoneError):
        return True
    return False


def _give_up(store: Store, stream: Stream, event: Event) -> None:
    e, p = t.events.c, t.predictions.c
    with store.database.write() as connection:
        connection.execute(
            update(t.events).where(e.stream == stream.id, e.seq == event.seq).values(value=LOST)
        )
        connection.execute(
            update(t.predictions).where(p.stream == stream.id, p.id == event.prediction).values(kept=False)
        )
        store.audit(connection, "console", "give up image", f"{stream.name}/{event.prediction}")


def _images(store: Store) -> Iterator[str]:
    """Images that are kept for people alone: a damaged one is no longer kept."""
    for name in list(store.blobs.names()):
        try:
            store.blobs.read(name)
        except StateError as error:
            store.blobs.path(name).unlink(missing_ok=True)
            with store.database.write() as connection:
                connection.execute(
                    update(t.predictions).where(t.predictions.c.image == name).values(kept=False)
                )
            yield f"{error} It was removed."
