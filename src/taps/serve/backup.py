"""Copies a store while the service runs, always to a folder with SQLite."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sqlalchemy import delete, insert, select

from taps import disk
from taps.disk import make_durable_folder, sync_folder
from taps.errors import StateError
from taps.files import write_durably
from taps.serve import tables as t
from taps.serve.doctor import examine
from taps.serve.errors import StoreDownError
from taps.serve.store import FOLDERS, Store

TRIES = 3
PAGE = 1000
FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")  # the last is SQLite's


def backup(store: Store, place: Path) -> None:
    """Copy a store to a folder that is empty or does not exist, and examine the copy.

    Images are copied first, then snapshots, then the tables in one transaction, then new images: so whatever
    the tables mention is there. Where the service removed something meanwhile the copy is made once more.
    """
    if place.exists() and any(place.iterdir()):
        raise StateError(f"{place} is not empty; give a folder of its own to every backup.")
    for _ in range(TRIES):
        try:
            bad = _try(store, place)
        except (OSError, StoreDownError) as error:
            if any(words in str(error) for words in FULL):
                raise StateError(
                    f"There is no room for the copy in {place}: make room there, or give another place. The "
                    "store itself is as it was."
                ) from error
            if isinstance(error, StoreDownError):
                raise
            bad = [f"{error}."]  # a snapshot was replaced while it was copied
        if not bad:
            return
    raise StateError(f"The copy has flaws: {bad[0]} Run `taps doctor` on the original.")


def _try(store: Store, place: Path) -> list[str]:
    """Copy once; what is wrong with the copy, which stays only where nothing is."""
    bad, there = ["It was stopped."], place.is_dir()
    try:
        with _copy(store, place) as made:
            bad = [finding.sentence for finding in examine(made) if finding.bad]
    finally:
        if bad:
            disk.empty_again(place, keep=there)
    return bad


def _copy(store: Store, place: Path) -> Store:
    disk.claim(place)
    copy = Store(str(place))  # while the folder is empty, for others are refused
    copy.make_folders(*FOLDERS)
    _copy_images(store, place / "images")
    for folder in store.snapshot_folders():
        disk.copy_tree(folder, place / "snapshots" / folder.name, "*.part", "*.damaged")
    copy.migrate()
    # Before the tables: so these never end before what is noted.
    disk.copy_tree(store.heads.folder, copy.heads.folder)
    _copy_tables(store, copy)
    _copy_images(store, place / "images")
    copy.pairing.copy_marks(place)
    for folder in [place, *(path for path in place.rglob("*") if path.is_dir())]:
        sync_folder(folder)
    return copy


def _copy_images(store: Store, place: Path) -> None:
    for name in store.blobs.names():
        target = place / name[:2] / name
        if not target.exists():
            make_durable_folder(target.parent.absolute())
            try:
                write_durably(target, store.blobs.path(name).read_bytes())
            except FileNotFoundError:
                continue  # it was removed in this moment


def _copy_tables(store: Store, copy: Store) -> None:
    with store.database.read_all() as source, copy.database.write() as target:
        target.execute(delete(t.meta))
        for table in t.metadata.sorted_tables:
            rows = source.execution_options(yield_per=PAGE).execute(select(table))
            for page in rows.mappings().partitions(PAGE):
                target.execute(insert(table), [dict(row) for row in page])
        copy.note_form(target)
