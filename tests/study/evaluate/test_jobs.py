"""A run that is killed, stopped or made longer ends as if it had never been touched."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taps.errors import DataError, StateError
from taps.files import read_json, write_json
from taps.streams.record import EVENTS, PREDICTIONS, SPEC, STATE, Pace, read_events
from taps.streams.score import RunningScore
from taps.study.evaluate import jobs
from taps.study.evaluate.jobs import Job, run_job, slug
from taps.study.evaluate.results import read_results

SETTINGS = {"views": 4, "policy": "fixed", "tau0": 0.0, "buffer": 5}
NEVER = {**SETTINGS, "reset": "never", "lr": 1e-3}


class CrashError(RuntimeError):
    pass


def crash_at(position: int) -> Callable[[RunningScore], None]:
    def progress(running: RunningScore) -> None:
        if running.position == position:
            raise CrashError

    return progress


def predictions(folder: Path) -> list[dict[str, str]]:
    rows = list(csv.DictReader((folder / PREDICTIONS).read_text().splitlines()))
    for row in rows:
        del row["seconds"]
    return rows


def without_times(row: dict[str, Any] | None) -> dict[str, Any]:
    assert row is not None
    times = ("ms_p50", "ms_p95", "adapt_ms", "peak_mem_mb", "overhead")
    measures = {name: value for name, value in row["measures"].items() if name not in times}
    return {name: row[name] for name in row if name not in times} | {"measures": measures}


@pytest.mark.parametrize("settings", [SETTINGS, NEVER], ids=["episodic", "continual"])
@pytest.mark.parametrize("crashes", [(1,), (4, 10), (7, 9, 23)])
def test_a_crashed_run_resumes_to_the_same_end(
    tmp_path: Path, make_job: Callable[..., Job], settings: dict[str, Any], crashes: tuple[int, ...]
) -> None:
    job = make_job(settings=settings)
    whole = run_job(job, tmp_path / "whole", pace=Pace(3, 0))
    for position in crashes:
        with pytest.raises(CrashError):
            run_job(job, tmp_path / "cut", progress=crash_at(position), pace=Pace(3, 0))
    again = run_job(job, tmp_path / "cut", pace=Pace(3, 0))
    assert without_times(again) == without_times(whole)
    assert predictions(job.folder(tmp_path / "cut")) == predictions(job.folder(tmp_path / "whole"))


YES_OR_NO = {"settings": {"questions": "yes_no", "policy": "fixed", "tau0": -1.0}}


@pytest.mark.parametrize(("method", "more"), [("taps", {}), ("zero_shot+", YES_OR_NO)])
def test_late_answers_survive_a_crash(
    tmp_path: Path, make_job: Callable[..., Job], method: str, more: dict[str, Any]
) -> None:
    job = make_job(method, delay=5, noise=0.3, **more)
    whole = run_job(job, tmp_path / "whole", pace=Pace(3, 0))
    with pytest.raises(CrashError):
        run_job(job, tmp_path / "cut", progress=crash_at(11), pace=Pace(3, 0))
    assert without_times(run_job(job, tmp_path / "cut", pace=Pace(3, 0))) == without_times(whole)
    assert predictions(job.folder(tmp_path / "cut")) == predictions(job.folder(tmp_path / "whole"))
    if more:
        events = list(read_events(job.folder(tmp_path / "cut")))
        said = {event["id"]: event for event in events if event["event"] == "predicted"}
        answers = [event for event in events if event["event"] == "answered"]
        assert {said[answer["id"]]["question"] for answer in answers} == {"yes_no"}
        told = [answer.get("label") or answer["no"][0] for answer in answers]
        assert told == [said[answer["id"]]["label"] for answer in answers]  # yes or no, nothing else
        assert {"no" in answer for answer in answers} == {True, False}
        assert whole is not None
        assert whole["questions"] == {"class": 0, "yes_no": len(said)}


KILLED = """
import os, signal, sys
from pathlib import Path
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec, run_job
from taps.streams.record import Pace

def progress(running):
    if running.position == 13:
        os.kill(os.getpid(), signal.SIGKILL)

job = Job(StreamSpec(sys.argv[1], name="pictures"), ModelSpec("tiny"), "taps", 1, {settings})
run_job(job, Path(sys.argv[2]), progress=progress, pace=Pace(5, 0))
"""


def test_kill_9_in_the_middle(tmp_path: Path, make_job: Callable[..., Job], pictures: Path) -> None:
    code = KILLED.replace("{settings}", repr(SETTINGS))
    killed = subprocess.run([sys.executable, "-c", code, pictures, tmp_path / "cut"], check=False)
    assert killed.returncode == -signal.SIGKILL
    job = make_job(settings=SETTINGS)
    assert not (job.folder(tmp_path / "cut") / "row.json").exists()
    again, whole = run_job(job, tmp_path / "cut"), run_job(job, tmp_path / "whole")
    assert without_times(again) == without_times(whole)
    assert predictions(job.folder(tmp_path / "cut")) == predictions(job.folder(tmp_path / "whole"))


def test_a_resumed_run_does_not_begin_anew(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    with pytest.raises(CrashError):
        run_job(make_job(), tmp_path, progress=crash_at(14), pace=Pace(4, 0))
    seen: list[int] = []
    run_job(make_job(), tmp_path, progress=lambda running: seen.append(running.position))
    assert seen == list(range(13, 25))  # 12 were saved


def test_stop_saves_where_it_stands(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    calls = iter(range(100))
    assert run_job(make_job(), tmp_path, stop=lambda: next(calls) == 9) is None
    seen: list[int] = []
    row = run_job(make_job(), tmp_path, progress=lambda running: seen.append(running.position))
    assert seen[0] == 10
    assert without_times(row) == without_times(run_job(make_job(), tmp_path / "whole"))


def test_ctrl_c_saves_where_it_stands(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    def interrupt(running: RunningScore) -> None:
        if running.position == 9:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_job(make_job(), tmp_path, progress=interrupt, pace=Pace(1000, 0))
    seen: list[int] = []
    row = run_job(make_job(), tmp_path, progress=lambda running: seen.append(running.position))
    assert seen[0] == 10
    assert without_times(row) == without_times(run_job(make_job(), tmp_path / "whole"))


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    short = run_job(make_job(limit=10), tmp_path)
    assert short is not None
    assert short["n"] == 10
    longer = run_job(make_job(limit=20), tmp_path)
    assert without_times(longer) == without_times(run_job(make_job(limit=20), tmp_path / "whole"))


def test_a_finished_run_keeps_no_state(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    run_job(make_job(), tmp_path)
    left = {path.name for path in make_job().folder(tmp_path).iterdir()}
    assert STATE not in left


def test_other_weights_are_refused(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    run_job(make_job(limit=5), tmp_path)
    spec = make_job().folder(tmp_path) / SPEC
    write_json(spec, {**read_json(spec), "fingerprint": "other"})
    with pytest.raises(StateError, match="other weights"):
        run_job(make_job(limit=9), tmp_path)


@pytest.mark.parametrize("damage", ["{", '{"format": 2}'])
def test_a_damaged_checkpoint_is_a_sentence(
    tmp_path: Path, make_job: Callable[..., Job], damage: str
) -> None:
    run_job(make_job(limit=5), tmp_path)
    state = make_job().folder(tmp_path) / STATE
    (state / "learner.json").write_text(damage)
    (state / "learner.previous.json").unlink(missing_ok=True)  # where saving was slow there is an older one
    with pytest.raises(StateError, match="damaged"):
        run_job(make_job(limit=9), tmp_path)


@pytest.mark.parametrize("file", [PREDICTIONS, EVENTS])
@pytest.mark.parametrize("damage", [lambda data: data[:50], lambda data: data[:50] + b"#" + data[51:]])
def test_predictions_and_events_that_were_changed_are_noticed(
    tmp_path: Path, make_job: Callable[..., Job], file: str, damage: Callable[[bytes], bytes]
) -> None:
    run_job(make_job(limit=5), tmp_path)
    path = make_job().folder(tmp_path) / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateError, match=f"{file} is damaged"):
        run_job(make_job(limit=9), tmp_path)


@pytest.mark.parametrize("where", ["learner.json", "state-8-*.safetensors", f"../{PREDICTIONS}"])
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(
    tmp_path: Path, make_job: Callable[..., Job], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CrashError):
        run_job(make_job(), tmp_path, progress=crash_at(9), pace=Pace(every=4, pause=0))
    damaged = next((make_job().folder(tmp_path) / STATE).glob(where))
    data = bytearray(damaged.read_bytes())
    committed = read_json(make_job().folder(tmp_path) / STATE / "learner.json")["extra"][PREDICTIONS]
    data[committed["size"] - 2 if damaged.name == PREDICTIONS else -2] ^= 1
    damaged.write_bytes(data)
    seen: list[int] = []
    row = run_job(make_job(), tmp_path, progress=lambda running: seen.append(running.position))
    assert seen[0] == 5
    assert f"{damaged.name} is damaged" in caplog.text
    assert "the state saved before it is used" in caplog.text
    assert without_times(row) == without_times(run_job(make_job(), tmp_path / "whole"))


def test_the_files_of_a_finished_run_are_those_its_row_was_made_from(
    tmp_path: Path, make_job: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(method="zero_shot")
    run_job(job, tmp_path)
    assert read_results(tmp_path).datasets
    path = job.folder(tmp_path) / PREDICTIONS
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",0.", b",1.", 1))  # a number that could as well be right
    with pytest.raises(DataError, match=r"predictions.csv is damaged .* remove .* and run again"):
        read_results(tmp_path)
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1])  # as a run that is made longer may leave it
    [[result]] = read_results(tmp_path).results.values()
    assert len(result.run) == result.row["n"] == whole.count(b"\n") - 1
    path.unlink()
    with pytest.raises(DataError, match=r"predictions.csv is missing; remove .* and run again"):
        read_results(tmp_path)
    path.write_bytes(whole)
    row = job.folder(tmp_path) / "row.json"
    row.write_text(row.read_text().replace('"n": ', '"n": 1'))
    with pytest.raises(DataError, match=r"No run in .* is finished"):
        read_results(tmp_path)
    assert "row.json is damaged" in caplog.text


def test_images_without_labels_are_refused(
    tmp_path: Path, make_job: Callable[..., Job], pictures: Path
) -> None:
    manifest = tmp_path / "list.csv"
    manifest.write_text(
        f"path,label\n{pictures}/ant/0.png,ant\n{pictures}/bee/0.png,\n{pictures}/cat/0.png,cat\n"
    )
    with pytest.raises(DataError, match="no label"):
        run_job(make_job("zero_shot", root=manifest), tmp_path / "out")


def test_runs_of_one_process_load_model_and_images_once(
    tmp_path: Path, make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def counted(load: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **more: (loaded.append(load.__name__), load(*given, **more))[1]

    for load in (jobs.load_clip, jobs.load_dataset):
        monkeypatch.setattr(jobs, load.__name__, counted(load))
    jobs._clip.cache_clear()
    jobs.open_dataset.cache_clear()
    for method, seed in (("zero_shot", 1), ("zero_shot", 2), ("taps", 1)):
        run_job(make_job(method, seed=seed, limit=2), tmp_path)
    assert sorted(loaded) == ["load_clip", "load_dataset"]


def test_slugs_are_one_folder_each() -> None:
    assert slug("../x/y") == "-x-y"
    assert "/" not in slug("pacs/photo")
    assert slug("..") == "unnamed"


def test_a_run_knows_its_length_so_all_of_its_budget_is_spent(
    tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    job = make_job("zero_shot+", settings={"rate": 0.11, "budget": "hard"}, limit=20)
    row = run_job(job, tmp_path, device="cpu")
    assert row is not None
    assert (row["n"], row["asked"]) == (20, 3)
    early = [number for number, each in enumerate(predictions(job.folder(tmp_path))) if each["asked"] == "1"]
    assert sum(number < 10 for number in early) == 2
