"""Processes share the cores, no thread spins, the user's settings stay; the memory of a run is its own."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from taps.data import Dataset
from taps.errors import DataError
from taps.process import (
    CLEAR,
    COUNTS,
    SLEEPING,
    first_image_done,
    for_children,
    peak_memory_mb,
    peak_rss_mb,
    reset_peak,
    run_memory_mb,
    tensors_mb,
    threads_each,
)
from taps.study.evaluate.jobs import Job, StreamSpec
from taps.study.evaluate.options import Execution
from taps.study.evaluate.pool import run_jobs


@dataclass(frozen=True)
class Watched(StreamSpec):
    """Says what its process may use, instead of loading anything."""

    def load(self) -> Dataset:
        values = {name: os.environ.get(name) for name in (*COUNTS, *SLEEPING)}
        Path(self.dataset).write_text(json.dumps({"torch": torch.get_num_threads(), **values}))
        raise DataError("seen")


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*COUNTS, *SLEEPING):
        monkeypatch.delenv(name, raising=False)


def seen_in_workers(make_job: Callable[..., Job], tmp_path: Path) -> list[dict[str, Any]]:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    jobs = [
        replace(make_job("zero_shot", seed=seed), stream=Watched(str(file)))
        for seed, file in enumerate(files)
    ]
    assert list(run_jobs(jobs, tmp_path, Execution(jobs=2)).values()) == ["seen", "seen"]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.usefixtures("unset")
def test_workers_share_the_cores_and_do_not_spin(make_job: Callable[..., Job], tmp_path: Path) -> None:
    for seen in seen_in_workers(make_job, tmp_path):
        assert seen["torch"] == threads_each(2)
        assert {seen[name] for name in COUNTS} == {str(threads_each(2))}
        assert {name: seen[name] for name in SLEEPING} == SLEEPING
    assert not {*COUNTS, *SLEEPING} & os.environ.keys()  # this process's own stay as they were


@pytest.mark.usefixtures("unset")
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with for_children(2):
        assert os.environ["OMP_NUM_THREADS"] == "7"
        assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
        assert os.environ["OPENBLAS_NUM_THREADS"] == "2"


def test_threads_are_a_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    assert [threads_each(n) for n in (1, 2, 3, 14, 16, 50)] == [16, 8, 5, 1, 1, 1]


LATE = """
import os, sys
import taps.cli.main as main
assert not {"torch", "numpy"} & sys.modules.keys(), "loaded before the environment is set"
main.app = lambda: print(os.environ["OMP_WAIT_POLICY"], os.environ["KMP_BLOCKTIME"])
main.run()
"""


@pytest.mark.usefixtures("unset")
def test_the_command_sets_it_before_torch_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert done.stdout == "PASSIVE 0\n", done.stderr


FAULTS = """
import resource, sys, threading
from taps.process import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
import torch
def faults():
    for _ in range(30):
        torch.ones(10_000_000)  # 40 MB: 9,766 pages
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(10_000_000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
faults()
thread = threading.Thread(target=faults)
thread.start()
thread.join()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's C library alone")
def test_freed_memory_is_used_again_in_every_thread_unless_the_user_says_otherwise() -> None:
    def faults(how: str, **more: str) -> list[int]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        command = [sys.executable, "-c", FAULTS, how]
        return [int(line) for line in subprocess.check_output(command, env=kept | more, text=True).split()]

    assert min(faults("leave")) > 40_000
    assert min(faults("keep", MALLOC_MMAP_THRESHOLD_="1000000")) > 40_000
    assert max(faults("keep")) < 10_000


CPU = torch.device("cpu")
needs_linux = pytest.mark.skipif(sys.platform != "linux" or not CLEAR.exists(), reason="needs Linux")


def alone(check: Callable[[], None]) -> None:
    """Check in a process of its own: in one that has run other tests, memory they left is used again."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(check).result()


@needs_linux
def test_what_was_let_go_of_before_does_not_count() -> None:
    alone(let_go_of_before)


def let_go_of_before() -> None:
    reset_peak(CPU)
    before = peak_rss_mb()
    # Small tensors, the last of them kept: the allocator does not give such memory back by itself.
    many = [torch.ones(5000) for _ in range(5000)]
    last = many[-1]
    del many
    assert peak_rss_mb() > before + 80
    reset_peak(CPU)
    assert peak_rss_mb() < before + 40
    assert last.sum() == 5000


@needs_linux
def test_which_run_came_first_does_not_matter() -> None:
    alone(runs_in_either_order)


def runs_in_either_order() -> None:
    """A run with 20 MB of weights and 40 MB of work, before and after one that leaves 200 MB behind."""

    def run() -> float:
        first_image_done(CPU)
        np.ones(40 << 17).sum()
        return run_memory_mb(CPU) - others

    weights, others = torch.ones(20 << 18), tensors_mb() - 20
    first = run()
    left = np.ones(200 << 17)
    assert run() == pytest.approx(first, abs=8)
    assert first == pytest.approx(60, abs=8)
    assert peak_memory_mb(CPU) > left.nbytes / 2**20 + 60
    assert weights.sum() == 20 << 18


@needs_linux
def test_a_storage_counts_once() -> None:
    gc.collect()  # or garbage of other tests goes while this one counts
    before = tensors_mb()
    whole = torch.zeros(3 << 18)
    parts = whole.view(3, -1)[1:], whole[7:]
    assert tensors_mb() - before == pytest.approx(3, abs=0.5)
    del whole, parts
    assert tensors_mb() == pytest.approx(before, abs=0.5)
