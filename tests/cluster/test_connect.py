"""A cluster that is not there is said in one sentence, before anything that takes time."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from taps.cluster import connect
from taps.cluster.connect import check_reachable, connected
from taps.errors import SettingsError
from taps.evaluate.options import Execution

COMMANDS = [
    ["eval", "--dataset", "nowhere", "--out", "out"],
    ["ablate", "rate", "--dataset", "nowhere", "--out", "out"],
    ["compare", "--dataset", "nowhere", "--out", "out"],
    ["stats", "--data", "nowhere", "--out", "out"],
    ["serve"],
]


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


def starting(said: list[Any], *, found: bool) -> SimpleNamespace:
    """As good as the module `ray`, on a machine that belongs to a cluster or to none."""

    def init(address: str, **given: object) -> None:
        said.append(address)
        if address == "auto" and not found:
            raise ConnectionError("Could not find any running Ray instance.\nMore of it.")

    return SimpleNamespace(init=init, shutdown=lambda: said.append("left"))


def test_without_a_cluster_one_sentence_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", starting([], found=False))
    with pytest.raises(SettingsError, match="ray start --head") as caught, connected("auto"):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("found", "tried"), [(True, ["auto"]), (False, ["auto", "local"])])
def test_a_bare_flag_joins_the_cluster_or_starts_one(
    found: bool, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setitem(sys.modules, "ray", starting(said, found=found))
    with connected("default"):
        pass
    assert said == [*tried, "left"]


def test_an_address_where_no_head_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "PATIENCE", 0.2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, but not listening
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(SettingsError, match="No Ray cluster answers"):
            check_reachable(address)
        monkeypatch.setenv("RAY_ADDRESS", address)  # what "auto" means then
        monkeypatch.setitem(sys.modules, "ray", starting([], found=True))
        with pytest.raises(SettingsError, match="No Ray cluster answers"), connected("auto"):
            pass
        closed.listen()  # and says nothing
        with pytest.raises(SettingsError, match="No Ray cluster answers"):
            check_reachable(address)
    for wrong in ("here", "host:many", ":"):
        with pytest.raises(SettingsError, match="HOST:PORT"):
            check_reachable(wrong)


def test_another_service_is_not_taken_for_a_head() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def refuse() -> None:
            with web.accept()[0] as line:
                line.sendall(b"HTTP/1.1 400 Bad Request")

        Thread(target=refuse).start()
        with pytest.raises(SettingsError, match="is not Ray"):
            check_reachable(f"127.0.0.1:{web.getsockname()[1]}")


def test_nothing_to_do_needs_no_cluster(tmp_path: Path) -> None:
    from taps.cluster.runs import run_on_ray

    assert run_on_ray([], tmp_path, Execution(ray="127.0.0.1:1"), lambda what, index, value: None) == {}
