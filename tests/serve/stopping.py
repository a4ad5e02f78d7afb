"""Told to stop in the middle of work: it ends soon, saves everything, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from taps.disk import PART
from taps.model.clip import Clip
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.patient import LONG
from tests.serve.processes import processes_of
from tests.serve.zygote import Zygote

SOON = 5.0


def stopped(zygote: Zygote, folder: Path, clip: Clip, *, clients: int) -> dict[str, Any]:
    """Send SIGTERM while clients send images: what was acknowledged is there, nothing is to be replayed."""
    pid, url = zygote.start(str(folder), folder)
    acknowledged: list[int] = []
    statuses: list[int] = []
    body = {"name": "pets", "classes": CLASSES, "method": "taps", "settings": ASKING}
    made = httpx.post(f"{url}/v1/streams", json=body, timeout=LONG, trust_env=False)
    assert made.status_code == 201

    def send(number: int) -> None:
        with httpx.Client(timeout=LONG, trust_env=False) as http:
            while True:
                try:
                    answer = http.post(f"{url}/v1/streams/pets/predict", content=png(number))
                except httpx.TransportError:
                    return
                statuses.append(answer.status_code)
                if answer.status_code == 200:
                    acknowledged.append(answer.json()["id"])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < clients:
        time.sleep(0.01)
    began, above = time.monotonic(), zygote.process.pid
    assert len(processes_of(above)) > 4  # itself, the service, two that start those that compute, and these
    os.kill(pid, signal.SIGTERM)
    while Path(f"/proc/{pid}").exists() or (
        processes_of(above) != [above] and time.monotonic() < began + LONG
    ):
        time.sleep(0.01)
    assert processes_of(above) == [above]
    seconds = time.monotonic() - began
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 503}, set(statuses)
    assert not list(folder.rglob(f"*{PART}"))
    assert not list(folder.glob("export-*"))
    with Service(Store(str(folder)), clip) as service:
        rows = service.store.predictions(service.stream("pets").id)
        assert {row.id for row in rows} >= set(acknowledged)
        assert not service.worker("pets").session.learner_log.unsaved()
    return {"acknowledged": len(acknowledged), "seconds": round(seconds, 2), "in_time": seconds <= SOON}
