"""Evaluations at addresses of fsspec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

from taps.cli.main import app
from taps.errors import DataError, SettingsError
from taps.evaluate import copies
from taps.evaluate.copies import Copies, attempt_there, working_folder
from taps.evaluate.evaluate import evaluate
from taps.evaluate.jobs import Job, run_job
from taps.evaluate.options import Execution
from taps.stream.record import Pace

URL = "memory://bucket/field"


@pytest.fixture
def bucket() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/bucket", recursive=True)


def names_in(files: Any) -> set[str]:
    return {name.removeprefix("/bucket/field/") for name in files.find("/bucket/field")}


def test_an_evaluation_at_an_address_has_the_files_of_one_here_and_goes_on(
    bucket: Any, tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    jobs = [make_job("zero_shot", limit=5), make_job("coop")]  # the second has no prompts: it fails
    with working_folder(URL) as (folder, there):
        evaluate(jobs, folder, copies=there)
        done = names_in(bucket)  # before the end
    assert "runs/pictures/zero_shot/1/row.json" in done
    assert not folder.exists()
    evaluate(jobs, tmp_path)
    here = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    found = names_in(bucket)
    assert {name.rpartition("-")[0] or name for name in found} == {
        name.rpartition("-")[0] or name for name in here if ".lock" not in name
    }
    with pytest.raises(DataError, match=f"^{URL} holds an evaluation"), working_folder(URL) as (folder, _):
        evaluate(jobs, folder)
    with working_folder(URL) as (folder, there):
        rows = evaluate([make_job("zero_shot")], folder, Execution(resume=True), copies=there).rows
    assert rows[0]["n"] == 24
    assert (
        rows[0]["top1"] == evaluate([make_job("zero_shot")], tmp_path, Execution(resume=True)).rows[0]["top1"]
    )
    gone = found - names_in(bucket)
    assert gone  # the state of the shorter run
    assert all("/state/" in name for name in gone)


def test_a_run_on_another_machine_goes_on_from_the_address_when_its_machine_is_lost(
    bucket: Any, tmp_path: Path, make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "EVERY", 0.0)
    monkeypatch.setattr("taps.evaluate.pool.TELL", 0.0)
    monkeypatch.setattr("taps.evaluate.pool.run_job", partial(run_job, pace=Pace(pause=0, worth=0)))
    job, told = make_job(), list[int]()

    def lose(position: int) -> None:
        told.append(position)
        if position == 12:
            raise KeyboardInterrupt  # no error that a run would be told of

    with pytest.raises(KeyboardInterrupt):
        attempt_there(job, URL, "cpu", lambda: False, lose)
    what, row = attempt_there(job, URL, "cpu", lambda: False, told.append)
    assert what == "done"
    assert told[:12] == list(range(1, 13))
    assert 12 <= told[12] <= 13  # from what was copied, not from the beginning
    assert row["top1"] == run_job(job, tmp_path, device="cpu")["top1"]  # type: ignore[index]


def test_what_cannot_be_copied_is_said_and_stays(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    there, done = tmp_path / "there", []

    def run() -> None:
        with working_folder(f"file://{there}") as (folder, files):
            done.append(folder)
            (there / "runs").touch()  # no folder can be made here
            assert len(evaluate([make_job("zero_shot")], folder, copies=files).rows) == 1

    with pytest.raises(DataError, match="What is missing there is in ") as said:
        run()
    assert str(done[0]) in str(said.value)
    assert (done[0] / "results.json").is_file()


def test_addresses_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nothing://x cannot be written to"):
        Copies("nothing://x")


def test_commands_take_addresses(bucket: Any, tmp_path: Path, pictures: Path) -> None:
    """`taps eval`, `taps compare` and `taps report` at one address."""
    command = ["eval", "--dataset", str(pictures), "--model", "tiny", "--method", "zero_shot"]
    command += ["--no-baselines", "--seeds", "1", "--limit", "4", "--out", URL]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    assert f"taps report {URL}" in said.output.replace("\n", "")
    for command in ("report", "compare"):
        said = CliRunner().invoke(app, [command, URL])
        assert said.exit_code == 0, said.output
        assert f"{URL}/" in said.output
    assert {"results.json", "report.html", "leaderboard.html"} <= names_in(bucket)
