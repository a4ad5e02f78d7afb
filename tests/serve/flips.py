"""Bits flipped in the database: each is named, or changes nothing that is read."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from taps.serve.database import FILE
from taps.serve.doctor import examine
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.conftest import beginning
from tests.serve.streams import Served, live_through

WAL = f"{FILE}-wal"


def fill(service: Service, place: Path) -> Path:
    """A stream and a token, half of it in the database's file, half in its log; the files as after a kill."""
    service.create(beginning(), "test")
    live_through(Served(service), range(12))
    with sqlite3.connect(service.store.files / FILE) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    Tokens(service.store).create("camera", ("predict",))
    live_through(Served(service), range(12, 20))
    return shutil.copytree(service.store.files, place, ignore=shutil.ignore_patterns(f"{FILE}-shm"))


def rows_of(place: Path) -> Any:
    """Every row of every table, read by SQLite alone."""
    with closing(sqlite3.connect(place / FILE)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: sorted(connection.execute(f'SELECT * FROM "{name}"'), key=repr) for (name,) in names}


def named(place: Path) -> list[str]:
    """What `taps doctor` finds wrong."""
    with Store.existing(str(place)) as store:
        return [finding.sentence for finding in examine(store) if finding.bad]


def flipped(whole: Path, work: Path, *, flips: int, seed: int = 0) -> dict[str, int]:
    """Flip a bit of the database or of its log of writes, one at a time; how many were named, and harmless.

    The database's file is hurt when it holds everything; what the log has is not read from it.

    Args:
        whole: The files of a service that was killed.
        work: Where copies are made.
        flips: How many.
        seed: For the places.
    """
    rng, found = (
        random.Random(seed),
        {"flips": flips, FILE: 0, WAL: 0, "named": 0, "harmless": 0, f"harmless in {WAL}": 0},
    )
    rested = shutil.copytree(whole, work / "rested")
    right = rows_of(rested)  # whoever closes it last writes the log into the file
    assert not (rested / WAL).exists() or not (rested / WAL).stat().st_size
    for number in range(flips):
        name, source = ((FILE, rested), (WAL, whole))[number % 2]
        place = shutil.copytree(source, work / str(number))
        data = bytearray((place / name).read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (place / name).write_bytes(data)
        found[name] += 1
        if named(place):
            found["named"] += 1
        else:
            assert rows_of(place) == right, (number, name)
            found["harmless"] += 1
            found[f"harmless in {WAL}"] += name == WAL
        shutil.rmtree(place)
    return found
