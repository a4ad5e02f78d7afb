"""Which actor has which stream, with a stand-in for Ray that computes in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taps.model.clip import Clip
from taps.study.evaluate.jobs import ModelSpec

pytest.importorskip("fastapi", reason="needs the extra serve")

from taps.cluster.executors import Computing, RayExecutor, RayExecutors
from taps.cluster.machines import Origin
from taps.serve import stream_worker
from taps.serve.learners import Learners
from taps.serve.service import Service
from taps.serve.store import Store
from taps.streams.row import OPEN
from tests.serve.conftest import beginning, png


class Machines:
    """As much of Ray as actors need: machines with room for one actor each.

    Args:
        make: What an actor answers calls with.

    Attributes:
        count: How many machines there are.
        acts: Names of what was called.
        selectors: Which machines each actor may be on.
    """

    exceptions = SimpleNamespace(RayActorError=ConnectionError, RayError=ConnectionError)

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self.make, self.count, self.acts, self.selectors = make, 1, list[str](), list[Any]()

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "Alive": True,
                "NodeID": str(n),
                "NodeManagerAddress": f"10.0.0.{n + 1}",
                "Resources": {"CPU": 1.0},
            }
            for n in range(self.count)
        ]

    def remote(self, kind: type) -> Any:
        def options(*, label_selector: Any, **_: Any) -> Any:
            self.selectors.append(label_selector)
            return SimpleNamespace(remote=lambda *_: self._actor())

        return SimpleNamespace(options=options)

    def _actor(self) -> Any:
        answer = self.make()

        def call(act: Callable[..., Any], args: Any, files: Any) -> Any:
            assert not any(isinstance(each, Path) for each in args)  # the store is not there
            self.acts.append(act.__name__)
            return answer(act, args, files)

        ready = SimpleNamespace(remote=object)
        return SimpleNamespace(call=SimpleNamespace(remote=call), __ray_ready__=ready)

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return references, []

    def get(self, value: Any) -> Any:
        return value

    def kill(self, handle: Any) -> None:
        pass


@pytest.fixture
def machines() -> Machines:
    """Those whose actors take calls and do nothing."""
    return Machines(lambda: lambda act, args, files: (pickle.dumps((True, None)), {}))


@pytest.fixture
def places(machines: Machines) -> Iterator[RayExecutors]:
    with RayExecutors(machines, ModelSpec("tiny")) as made:
        yield made


def streams_at(places: RayExecutors, count: int) -> list[RayExecutor]:
    """Streams that have made a call each."""
    made = [places.executor_of(number) for number in range(count)]
    for place in made:
        place.call(Learners.summary, 1)
    assert all(isinstance(place, RayExecutor) for place in made)
    return made  # type: ignore[return-value]


def sizes(places: RayExecutors) -> list[int]:
    return [len(actor.streams) for actor in places.actors]


def test_streams_that_begin_or_come_back_go_to_the_actor_with_the_fewest(
    machines: Machines, places: RayExecutors
) -> None:
    streams = streams_at(places, 4)
    machines.count = 2
    streams_at(places, 1)
    assert sizes(places) == [4, 1]
    for stream in streams[:2]:
        stream.call(Learners.evict, 1)  # it is unloaded
        stream.call(Learners.summary, 1)
    assert sizes(places) == [3, 2]


def test_a_machine_whose_actor_cannot_begin_gets_none_again(
    machines: Machines,
    places: RayExecutors,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = ConnectionError("(pid=1, ip=10.0.0.2, …)\nModuleNotFoundError: No module named 'taps'")
    error.actor_init_failed = True  # type: ignore[attr-defined]

    first = places.actors[0].ready

    def get(value: Any) -> Any:
        if type(value) is object and value is not first and machines.count == 2:
            raise error
        return value

    monkeypatch.setattr(machines, "get", get)
    machines.count = 2
    streams_at(places, 3)
    assert sizes(places) == [3]
    machines.count = 3
    streams_at(places, 1)
    assert machines.selectors == [None, None, {"ray.io/node-id": "!in(1)"}]
    assert caplog.text.count("10.0.0.2 of the Ray cluster can do none of the work: ModuleNotFoundError") == 1


def told(tmp_path: Path, clip: Clip, places: RayExecutors | None, until: Callable[[int], bool]) -> list[Any]:
    """What four streams say of images they are shown in turns, round after round; questions are answered."""
    said, names = [], ["a", "b", "c", "d"]
    with Service(Store(str(tmp_path)), clip, executors=places) as service:
        for name in names:
            service.create(beginning(name), "me")
        for number in count():
            image = png(number)
            for name in names:
                row = service.send(name, lambda live, image=image: live.predict(image, "", "me")).result().row  # type: ignore[misc]
                said.append((row.id, row.label, row.entropy, row.state))
                if row.state == OPEN:
                    service.send(name, lambda live, id=row.id: live.label(id, "dog", "me")).result()  # type: ignore[misc]
                service.send(name, lambda live: None).result()  # what is due after the prediction is done
            if until(number):
                return said
    raise AssertionError


def test_streams_of_a_service_come_back_on_a_machine_that_joins_and_go_on_to_the_same_bits(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(lambda: Computing(ModelSpec("tiny"), "cpu", Origin(tmp_path)).call)
    monkeypatch.chdir(tmp_path)
    with RayExecutors(machines, ModelSpec("tiny")) as places:

        def joined(number: int) -> bool:
            if number == 3:
                assert sizes(places) == [4]
                machines.count = 2
                monkeypatch.setattr(stream_worker, "IDLE", -1.0)  # every stream rests after every image
            return number == 6

        there = told(tmp_path / "there", tiny, places, joined)
        assert len(places.actors) == 2
        assert machines.acts.count("load") >= 12
    assert any(state == OPEN for *_, state in there)
    assert there == told(tmp_path / "here", tiny, None, lambda number: number == 6)
