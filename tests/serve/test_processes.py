"""The processes that compute have the model's weights in memory once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from taps.model.clip import Clip, load_clip
from taps.serve.errors import LostError
from taps.serve.learners import STAND_IN, Learners, Processes, RemoteLearner, Threads, fresh
from taps.serve.records import Stream

STREAM = Stream("pets", ["cat", "dog"], "zero_shot", {}, 0, None, 0.0, id=1, created=0.0)


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes(load_clip("tiny", device="cpu"), 2) as made:
        yield made


def memory_of(mapped: str, pid: int | None) -> dict[str, int]:
    """What a process has in memory of a file, in kB, by the kernel's words."""
    found, mine = dict[str, int](), False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            mine = mapped in line
        elif mine and words[1:2] and words[-1] == "kB":
            found[words[0]] = found.get(words[0], 0) + int(words[1])
    return found


def test_weights_are_mapped_and_give_the_same_numbers(processes: Processes, tiny: Clip) -> None:
    here = fresh(STREAM, tiny).predict_one(STAND_IN)
    for number in (0, 1):
        learner = RemoteLearner.begin(processes.executor_of(number), STREAM)
        assert np.array_equal(learner.predict_one(STAND_IN, update=False).probs, here.probs)
    children = [process._process.pid for process in processes.processes if process._process]
    assert len(set(children)) == 2
    for pid in children:
        found = memory_of("memfd:weights", pid)
        assert found["Rss:"] > 0
        assert found["Private_Dirty:"] == 0  # no page of them was copied


def test_a_call_under_way_does_not_hold_the_end_up(processes: Processes) -> None:
    process = processes.processes[0]
    process.call(Learners.evict, 1)
    assert process._process is not None
    assert process._process.pid is not None
    os.kill(process._process.pid, signal.SIGSTOP)  # it will not reply
    with ThreadPoolExecutor(1) as other:
        call = other.submit(process.call, Learners.evict, 1)
        while not process._turn.locked():
            time.sleep(0.01)
        process.close()
        with pytest.raises(LostError):
            call.result()
    with pytest.raises(LostError):  # nor does another process take its place
        process.call(Learners.evict, 1)


def test_it_computes_as_threads_do(processes: Processes, tiny: Clip) -> None:
    said = [RemoteLearner.begin(each.executor_of(1), STREAM).summary() for each in (processes, Threads(tiny))]
    assert said[0] == said[1]
