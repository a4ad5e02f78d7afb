"""Which actor has which stream, with a stand-in for Ray that computes in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taps.clip import Clip
from taps.evaluate.jobs import ModelSpec

pytest.importorskip("fastapi", reason="needs the extra serve")

from taps.cluster import places as module
from taps.cluster.origin import Origin
from taps.cluster.places import Computing, RayPlace, RayPlaces
from taps.serve.records import OPEN
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import beginning, png


class Machines:
    """As much of Ray as actors need: machines with room for one actor each.

    Args:
        make: What an actor answers calls with.

    Attributes:
        count: How many machines there are.
        acts: What was called.
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

        def call(act: str, args: Any, files: Any) -> Any:
            assert not any(isinstance(each, Path) for each in args)  # the store is not there
            self.acts.append(act)
            return answer(act, args, files)

        ready = SimpleNamespace(remote=object)
        return SimpleNamespace(call=SimpleNamespace(remote=call), __ray_ready__=ready)

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return references, []

    def get(self, value: Any) -> Any:
        return value

    def kill(self, handle: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.0)


@pytest.fixture
def machines() -> Machines:
    """Those whose actors take calls and do nothing."""
    return Machines(lambda: lambda act, args, files: (pickle.dumps((True, None)), {}))


@pytest.fixture
def places(machines: Machines) -> Iterator[RayPlaces]:
    with RayPlaces(machines, ModelSpec("tiny")) as made:
        yield made


def streams_at(places: RayPlaces, calls: list[int]) -> list[RayPlace]:
    """Streams that make so many calls each."""
    made = [places.place_of(number) for number in range(len(calls))]
    for place, often in zip(made, calls, strict=True):
        for _ in range(often):
            place.call("peek")
    assert all(isinstance(place, RayPlace) for place in made)
    return made  # type: ignore[return-value]


def move(stream: RayPlace) -> bool:
    """As a keeper does it; whether it moved."""
    with stream.moving() as wanted:
        if wanted:
            stream.call("let_go")
            stream.call("peek")
    return wanted


def sizes(places: RayPlaces) -> list[int]:
    return [len(actor.streams) for actor in places.actors]


def test_streams_that_ask_least_move_until_actors_are_about_even(
    machines: Machines, places: RayPlaces
) -> None:
    streams = streams_at(places, [50, 1, 60, 3, 2, 70])
    assert not any(move(stream) for stream in streams)  # there is nowhere to go
    machines.count = 2
    assert not any(move(streams[index]) for index in (0, 2, 5))  # three others ask less
    assert [move(streams[index]) for index in (1, 3, 4)] == [True, True, True]
    assert sizes(places) == [3, 3]
    assert not any(move(stream) for stream in streams)


def test_streams_that_ask_alike_move_too(machines: Machines, places: RayPlaces) -> None:
    streams = streams_at(places, [40, 41, 40, 41])
    machines.count = 2
    assert [move(stream) for stream in streams] == [True, True, False, False]


def test_nothing_moves_for_a_small_gain(machines: Machines, places: RayPlaces) -> None:
    streams = streams_at(places, [5] * 12)
    machines.count = 2
    streams += streams_at(places, [5] * 10)
    assert sizes(places) == [12, 10]
    assert not any(move(stream) for stream in streams)


def test_one_stream_moves_at_a_time(machines: Machines, places: RayPlaces) -> None:
    first, second, *_ = streams_at(places, [1] * 6)
    machines.count = 2
    with first.moving() as wanted:
        assert wanted
        with second.moving() as wanted:
            assert not wanted
    with second.moving() as wanted:
        assert wanted


def test_a_machine_whose_actor_cannot_begin_gets_none_again(
    machines: Machines, places: RayPlaces, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    streams_at(places, [1, 1, 1])
    assert sizes(places) == [3]
    machines.count = 3
    streams_at(places, [1])
    assert machines.selectors == [None, None, {"ray.io/node-id": "!in(1)"}]
    assert caplog.text.count("10.0.0.2 of the Ray cluster can do none of the work: ModuleNotFoundError") == 1


def told(tmp_path: Path, clip: Clip, places: RayPlaces | None, until: Callable[[int], bool]) -> list[Any]:
    """What four streams say of images they are shown in turns, round after round; questions are answered."""
    said, names = [], ["a", "b", "c", "d"]
    with Service(Store(str(tmp_path)), clip, places=places) as service:
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


def test_streams_of_a_service_move_to_a_machine_that_joins_and_go_on_to_the_same_bits(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(lambda: Computing(ModelSpec("tiny"), "cpu", Origin(tmp_path)).call)
    monkeypatch.chdir(tmp_path)
    rounds = list[int]()
    with RayPlaces(machines, ModelSpec("tiny")) as places:

        def even(number: int) -> bool:
            rounds.append(number)
            assert number < 200
            if number == 3:
                assert sizes(places) == [4]
                machines.count = 2
            return number > 5 and sizes(places) == [2, 2]

        there = told(tmp_path / "there", tiny, places, even)
        assert machines.acts.count("load") == 2 <= machines.acts.count("save")
    assert any(state == OPEN for *_, state in there)
    assert there == told(tmp_path / "here", tiny, None, lambda number: number == rounds[-1])
