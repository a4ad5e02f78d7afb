"""Results at paths of fsspec."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from taps.errors import DataError, SettingsError
from taps.evaluate.evaluate import evaluate
from taps.evaluate.folder import to_do
from taps.evaluate.jobs import Job
from taps.evaluate.options import Execution

fsspec = pytest.importorskip("fsspec")


def test_finished_runs_and_results_are_copied(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    out, jobs = (
        tmp_path / "out",
        [make_job("zero_shot"), make_job("coop")],
    )  # the second has no prompts: it fails
    evaluate(jobs, out, Execution(copy_to="memory://bucket/field"))
    files = fsspec.filesystem("memory")
    found = {name.removeprefix("/bucket/field/") for name in files.find("/bucket/field")}
    here = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == {name for name in here if ".lock" not in name and "coop" not in name}
    assert {"results.json", "unfinished.json", "runs/pictures/zero_shot/1/row.json"} <= found
    for name in found:
        assert files.cat(f"/bucket/field/{name}") == (out / name).read_bytes()
    files.rm("/bucket", recursive=True)


def test_what_cannot_be_copied_is_said_and_stays(
    tmp_path: Path, make_job: Callable[..., Job], caplog: pytest.LogCaptureFixture
) -> None:
    there = tmp_path / "there"
    (there / "runs").mkdir(parents=True)
    (there / "runs" / "pictures").touch()  # no folder can be made here
    with caplog.at_level(logging.WARNING, logger="taps"):
        outcome = evaluate([make_job("zero_shot")], tmp_path / "out", Execution(copy_to=f"file://{there}"))
    assert len(outcome.rows) == 1
    assert "was not copied" in caplog.text
    assert (there / "results.json").read_bytes() == (tmp_path / "out" / "results.json").read_bytes()


def test_addresses_that_are_no_folder_or_that_nobody_knows(
    tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    with pytest.raises(DataError, match="--copy-to"):
        to_do(Path("s3://bucket/field"), [], {}, resume=False)
    with pytest.raises(SettingsError, match="--copy-to nothing://x cannot be written to"):
        evaluate([make_job()], tmp_path / "out", Execution(copy_to="nothing://x"))
    assert not (tmp_path / "out").exists()
