"""Many clients on several streams at a time: no error, and each stream as if it had been alone."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from taps.model.clip import Clip
from taps.serve.learners import fresh
from taps.serve.replay import Replayed, apply
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.patient import LONG
from tests.serve.streams import Served, digest
from tests.serve.zygote import Zygote

DIFFERENT = 500  # pictures


class Sent:
    """The images the clients send, by what is in them: the service need not have kept them all."""

    def __init__(self) -> None:
        self.known = {hashlib.sha256(png(number)).hexdigest(): number for number in range(DIFFERENT)}

    def read(self, name: str) -> bytes:
        return png(self.known[name])


class Client:
    """Sends images, answers open questions, takes some answers back."""

    def __init__(self, url: str, stream: str, seed: int) -> None:
        self.at, self.rng = f"{url}/v1/streams/{stream}", random.Random(seed)
        self.seconds: list[float] = []
        self.errors: list[str] = []

    def run(self, end: float, at_least: int) -> None:
        with httpx.Client(timeout=LONG, trust_env=False) as http:
            while time.monotonic() < end or len(self.seconds) < at_least:
                began = time.perf_counter()
                said = http.post(f"{self.at}/predict", content=png(self.rng.randrange(DIFFERENT)))
                self.seconds.append(time.perf_counter() - began)
                self._check(said, 200)
                if said.status_code == 200 and said.json()["query_id"] is not None:
                    question = f"{self.at}/queries/{said.json()['query_id']}"
                    label = self.rng.choice(CLASSES)
                    self._check(http.post(f"{question}/label", json={"label": label}), 200)
                    if self.rng.random() < 0.2:
                        self._check(http.post(f"{question}/undo"), 200, 409)  # gone from a small buffer: 409

    def _check(self, answer: httpx.Response, *fine: int) -> None:
        if answer.status_code not in fine:
            self.errors.append(f"{answer.status_code} {answer.text}")


def crowd(
    zygote: Zygote,
    folder: Path,
    clip: Clip,
    *,
    clients: int,
    streams: int,
    seconds: float,
    at_least: int = 1,
) -> dict[str, Any]:
    """Let them loose for so long; every stream is then compared with its log lived through alone."""
    pid, url = zygote.start(str(folder), folder)
    names = [f"s{number}" for number in range(streams)]
    with httpx.Client(timeout=LONG, trust_env=False) as http:
        for number, name in enumerate(names):
            body = {"name": name, "classes": CLASSES, "method": "taps", "settings": ASKING, "seed": number}
            assert http.post(f"{url}/v1/streams", json=body).status_code == 201
    crowd = [Client(url, names[number % streams], number) for number in range(clients)]
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=each.run, args=(end, at_least)) for each in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    zygote.kill(pid)
    errors = [error for each in crowd for error in each.errors]
    assert not errors, errors[:3]
    taken = np.array([each for client in crowd for each in client.seconds])
    sent = Sent()
    with Service(Store(str(folder)), clip) as service:
        for name in names:
            replayed = Replayed(fresh(service.stream(name), clip), 0)
            images = {row.id: row.image for row in service.store.predictions(service.stream(name).id)}
            for event in service.store.events(service.stream(name).id):
                image = images[event.prediction] if event.kind == "predicted" else None
                apply(replayed, replace(event, image=image), sent)  # type: ignore[arg-type]
            assert Served(service, name).digest() == digest(replayed.learner)
        count = sum(service.store.last_seq(service.stream(name).id) for name in names)
    p50, p99 = np.percentile(1000 * taken, [50, 99]).round(1).tolist()
    return {"requests": len(taken), "events": count, "errors": 0, "p50_ms": p50, "p99_ms": p99}
