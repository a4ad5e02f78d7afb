"""Make a damaged store usable again. What cannot be saved is given up, and said so."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import update

from taps.errors import StateError
from taps.serve import tables as t
from taps.serve.records import Event, Stream
from taps.serve.replay import LOST, lost_images
from taps.serve.store import Store


def recover(store: Store) -> Iterator[str]:
    """Take damaged rows as they are, set damaged snapshots aside, give lost images up; what was done.

    Nothing is done to a stream that could not be replayed at all: a backup may still have what it lacks.
    """
    store.migrate()
    for sentence in store.damage():
        yield f"{sentence} What is there counts from now on."
    store.sweep()  # what is in the bin and needed is not lost
    for stream in store.streams():
        yield from _stream(store, stream)
    yield from _images(store)
    removed = store.sweep(orphans=True)
    if removed:
        yield f"{removed} files that no record needs were moved to {store.bin.folder}."
    store.seal()


def _stream(store: Store, stream: Stream) -> Iterator[str]:
    snapshots, last, whole = store.snapshots(stream.id), store.last_seq(stream.id), 0
    for seq in snapshots.seqs():
        if snapshots.check(seq, last) is None:
            whole = seq
        else:
            snapshots.set_aside(seq)
            yield f"Stream {stream.name!r}: the damaged snapshot of event {seq} was set aside."
    lost = [event for event, _ in lost_images(store.events(stream.id, whole), store.blobs)]
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
    for row in store.predictions(stream.id):
        if row.kept and not store.blobs.path(row.image).exists():
            _no_longer_kept(store, row.image)
            yield f"Stream {stream.name!r}: the image of prediction {row.id} is lost, and no longer kept."


def _give_up(store: Store, stream: Stream, event: Event) -> None:
    e, p = t.events.c, t.predictions.c
    with store.audited("console", "give up image", f"{stream.name}/{event.prediction}") as connection:
        connection.execute(
            update(t.events).where(e.stream == stream.id, e.seq == event.seq).values(value=LOST)
        )
        connection.execute(
            update(t.predictions).where(p.stream == stream.id, p.id == event.prediction).values(kept=False)
        )


def _images(store: Store) -> Iterator[str]:
    """Images that are kept for people alone: a damaged one is no longer kept."""
    for name in list(store.blobs.names()):
        try:
            store.blobs.read(name)
        except StateError as error:
            store.bin.put(store.blobs.path(name), "damaged")
            _no_longer_kept(store, name)
            yield f"{error} It was moved to {store.bin.folder}."


def _no_longer_kept(store: Store, image: str) -> None:
    p = t.predictions.c
    with store.database.write() as connection:
        connection.execute(update(t.predictions).where(p.image == image).values(kept=False))
