"""Bits flipped in the database, at rest and in its log of writes after a kill: each is named."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

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
    with closing(sqlite3.connect(service.store.files / FILE)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    Tokens(service.store).create("camera", ("predict",))
    live_through(Served(service), range(12, 20))
    return shutil.copytree(service.store.files, place, ignore=shutil.ignore_patterns(f"{FILE}-shm"))


def named(place: Path) -> list[str]:
    """What `taps doctor` finds wrong."""
    with Store.existing(str(place)) as store:
        return [finding.sentence for finding in examine(store) if finding.bad]


def flipped(stopped: Path, killed: Path, work: Path, *, flips: int, seed: int = 0) -> dict[str, int]:
    """Flip a bit of the database or of its log of writes, one at a time; how many were named.

    Args:
        stopped: The files of a service that was stopped: its database holds everything.
        killed: Those of one that was killed: a part is in the log of writes.
        work: Where copies are made.
        flips: How many.
        seed: For the places.
    """
    rng, found = random.Random(seed), {"flips": flips, FILE: 0, WAL: 0, "named": 0}
    for number in range(flips):
        name, source = ((FILE, stopped), (WAL, killed))[number % 2]
        place = shutil.copytree(source, work / str(number))
        data = bytearray((place / name).read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (place / name).write_bytes(data)
        found[name] += 1
        found["named"] += bool(named(place))
        shutil.rmtree(place)
    return found
