"""`taps compare` from the command line: runs what is missing, then the page; or the page of folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from taps.cli.eval import app
from taps.errors import SettingsError
from tests.made_up import made_up_folder

runner = CliRunner()


def test_runs_are_made_and_gone_on_with(pictures: Path, tmp_path: Path) -> None:
    options = [
        "compare",
        "--dataset",
        str(pictures),
        "--model",
        "tiny",
        "--seeds",
        "1",
        "--limit",
        "6",
        "--set",
        "views=3",
    ]
    options += ["--method", "zero_shot,taps", "--no-baselines", "--out", str(tmp_path / "out")]
    shown = runner.invoke(app, options, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "| taps |" in shown.output
    row = tmp_path / "out/runs" / pictures.name / "taps/1/row.json"
    before = row.stat().st_mtime_ns
    for suffix in ("html", "tex", "csv", "json"):
        (tmp_path / f"out/leaderboard.{suffix}").unlink()
    again = runner.invoke(app, [*options, "--resume"], catch_exceptions=False)
    assert again.exit_code == 0
    assert row.stat().st_mtime_ns == before
    assert (tmp_path / "out/leaderboard.html").is_file()


def test_folders_alone_need_no_model(tmp_path: Path) -> None:
    made_up_folder(tmp_path / "a", methods=("zero_shot", "taps"), seeds=(1,), n=20)
    made_up_folder(tmp_path / "b", methods=("tpt",), seeds=(1,), n=20)
    options = [
        "compare",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "--out",
        str(tmp_path / "page"),
        "--measure",
        "ms_p50",
    ]
    before = {path for name in "ab" for path in (tmp_path / name).rglob("*")}
    shown = runner.invoke(app, options, catch_exceptions=False)
    assert shown.exit_code == 0
    assert (tmp_path / "page/leaderboard.html").is_file()
    assert not [*(tmp_path / "page").rglob("row.json")]  # nothing was run
    assert {path for name in "ab" for path in (tmp_path / name).rglob("*")} == before  # they may be read-only


def test_nothing_given_is_a_sentence() -> None:
    with pytest.raises(SettingsError, match="Give folders of results, or --dataset and --out"):
        runner.invoke(app, ["compare"], catch_exceptions=False)
