"""Every command that writes, in a folder full of a user's files: all of them are as they were afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from taps.cli import main
from tests.users_files import DONE, READ, REFUSED, fill, lost, snapshot

Call = Callable[..., tuple[int, str, str]]


def test_every_command_is_tried() -> None:
    assert {*DONE, *REFUSED} | READ == {*main.COMMANDS}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    fill(home)
    for name in ("TAPS_FEATURES", "TAPS_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # Nobody waits at the page: its questions count as answered, and Ctrl-C comes when all is written.
    monkeypatch.setattr("taps.serve.folder.Folder.finish", lambda self, progress: None)
    monkeypatch.setattr("taps.cli.label.wait_for_more", stop)
    return home


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_commands_that_write_beside_the_files(
    home: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    before = snapshot(home)
    for name, calls in DONE.items():
        for words in calls:
            code, said, err = here(*words)
            assert code == 0, (words, said, err)
            assert lost(before, home) == [], (name, words)
    assert list((home / "sorted").rglob("* (2).png"))  # names were taken


@pytest.mark.parametrize("name", REFUSED)
def test_commands_that_would_write_over_the_files(
    home: Path, here: Call, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(home)
    # What is refused is refused before the model is loaded.
    monkeypatch.setattr("taps.model.clip.load_clip", stop)
    before = snapshot(home)
    for words in REFUSED[name]:
        code, said, err = here(*words)
        assert (code, "taps: " in err) == (2, True), (words, said, err)
        assert lost(before, home) == [], words


@pytest.mark.parametrize("point", [1, 2, 4, 9, 20])
def test_ctrl_c_at_any_write(home: Path, here: Call, monkeypatch: pytest.MonkeyPatch, point: int) -> None:
    monkeypatch.chdir(home)
    before = snapshot(home)
    for words in chain(*DONE.values()):
        with monkeypatch.context() as patch:
            interrupt(patch, point)
            here(*words)
        assert lost(before, home) == [], words
        assert not list((home / "sorted").rglob("*.part"))


def interrupt(patch: pytest.MonkeyPatch, point: int) -> None:
    """Ctrl-C at the so manieth write."""
    left = [point]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(*given, **named)

        return call

    for module, name in ((os, "replace"), (os, "fsync"), (os, "link"), (shutil, "copystat"), (Path, "touch")):
        patch.setattr(module, name, counted(getattr(module, name)))
