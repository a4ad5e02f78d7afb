"""What may be added to a folder of results, and what is refused; nothing is overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from taps.errors import DataError, StateError
from taps.study.evaluate.evaluate import RESULTS, collect, evaluate_jobs, to_do
from taps.study.evaluate.jobs import ROW, Job, ModelSpec
from taps.study.evaluate.options import Execution

LENGTHS = {"pictures": 24}


@pytest.fixture
def finished(tmp_path: Path, make_job: Callable[..., Job]) -> Path:
    evaluate_jobs([make_job("zero_shot")], tmp_path, lengths=LENGTHS)
    return tmp_path


def test_a_second_run_is_refused_and_resume_offered(finished: Path, make_job: Callable[..., Job]) -> None:
    with pytest.raises(DataError, match=r"1 of 1 runs finished.*--resume"):
        to_do(finished, [make_job("zero_shot")], LENGTHS, resume=False)


def test_resume_does_only_what_is_left(finished: Path, make_job: Callable[..., Job]) -> None:
    jobs = [make_job("zero_shot"), make_job("zero_shot", seed=2), make_job()]
    assert to_do(finished, jobs, LENGTHS, resume=True) == jobs[1:]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"settings": {"template": "{}"}}, "template=default, now {}"),
        ({"noise": 0.5}, "noise 0.0, now 0.5"),
        ({"limit": 10}, "limit None, more than 10"),
        ({"model": ModelSpec("ViT-B-16")}, "model tiny, now it is ViT-B-16"),
    ],
)
def test_other_settings_are_refused_by_name(
    finished: Path, make_job: Callable[..., Job], change: dict[str, object], told: str
) -> None:
    before = (finished / RESULTS).read_bytes()
    with pytest.raises(DataError) as caught:
        to_do(finished, [replace(make_job("zero_shot"), **change)], LENGTHS, resume=True)  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert (finished / RESULTS).read_bytes() == before


def test_one_name_for_two_streams_is_refused(finished: Path, make_job: Callable[..., Job]) -> None:
    job = make_job()
    other = replace(job, stream=replace(job.stream, corrupt="sketch"))
    with pytest.raises(DataError, match="another stream in the folder of pictures"):
        to_do(finished, [other], LENGTHS, resume=True)


def test_streams_whose_folders_have_one_name_are_refused(
    tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    job = make_job("zero_shot")
    one, other = (replace(job, stream=replace(job.stream, name=name)) for name in ("a/b", "a-b"))
    lengths = {"a/b": 24, "a-b": 24}
    evaluate_jobs([one], tmp_path, lengths=lengths)
    with pytest.raises(DataError, match="another stream in the folder of a-b"):
        to_do(tmp_path, [other], lengths, resume=True)


def test_a_longer_limit_goes_on(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    evaluate_jobs([make_job("zero_shot", limit=5)], tmp_path, lengths=LENGTHS)
    longer = make_job("zero_shot", limit=9)
    assert to_do(tmp_path, [longer], LENGTHS, resume=True) == [longer]
    assert evaluate_jobs([longer], tmp_path, lengths=LENGTHS, how=Execution(resume=True)).rows[0]["n"] == 9


@pytest.mark.parametrize("damage", ["", "[{", "null"])
def test_an_interrupted_results_file_is_made_whole(finished: Path, damage: str) -> None:
    rows = json.loads((finished / RESULTS).read_text())
    (finished / RESULTS).write_text(damage)
    assert collect(finished) == rows
    assert json.loads((finished / RESULTS).read_text()) == rows


def test_half_a_row_is_no_row(finished: Path, make_job: Callable[..., Job]) -> None:
    path = make_job("zero_shot").folder(finished) / ROW
    path.write_text(path.read_text()[:40])
    assert collect(finished) == []
    assert to_do(finished, [make_job("zero_shot")], LENGTHS, resume=True) == [make_job("zero_shot")]


def test_a_place_that_cannot_be_made(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be written"):
        to_do(tmp_path / "file" / "out", [make_job()], LENGTHS, resume=False)
