"""A cluster that is not there is said in one sentence, before anything that takes time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from taps.cluster import connect
from taps.cluster.connect import check_reachable, connected, find_ray
from taps.errors import SettingsError
from taps.study.evaluate.options import Execution

MACHINE = {"Alive": True, "Resources": {"CPU": 2.0}}
COMMANDS = [
    ["eval", "--dataset", "nowhere", "--out", "out"],
    ["compare", "--dataset", "nowhere", "--out", "out"],
    ["stats", "--data", "nowhere", "--out", "out"],
    ["serve"],
]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no missing cluster; nor does the environment name one."""
    monkeypatch.setattr(connect, "PATIENCE", 60.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_the_extra_one_sentence_says_what_to_install(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from taps.cli.main import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'taps-vlm\[ray\]'"):
        app([*command, "--ray"], standalone_mode=False)
    assert not os.listdir(tmp_path)


def test_nothing_that_takes_time_is_imported_before_a_missing_cluster_is_said(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules |= {{"ray": None, "torch": None}}
from taps.cli.main import app
from taps.errors import SettingsError
for command in {COMMANDS}:
    try:
        app([*command, "--ray"], standalone_mode=False)
    except SettingsError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def starting(said: list[Any], *, head: str | None, sockets: Sequence[str] = (__file__,)) -> SimpleNamespace:
    """As good as the module `ray`, on a machine that knows of this head, and whose raylets have `sockets`."""

    def find(address: str) -> str | None:
        if head is None:
            raise ConnectionError("Could not find any running Ray instance.\nMore of it.")
        return head

    def init(address: str, **given: object) -> None:
        said.append(address)
        if address == "auto":
            find(address)

    services = SimpleNamespace(
        canonicalize_bootstrap_address=find, _find_address_from_flag=lambda flag: sockets
    )
    private = SimpleNamespace(services=services)
    return SimpleNamespace(
        init=init, nodes=lambda: [MACHINE], shutdown=lambda: said.append("left"), _private=private
    )


@contextmanager
def listening() -> Iterator[str]:
    """The address of a port that answers as a gRPC server does: with a frame of its settings."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # until the port is closed
                while True:
                    line, _ = server.accept()
                    with line:
                        line.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                        line.recv(99)

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_without_a_cluster_one_sentence_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", starting([], head=None))
    with pytest.raises(SettingsError, match="ray start --head") as caught:
        find_ray("auto")
    assert "\n" not in str(caught.value)


def test_a_bare_flag_joins_the_cluster_or_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as head:
        for known, tried in ((head, ["auto"]), (None, ["local"])):
            said: list[Any] = []
            monkeypatch.setitem(sys.modules, "ray", starting(said, head=known))
            with connected("default"):
                pass
            assert said == [*tried, "left"]


def test_where_no_head_answers_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, but not listening
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setitem(sys.modules, "ray", starting([], head=address))  # it was there once
        for given in (address, "auto", "default"):
            with pytest.raises(SettingsError, match=f"No Ray cluster answers at {address}"):
                find_ray(given)
        monkeypatch.setenv("RAY_ADDRESS", address)  # what "auto" means then
        monkeypatch.setitem(sys.modules, "ray", starting([], head=None))
        with pytest.raises(SettingsError, match=f"No Ray cluster answers at {address}"):
            find_ray("auto")
    for wrong in ("here", "host:many", ":", "ray://host:10001"):
        with pytest.raises(SettingsError, match="HOST:PORT"):
            check_reachable(wrong)


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_another_service_is_not_taken_for_a_head(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers otherwise, or not at all, is refused in seconds; Ray would try for minutes."""
    monkeypatch.setattr(connect, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line, suppress(OSError):  # the other side hangs up
                line.sendall(reply)
                while line.recv(99):
                    pass

        Thread(target=serve, daemon=True).start()
        with pytest.raises(SettingsError, match="No Ray cluster answers at"):
            check_reachable(f"127.0.0.1:{server.getsockname()[1]}")


def test_a_machine_that_is_no_part_of_the_cluster_is_told_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as address:
        monkeypatch.setitem(sys.modules, "ray", starting([], head=None, sockets=()))
        with pytest.raises(SettingsError, match=f"ray start --address {address}"):
            find_ray(address)


def test_a_cluster_in_a_container_is_refused_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with listening() as address:
        monkeypatch.setitem(sys.modules, "ray", starting([], head=address, sockets=[f"{tmp_path}/raylet"]))
        with pytest.raises(SettingsError, match="--ray local"):
            find_ray("auto")


@pytest.mark.parametrize(("cpus", "gpus"), [(-1.0, 0.0), (1.0, -0.5), (1.0, 1.5), (1.0, 1e-6)])
def test_shares_that_ray_does_not_know_are_refused(cpus: float, gpus: float) -> None:
    with pytest.raises(SettingsError, match=f"not {cpus:g} cores and {gpus:g} GPUs"):
        find_ray("local", Execution(cpus_per_run=cpus, gpus_per_run=gpus))


def test_where_there_is_no_room_one_machine_is_refused_and_a_cluster_may_grow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[Any] = []
    with listening() as head:
        monkeypatch.setitem(sys.modules, "ray", starting(said, head=head))
        for share in (Execution(gpus_per_run=1), Execution(cpus_per_run=3)):
            with pytest.raises(SettingsError, match="This machine has no room"), connected("local", share):
                pytest.fail("there is no room")
            with connected(head, share):
                assert "waiting" in caplog.messages[-1]
        with connected("local", Execution(cpus_per_run=0.5)):
            pass
    assert said.count("left") == 5
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("gpus", "said"), [(0.0, ["The 4 GPUs of the cluster are left alone"]), (0.5, [])])
def test_gpus_that_nobody_takes_are_mentioned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gpus: float, said: list[str]
) -> None:
    ray = starting([], head=None)
    machine = MACHINE | {"Resources": {"CPU": 16.0, "GPU": 2.0}}
    ray.nodes = lambda: [machine, machine, MACHINE, machine | {"Alive": False}]
    monkeypatch.setitem(sys.modules, "ray", ray)
    with connected("local", Execution(gpus_per_run=gpus)):
        assert [message.split(":")[0] for message in caplog.messages] == said


def test_jobs_beside_a_cluster_are_refused() -> None:
    with pytest.raises(SettingsError, match="leave out --jobs"):
        Execution(jobs=2, ray="local")


def test_nothing_to_do_needs_no_cluster(tmp_path: Path) -> None:
    from taps.cluster.runs import run_on_ray

    assert run_on_ray([], tmp_path, Execution(ray="127.0.0.1:1"), lambda what, index, value: None) == {}
