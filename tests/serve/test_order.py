"""The order of a stream's events, as clients who send at the same time may rely on it."""

from __future__ import annotations

import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, permutations
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from fastapi.testclient import TestClient

from taps.serve.client import Client
from taps.serve.service import Service
from tests.serve.conftest import CLASSES, beginning, client_of, png
from tests.serve.patient import LONG
from tests.serve.streams import Served

S = "/v1/streams/pets"
EVERY = {"policy": "fixed", "tau0": 0.0, "recent": 8}
HEADED = {"method": "zero_shot+", "settings": EVERY}


def say(http: TestClient, label: str, key: str) -> tuple[int, Any]:
    answer = http.post(f"{S}/queries/0/label", json={"label": label}, headers={"Idempotency-Key": key})
    return answer.status_code, answer.json().get("changed")


def test_the_key_of_an_answer_that_changed_nothing_is_kept(
    place: tuple[str, Path], open_service: Any
) -> None:
    service = open_service(*place)
    service.create(beginning(**HEADED), "test")
    http = next(client_of(service))
    http.post(f"{S}/predict", content=png(0))
    assert say(http, "cat", "a") == (200, True)
    assert say(http, "cat", "b") == (200, False)
    assert say(http, "dog", "c") == (200, True)
    assert say(http, "cat", "b") == (200, False)  # sent again: it was before "dog"
    assert http.get(f"{S}/queries/0").json()["answer"] == "dog"
    assert say(http, "ship", "b") == (409, None)
    before = Served(service).digest()
    service.stop()
    shutil.rmtree(service.store.snapshots(1).folder)
    again = open_service(*place)  # replays the log, which holds more events than active answers
    assert Served(again).digest() == before
    assert again.worker("pets").session.learner_log.replayed == 4


class Sent(NamedTuple):
    """A request that was acknowledged."""

    key: str
    began: float
    ended: float


def labeller(url: str, name: str, count: int) -> list[Sent]:
    """Answers the same few questions as the others do, each answer sent twice, as after a lost connection."""
    rng, found = random.Random(name), list[Sent]()
    with httpx.Client(base_url=url, timeout=LONG, trust_env=False) as http:
        for number in range(count):
            key, id = f"{name}-{number}", rng.randrange(3)
            asked = {"json": {"label": rng.choice(CLASSES)}, "headers": {"Idempotency-Key": key}}
            began = time.monotonic()
            first = http.post(f"{S}/queries/{id}/label", **asked)  # type: ignore[arg-type]
            found.append(Sent(key, began, time.monotonic()))
            again = http.post(f"{S}/queries/{id}/label", **asked)  # type: ignore[arg-type]
            assert (first.status_code, again.status_code, again.json()["changed"]) == (200, 200, False)
    return found


def test_what_was_acknowledged_before_another_was_sent_comes_before_it(url: str, service: Service) -> None:
    service.create(beginning(**HEADED), "test")
    for number in range(3):
        Served(service).predict(number)
    with ThreadPoolExecutor(4) as pool:
        sent = list(chain.from_iterable(pool.map(lambda name: labeller(url, name, 8), "abcd")))
    stream = service.stream("pets").id
    events = service.store.events(stream)
    place = {event.key: event.seq for event in events}
    assert len(events) == 3 + 4 * 8  # each key once
    for one, other in permutations(sent, 2):
        if one.ended < other.began:
            assert place[one.key] < place[other.key]
    last = {
        event.prediction: event.value["label"] for event in events if event.kind in ("answered", "repeated")
    }
    assert {row.id: row.answer for row in service.store.predictions(stream, ids=list(last))} == last
    with Client(url) as client:  # everybody who listens is told in this order
        told = [event["seq"] for event in client.events("pets", after=0, once=True)]
    assert told == [event.seq for event in events]
