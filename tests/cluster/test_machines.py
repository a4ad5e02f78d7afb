"""Evaluations on machines that share neither address nor disk; one of them is lost on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.machines import HEAD, Machine, make_machines
from tests.cluster.test_ray import without_times

pytestmark = pytest.mark.slow
DATA = Path(__file__).parents[1] / "assets" / "caltech101-even.zip"
EVAL = ["taps", "eval", "--dataset", str(DATA), "--model", "tiny", "--no-baselines", "--seeds", "1,2"]
RAY = ["ray.scripts.scripts", "start", "--num-cpus=1", "--object-store-memory=100000000"]


def said(process: subprocess.Popen[str]) -> str:
    """By a command that must go well."""
    words = process.communicate(timeout=600)[0]
    assert process.returncode == 0, words
    return words


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    with make_machines(tmp_path, 2) as found:
        if found is None:
            pytest.skip("needs to be permitted namespaces (unshare, ip)")
        if DATA.is_relative_to("/tmp"):
            pytest.skip("machines have a /tmp of their own")
        first, second = found
        said(first.start(*RAY, "--head", "--node-ip-address=10.77.0.1", "--port=6379"))
        said(second.start(*RAY, f"--address={HEAD}"))
        yield found


def rows(out: Path) -> Any:
    return without_times(json.loads((out / "results.json").read_text()))


def test_a_machine_with_another_disk_is_left_out_and_one_that_is_lost_replaced(
    tmp_path: Path, machines: list[Machine]
) -> None:
    first, second = machines
    quick = [*EVAL, "--method", "zero_shot", "--limit", "5", "--ray", HEAD]
    told = said(first.start(*quick, "--out", "/tmp/own"))
    assert "10.77.0.2" in told
    assert "does not see /tmp/own" in told
    assert len(rows(tmp_path / "1" / "own")) == 2  # all of them, by the machine that has the folder
    long = [*EVAL, "--method", "taps"]
    process, there = first.start(*long, "--out", "/mnt/there", "--ray", HEAD), tmp_path / "shared" / "there"
    end = time.monotonic() + 300
    while len(list(there.glob("runs/*/*/*/state/*.safetensors"))) < 2:  # both runs are under way
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.1)
    second.kill()
    said(process)
    subprocess.run([sys.executable, "-m", *long, "--out", str(tmp_path / "here")], check=True)
    assert rows(there) == rows(tmp_path / "here")
