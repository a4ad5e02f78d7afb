"""A stream with labels through a service that is killed again and again: nothing acknowledged may be lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from taps.model.clip import Clip
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import ASKING, CLASSES, beginning, png
from tests.serve.patient import LONG
from tests.serve.processes import processes_of
from tests.serve.streams import Bare, Served, digest
from tests.serve.zygote import Zygote

DIFFERENT = 97  # pictures; a stream repeats them


@dataclass
class Told:
    """What was acknowledged."""

    predictions: dict[int, dict[str, Any]] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    resent: int = 0


class Service9:
    """A service that is killed by SIGKILL at random moments and started again.

    Args:
        zygote: Starts it.
        place: Of its store.
        files: Of its store.
        seed: For the moments.
        part: Whether one of the processes below it is killed instead, which the service replaces: those that
            compute, and those that start them.
    """

    def __init__(self, zygote: Zygote, place: str, files: Path, seed: int, *, part: bool) -> None:
        self.part = part
        self.zygote, self.place, self.files, self.random = zygote, place, files, random.Random(seed)
        self.kills = 0
        self.http = httpx.Client(timeout=LONG, trust_env=False)
        self.pid, self.url = self.zygote.start(place, files)

    def kill_after(self, seconds: float) -> None:
        time.sleep(seconds)
        if self.part:
            above = self.zygote.process.pid  # takes in those whose parent died
            below = [each for each in processes_of(above) if each not in (above, self.pid)]
            with suppress(ProcessLookupError):  # one whose parent was killed before may just have ended
                os.kill(self.random.choice(below), signal.SIGKILL)
                self.kills += 1
            return
        self.zygote.kill(self.pid)
        self.kills += 1
        self.pid, self.url = self.zygote.start(self.place, self.files)

    def close(self) -> None:
        self.zygote.kill(self.pid)
        self.http.close()


def send(service: Service9, told: Told, method: str, path: str, **more: Any) -> httpx.Response:
    """A request, sent again until it is answered."""
    while True:
        try:
            answer = service.http.request(method, service.url + path, **more)
        except httpx.TransportError:
            told.resent += 1
            time.sleep(0.005)
            continue
        assert answer.status_code < 500, answer.text
        return answer


def drive(service: Service9, images: int, told: Told) -> None:
    """Each image once, by key; questions are answered three images later, some corrected."""
    open_questions: list[int] = []
    for number in range(images):
        answer = send(
            service, told, "POST", "/v1/streams/pets/predict",
            content=png(number % DIFFERENT), headers={"Idempotency-Key": str(number)},
        )  # fmt: skip
        said = answer.json()
        assert answer.status_code == 200, said
        assert said["id"] == number
        told.predictions[number] = said
        if said["query_id"] is not None:
            open_questions.append(number)
        while open_questions and open_questions[0] <= number - 3:
            id = open_questions.pop(0)
            for label in labels_of(id):
                send(service, told, "POST", f"/v1/streams/pets/queries/{id}/label", json={"label": label})
                told.labels[id] = label


def labels_of(id: int) -> list[str]:
    """The answers to a question, the last of which stands."""
    return [CLASSES[id % 3], CLASSES[(id + 1) % 3]] if id % 7 == 0 else [CLASSES[id % 3]]


def undisturbed(clip: Clip, images: int) -> str:
    """The hash of the state of a run that nobody killed."""
    bare, open_questions = Bare(clip, beginning()), []
    for number in range(images):
        if bare.predict_bytes(png(number % DIFFERENT)):
            open_questions.append(number)
        while open_questions and open_questions[0] <= number - 3:
            id = open_questions.pop(0)
            for label in labels_of(id):
                bare.label(id, label)
    return digest(bare.learner)


def killed(
    zygote: Zygote,
    place: str,
    files: Path,
    clip: Clip,
    *,
    images: int,
    kills: int,
    seed: int = 0,
    part: bool = False,
) -> dict[str, Any]:
    """Run it and check that all that was acknowledged is there; figures of the run."""
    torch.set_num_threads(1)  # as the service computes: several threads add up in another order
    service, told = Service9(zygote, place, files, seed, part=part), Told()
    body = {
        "name": "pets",
        "classes": CLASSES,
        "method": "taps",
        "settings": ASKING,
        "seed": 1,
        "deadline": None,
    }
    send(service, told, "POST", "/v1/streams", json=body)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            drive(service, images, told)
        except BaseException as error:
            errors.append(error)

    driver = threading.Thread(target=run, daemon=True)
    driver.start()
    while driver.is_alive() and service.kills < kills:
        done = len(told.predictions)
        pace = images / kills
        while driver.is_alive() and len(told.predictions) < min(
            done + service.random.uniform(0.3, 1.5) * pace, images - 1
        ):
            time.sleep(0.002)
        service.kill_after(service.random.uniform(0, 0.03))
    driver.join()
    service.close()
    assert not errors, errors[0]
    with Service(Store(place, files), clip) as after:
        store = after.store
        rows = {row.id: row for row in store.predictions(after.stream("pets").id)}
        for id, said in told.predictions.items():
            row = rows[id]
            assert (row.top[0][0], row.entropy, row.threshold) == (
                said["top"][0]["label"],
                said["entropy"],
                said["threshold"],
            )
        for id, label in told.labels.items():
            assert rows[id].answer == label
        assert len(rows) == images
        same = Served(after).digest() == undisturbed(clip, images)
    return {
        "images": images, "labels": len(told.labels), "kills": service.kills, "sent again": told.resent,
        "lost": 0, "same hash": same,
    }  # fmt: skip
