"""A stream with everything in it, done through a service or by a bare learner: both must end the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from taps.learner import Learner
from taps.learner.learns import Learns
from taps.model.clip import Clip
from taps.serve.records import StreamConfig
from taps.serve.service import Service
from taps.serve.stream_session import StreamSession
from tests.serve.conftest import png

Step = tuple[str, Any]


def digest(learner: Learns) -> str:
    """Of every bit of a learner's state."""
    state = learner.state_dict()
    found = hashlib.sha256(json.dumps(state["values"], sort_keys=True).encode())
    for name in sorted(state["tensors"]):
        found.update(name.encode())
        found.update(state["tensors"][name].cpu().numpy().tobytes())
    return found.hexdigest()


class Bare:
    """A learner on its own."""

    def __init__(self, clip: Clip, begin: StreamConfig) -> None:
        self.learner = Learner(clip, begin.classes, begin.method, seed=begin.seed, **begin.settings)

    def predict(self, number: int) -> bool:
        return self.predict_bytes(png(number))

    def predict_bytes(self, data: bytes) -> bool:
        return self.learner.predict_one(data).ask

    def label(self, id: int, label: str) -> None:
        self.learner.learn_one(id, label)

    def undo(self, id: int) -> None:
        self.learner.undo(id)

    def add(self, name: str) -> None:
        self.learner.add_class([name])


class Served:
    """The same through a service, whichever process of it is running."""

    def __init__(self, service: Service, name: str = "pets") -> None:
        self.service, self.name = service, name

    def _do(self, act: Callable[[StreamSession], Any]) -> Any:
        return self.service.send(self.name, act).result()

    def predict(self, number: int) -> bool:
        outcome = self._do(lambda session: session.predict(png(number), f"{number}.png", "test"))
        assert outcome.recorded
        return bool(outcome.row.state == "open")

    def label(self, id: int, label: str) -> None:
        self._do(lambda session: session.label(id, label, "test"))

    def undo(self, id: int) -> None:
        self._do(lambda session: session.undo(id, "test"))

    def add(self, name: str) -> None:
        self._do(lambda session: session.add_classes([name], "test"))

    def digest(self) -> str:
        found: str = self._do(lambda session: digest(session.learner_log.learner()))
        return found


def live_through(where: Bare | Served, images: range, waiting: list[int] | None = None) -> list[int]:
    """Images with late answers, corrections, answers taken back, and a class that comes in between."""
    waiting = [] if waiting is None else waiting
    for number in images:
        if where.predict(number):
            waiting.append(number)
        if number % 4 == 3 and waiting:
            id = waiting.pop(0)
            where.label(id, ("cat", "dog", "ship")[id % 3])
            if id % 5 == 0:
                where.label(id, ("cat", "dog", "ship")[(id + 1) % 3])
            elif id % 5 == 1:
                where.undo(id)
        if number == 25:
            where.add("bird")
    return waiting
