"""Runs side by side end as they would alone; one that dies takes nothing else with it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from taps.data import Dataset
from taps.disk import claim
from taps.errors import StateError
from taps.files import locked, read_json
from taps.study.evaluate.evaluate import RESULTS, UNFINISHED, evaluate_jobs
from taps.study.evaluate.jobs import Job, StreamSpec
from taps.study.evaluate.options import Execution
from taps.study.evaluate.pool import run_jobs


@dataclass(frozen=True)
class DeadlyStream(StreamSpec):
    """Kills the process that loads it."""

    def load(self) -> Dataset:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_side_by_side_as_alone_and_a_death_is_survived(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    jobs = [make_job("zero_shot"), make_job(), make_job("zero_shot", seed=2), make_job(seed=2)]
    jobs.insert(1, replace(jobs[0], stream=DeadlyStream("x", name="deadly")))
    said: list[tuple[str, int]] = []
    why = run_jobs(
        jobs, tmp_path / "two", Execution(jobs=2), watch=lambda what, index, value: said.append((what, index))
    )
    assert list(why) == [1]
    assert "died" in why[1]
    assert sorted(index for what, index in said if what == "done") == [0, 2, 3, 4]
    run_jobs(jobs[2:], tmp_path / "one")
    for job in jobs[2:]:
        rows = [json.loads((job.folder(tmp_path / out) / "row.json").read_text()) for out in ("one", "two")]
        assert rows[0]["top1"] == rows[1]["top1"]
        assert rows[0]["asked"] == rows[1]["asked"]


def test_an_interrupt_ends_every_process_and_runs_go_on_from_there(
    tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    jobs = [make_job(), make_job(seed=2), make_job(seed=3)]

    def interrupt(what: str, index: int, value: Any) -> None:
        if what == "progress":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, tmp_path, Execution(jobs=2), interrupt)
    assert not multiprocessing.active_children()
    assert not jobs[2].folder(tmp_path).exists()
    assert run_jobs(jobs, tmp_path) == {}


def test_a_refusal_is_recorded_and_the_others_go_on(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    bad = make_job("coop")  # has no trained prompts
    outcome = evaluate_jobs([bad, make_job("zero_shot")], tmp_path)
    assert [row["method"] for row in outcome.rows] == ["zero_shot"]
    assert outcome.unfinished[0]["method"] == "coop"
    assert "trained coop prompts" in outcome.unfinished[0]["why"]
    assert read_json(tmp_path / UNFINISHED)["runs"] == outcome.unfinished
    assert json.loads((tmp_path / RESULTS).read_text()) == outcome.rows


def test_a_crash_leaves_a_trace(tmp_path: Path, make_job: Callable[..., Job], monkeypatch: Any) -> None:
    monkeypatch.setattr("taps.study.evaluate.jobs.score", lambda *a, **k: 1 / 0)
    why = run_jobs([make_job("zero_shot")], tmp_path)
    assert "ZeroDivisionError" in why[0]
    assert "1 / 0" in (make_job("zero_shot").folder(tmp_path) / "crash.txt").read_text()


def test_a_deadline_stops_and_saves(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    outcome = evaluate_jobs([make_job()], tmp_path, Execution(minutes=0))
    assert "time was up" in outcome.unfinished[0]["why"]
    assert outcome.rows == []
    assert evaluate_jobs([make_job()], tmp_path, Execution(resume=True)).unfinished == []


def test_two_evaluations_at_a_time_are_refused(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    claim(tmp_path)
    with locked(tmp_path), pytest.raises(StateError, match="Another process"):
        evaluate_jobs([make_job("zero_shot")], tmp_path)
    assert evaluate_jobs([make_job("zero_shot")], tmp_path).unfinished == []
