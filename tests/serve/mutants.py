"""Images that were tampered with: bytes flipped, cut, spliced, other files before and after, false sizes."""

from __future__ import annotations

import io
import random
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from tests.serve.conftest import CLASSES
from tests.serve.patient import LONG
from tests.serve.processes import memory_mb
from tests.serve.zygote import Zygote

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
OTHER = (
    b"PK\x03\x04" + b"\0" * 40,
    b"<html><script>alert(1)</script>",
    b"%PDF-1.7\n",
    b"\x7fELF",
    b"GIF89a",
    b"#!/bin/sh\n",
)
REFUSED = {200, 413, 415, 422}  # some are still images


def originals() -> list[bytes]:
    rng, found = np.random.default_rng(0), []
    for kind in FORMATS:
        data = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8)).save(data, kind)
        found.append(data.getvalue())
    return found


def mutants(count: int, seed: int = 0) -> Iterator[bytes]:
    """So many of them, the same for the same seed."""
    rng, whole = random.Random(seed), originals()
    for _ in range(count):
        data = bytearray(rng.choice(whole))
        kind = rng.randrange(6)
        if kind == 0:
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[rng.randrange(len(data)) :]
        elif kind == 2:
            other = rng.choice(whole)
            data[rng.randrange(len(data)) :] = other[rng.randrange(len(other)) :]
        elif kind == 3:
            other = rng.choice(OTHER)
            data = bytearray(other) + data if rng.random() < 0.5 else data + bytearray(other)
        elif kind == 4:  # sizes and offsets in headers
            place = rng.randrange(4, min(64, len(data) - 4))
            data[place : place + 4] = struct.pack(">I", rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 60_000)))
        else:
            data[rng.randrange(min(40, len(data)))] = rng.randrange(256)
        yield bytes(data)


def throw(zygote: Zygote, folder: Path, count: int) -> dict[str, Any]:
    """Send them all to a service; statuses, and the memory of all its processes after each tenth of them."""
    pid, url = zygote.start(str(folder), folder)
    said: Counter[int] = Counter()
    memory = []
    with httpx.Client(base_url=url, timeout=LONG, trust_env=False) as http:
        body = {"name": "pets", "classes": CLASSES, "method": "zero_shot"}
        assert http.post("/v1/streams", json=body).status_code == 201
        for number, data in enumerate(mutants(count), 1):
            answer = http.post("/v1/streams/pets/predict", content=data)
            assert answer.status_code in REFUSED, (answer.status_code, answer.text, data[:64])
            assert answer.status_code == 200 or answer.json()["detail"].endswith((".", "…"))
            said[answer.status_code] += 1
            if number % (count // 10) == 0:
                memory.append(round(memory_mb(pid)))
        assert http.get("/v1/streams/pets/stats").json()["seen"] == said[200]
    zygote.kill(pid)
    return {"count": count, "statuses": dict(said), "mb_by_tenth": memory, "grown_mb": memory[-1] - memory[0]}
