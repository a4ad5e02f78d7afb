"""Checks and repairs a store: `examine` names what is wrong, `recover` makes it usable again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Text, cast, func, select, update

from taps.disk import PART
from taps.errors import StateError
from taps.serve import tables as t
from taps.serve.blobs import LITTLE
from taps.serve.errors import GoneError, StoreDownError
from taps.serve.migrations import known_version
from taps.serve.records import Stream
from taps.serve.replay import LOST, lost_images
from taps.serve.store import FOLDERS, Store
from taps.streams.log import PREDICTED

NO_START = "The service does not start: "


@dataclass(frozen=True)
class Finding:
    """A sentence of `taps doctor`; `bad` where something acknowledged is lost or in danger."""

    sentence: str
    bad: bool = True


def examine(store: Store) -> Iterator[Finding]:
    """Everything that is not as it should be; nothing is changed."""
    try:
        yield from _folders(store)
        yield from _database(store)
        for stream in store.streams():
            yield from _log(store, stream)
            yield from _snapshots(store, stream)
        yield from _images(store)
    except StoreDownError as error:
        what = "Put a backup in its place" if store.database.sqlite else "Start the database"
        yield Finding(f"{NO_START}{error} {what}, or check its address.")
    except (ValueError, TypeError, OSError) as error:
        yield Finding(f"{NO_START}The store cannot be read ({error}); put a backup in its place.")
    yield from _disk(store)


def _folders(store: Store) -> Iterator[Finding]:
    for folder in (store.files / name for name in FOLDERS):
        if not folder.is_dir():
            stops = NO_START if folder.exists() else ""
            yield Finding(f"{stops}The folder {folder} is gone; put it back from a backup.")
    if not os.access(store.files, os.W_OK):
        yield Finding(f"{NO_START}{store.files} cannot be written here; it can be read.", bad=False)


def _database(store: Store) -> Iterator[Finding]:
    """What a start refuses, by the same checks."""
    with store.database.read() as connection:
        try:
            known_version(connection)
        except StateError as error:
            yield Finding(f"{NO_START}{error}")
            return  # tables of another version are not to be read
    try:
        store.pairing.check()
    except StoreDownError:
        raise
    except StateError as error:
        yield Finding(f"{NO_START}{error}")
    for sentence in [*store.database.structure(), *store.damage()]:
        yield Finding(f"{NO_START}The database is damaged: {sentence} Put a backup in its place.")
    for sentence in store.database.unlike_left():
        yield Finding(f"{sentence} A bit of its disk may have flipped; a start goes on without it.")


def _log(store: Store, stream: Stream) -> Iterator[Finding]:
    """Events without gaps, and one prediction for each event that makes one."""
    name, e, p = stream.name, t.events.c, t.predictions.c
    with store.database.read_all() as connection:
        count, last = connection.execute(
            select(func.count(), func.max(e.seq)).where(e.stream == stream.id)
        ).one()
        asked = select(func.count()).where(e.stream == stream.id, e.kind == PREDICTED)
        predicted = connection.scalar(asked)
        rows, newest = connection.execute(
            select(func.count(), func.max(p.id)).where(p.stream == stream.id)
        ).one()
        lost = connection.scalar(asked.where(cast(e.value, Text) == json.dumps(LOST)))
    if count != (last or 0):
        yield Finding(
            f"Stream {name!r}: {(last or 0) - count} events of the log are missing; put a backup back."
        )
    if not predicted == rows == (0 if newest is None else newest + 1):
        yield Finding(
            f"Stream {name!r}: {predicted} events of predictions, but {rows} predictions; put a backup back."
        )
    if lost:
        yield Finding(f"Stream {name!r}: {lost} images were lost; grey ones stand in for them.", bad=False)


def _snapshots(store: Store, stream: Stream) -> Iterator[Finding]:
    """Findings of `_replay`, looked for again where a running service has saved a snapshot meanwhile."""
    seqs, findings = None, list[Finding]()
    while seqs != (seqs := store.snapshots(stream.id).seqs()):
        findings = list(_replay(store, stream, seqs))
    yield from findings


def _replay(store: Store, stream: Stream, seqs: Sequence[int]) -> Iterator[Finding]:
    """Snapshots match their checksums, and what came after them can be replayed."""
    snapshots, whole = store.snapshots(stream.id), 0
    last = store.last_seq(stream.id)
    for seq in seqs:
        wrong = snapshots.check(seq)
        if wrong is None:
            whole = max(whole, seq if seq <= last else 0)  # a newer one is damage to the log
        else:
            yield Finding(f"{wrong} The older one will be used; `taps recover` sets this one aside.")
    for place in snapshots.folder.glob("*.damaged"):
        yield Finding(
            f"{place} was found damaged and set aside; remove it when you have looked at it.", bad=False
        )
    for event, why in lost_images(store.events(stream.id, whole), store.blobs):
        yield Finding(
            f"Stream {stream.name!r} cannot be replayed beyond event {event.seq - 1}: {why} Put the file "
            "back from a backup, or run `taps recover`, which goes on without it."
        )


def _images(store: Store) -> Iterator[Finding]:
    """Every image that is to be kept is there and whole; no other is."""
    kept = store.kept_images()
    for image in sorted(kept):
        try:
            store.blobs.read(image)
        except (StateError, GoneError) as error:
            if store.needs(image):  # a running service has not removed it since
                yield Finding(f"{error} It is still wanted: {store.blobs.path(image)}.")
    yield from _leftovers(store, [name for name in store.blobs.names() if name not in kept])


def _leftovers(store: Store, images: list[str]) -> Iterator[Finding]:
    """Files that nobody needs: on their way to the bin, in it, or of no record at all."""
    streams = {str(stream.id) for stream in store.streams()}
    orphans = [image for image in images if store.needs(image) is None]
    orphans += [folder.name for folder in store.snapshot_folders() if folder.name not in streams]
    if len(images) > len(orphans):
        yield Finding(
            "Images that are needed no longer are still there; the next start moves them.", bad=False
        )
    if orphans:
        yield Finding(
            f"{len(orphans)} files belong to no record of this database: a killed service leaves such, or "
            f"the database is an older one. They are left alone, {orphans[0]} among them; `taps recover` "
            "moves them to the bin.",
            bad=False,
        )
    waiting = len(list(store.bin.items()))
    if waiting:
        yield Finding(
            f"{waiting} removed files wait in the bin, {store.bin.folder}, and are deleted after a day.",
            bad=False,
        )


def _disk(store: Store) -> Iterator[Finding]:
    walk = os.walk(store.files)  # unlike a glob, it goes on where a service removes a folder meanwhile
    parts = [name for _, folders, names in walk for name in (*folders, *names) if name.endswith(PART)]
    if parts:
        yield Finding(
            f"{len(parts)} files are half written, by a running service or one that was killed.", bad=False
        )
    free = shutil.disk_usage(store.files).free
    if free < LITTLE:
        yield Finding(f"Only {free >> 20} MB are free in {store.files}; make room soon.")


def recover(store: Store) -> Iterator[str]:
    """Take damaged rows as they are, set damaged snapshots aside, give lost images up; yields what was done.

    A stream that cannot be replayed at all is left alone: a backup may still have what it lacks.
    """
    store.migrate()
    for sentence in store.damage():
        yield f"{sentence} What is there counts from now on."
    store.sweep()  # what is in the bin and needed is not lost
    for stream in store.streams():
        yield from _mend(store, stream)
    yield from _give_up_damaged(store)
    removed = store.sweep(orphans=True)
    if removed:
        yield f"{removed} files that no record needs were moved to {store.bin.folder}."
    store.seal()


def _mend(store: Store, stream: Stream) -> Iterator[str]:
    snapshots, last, whole = store.snapshots(stream.id), store.last_seq(stream.id), 0
    for seq in snapshots.seqs():
        wrong = snapshots.check(seq, last)
        if wrong is None:
            whole = seq
        else:
            snapshots.set_aside(seq)
            yield f"Stream {stream.name!r}: {wrong} It was set aside."
    lost = [event for event, _ in lost_images(store.events(stream.id, whole), store.blobs)]
    if lost and not whole:
        yield (
            f"Stream {stream.name!r} has no whole snapshot and lacks images since its beginning: its learner "
            "cannot be made again. Put a backup back, or export what it has and delete it."
        )
        return
    for event in lost:
        entry = (t.events.c.stream == stream.id, t.events.c.seq == event.seq)
        its_row = (t.predictions.c.stream == stream.id, t.predictions.c.id == event.prediction)
        with store.audited("console", "give up image", f"{stream.name}/{event.prediction}") as connection:
            connection.execute(update(t.events).where(*entry).values(value=LOST))
            connection.execute(update(t.predictions).where(*its_row).values(kept=False))
        yield (
            f"Stream {stream.name!r}: the image of prediction {event.prediction} is lost; a grey one stands "
            "in for it when the log is replayed."
        )
    for row in store.predictions(stream.id):
        if row.kept and not store.blobs.path(row.image).exists():
            _no_longer_kept(store, row.image)
            yield f"Stream {stream.name!r}: the image of prediction {row.id} is lost, and no longer kept."


def _give_up_damaged(store: Store) -> Iterator[str]:
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
