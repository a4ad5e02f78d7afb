"""Bits flipped and files cut at random places of snapshots and images: noticed every time, and survived."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from taps.model.clip import Clip
from taps.serve.doctor import examine
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.streams import Served


def spoil(path: Path, rng: random.Random) -> bytes:
    """Damage a file; what it was before."""
    whole = path.read_bytes()
    data = bytearray(whole)
    if rng.random() < 0.5:
        place = rng.randrange(len(data))
        data[place] ^= 1 << rng.randrange(8)
    else:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)
    return whole


def damaged(place: Path, clip: Clip, *, places: int, opened: int, seed: int = 0) -> dict[str, Any]:
    """Damage a store that is at rest at so many places, one at a time; `opened` of these are served from.

    The store has two snapshots of one stream, and images that a replay from the older one needs.
    """
    rng, found = random.Random(seed), {"snapshots": 0, "images": 0, "served": 0}
    with Service(Store(str(place)), clip) as service:
        right = Served(service).digest()
    with Store(str(place)) as store:
        snapshots = store.snapshots(1)
        newest, older = snapshots.seqs()[-1], snapshots.seqs()[-2]
        needed = {event.image for event in store.events(1, older) if event.image}
        assert needed
        saved = [path for seq in (older, newest) for path in (snapshots.folder / f"{seq:012d}").iterdir()]
        images = [store.blobs.path(name) for name in store.blobs.names()]
        for number in range(places):
            path = rng.choice(rng.choice((saved, images)))
            whole = spoil(path, rng)
            said = " ".join(finding.sentence for finding in examine(store) if finding.bad)
            kind = "images" if path.parent.parent == store.blobs.folder else "snapshots"
            assert (path.name if kind == "images" else path.parent.name) in said, (path, said)
            found[kind] += 1
            if number % max(places // opened, 1) == 0:
                copy = place.with_name("copy")
                shutil.copytree(place, copy)
                with Service(Store(str(copy)), clip) as service:  # the newest is whole, or the older is used
                    assert Served(service).digest() == right
                shutil.rmtree(copy)
                found["served"] += 1
            path.write_bytes(whole)
    return found
