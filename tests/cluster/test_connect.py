"""A cluster that is not there is said in one sentence."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from taps.cluster.connect import check_reachable, connected
from taps.errors import SettingsError
from taps.evaluate.options import Execution


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'taps-vlm\[ray\]'"), connected("local"):
        pass


def test_without_a_cluster_one_sentence_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**given: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nMore of it.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(SettingsError, match="ray start --head") as caught, connected("auto"):
        pass
    assert "\n" not in str(caught.value)


def test_an_address_where_nobody_listens_is_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, but not listening
        with pytest.raises(SettingsError, match="No Ray cluster answers"):
            check_reachable(f"127.0.0.1:{closed.getsockname()[1]}")
    for wrong in ("here", "host:many", ":"):
        with pytest.raises(SettingsError, match="HOST:PORT"):
            check_reachable(wrong)


def test_nothing_to_do_needs_no_cluster(tmp_path: Path) -> None:
    from taps.cluster.runs import run_on_ray

    assert run_on_ray([], tmp_path, Execution(ray="127.0.0.1:1"), lambda what, index, value: None) == {}
