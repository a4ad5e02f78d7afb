"""On a full disk, and killed at any moment, no command costs a file of a folder full of a user's files."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.users_files import DONE, fill, lost, snapshot

pytestmark = pytest.mark.slow
ALONE = ("run", "predict", "watch", "eval", "features", "train", "demo", "token", "label")
ENV = os.environ | {"OMP_NUM_THREADS": "1", "BROWSER": "true"}


def start(home: Path, words: list[str], room: int | None = None) -> subprocess.Popen[bytes]:
    """A command; no file of it may be larger than `room` bytes."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    env = ENV | {name: str(home.parent / name) for name in ("TAPS_FEATURES", "TAPS_CACHE")}
    command = [sys.executable, "-m", "taps", *words]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=home, env=env, stdout=quiet, stderr=quiet, preexec_fn=limited)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mine") / "home"
    home.mkdir()
    fill(home)
    return home


def copied(mine: Path, place: Path) -> Path:
    shutil.copytree(mine, place / "home", symlinks=True)
    return place / "home"


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("room", [0, 100, 5_000])
def test_a_full_disk_costs_no_file(mine: Path, tmp_path: Path, name: str, room: int) -> None:
    home = copied(mine, tmp_path)
    before = snapshot(home)
    process = start(home, DONE[name][0], room)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:  # a page waits for somebody
        process.send_signal(signal.SIGINT)
        process.wait()
    assert lost(before, home) == []


@pytest.mark.parametrize("name", ALONE)
def test_a_kill_at_any_moment_costs_no_file(mine: Path, tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    home = copied(mine, tmp_path)
    before = snapshot(home)
    for number in range(4):
        words = [word.replace("new", f"new-{number}-") for word in DONE[name][0]]
        process = start(home, words)
        there = len(snapshot(home))
        while process.poll() is None and len(snapshot(home)) == there:  # until it begins to write
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.5))
        process.kill()
        process.wait()
        assert lost(before, home) == []
    # The next sorting is whole, whatever the kills have left.
    if name in ("run", "predict"):
        assert start(home, [word.replace("new", "last") for word in DONE[name][0]]).wait() == 0
        assert lost(before, home) == []
