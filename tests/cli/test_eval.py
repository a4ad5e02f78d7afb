"""`taps eval` from the command line: files, refusals, resuming."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taps.cli.eval import app, columns_of, fitting
from taps.cli.options import parse_list, parse_numbers
from taps.errors import DataError, SettingsError, TapsError
from taps.study.evaluate.pooled import pool

runner = CliRunner()


def call(zoo: Path, out: Path, *more: str) -> list[str]:
    return [
        "eval",
        "--dataset",
        str(zoo),
        "--model",
        "tiny",
        "--seeds",
        "1",
        "--set",
        "views=3",
        "--out",
        str(out),
        *more,
    ]


def test_rows_and_files(zoo: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, call(zoo, tmp_path, "--json", "--rate", "0.5"), catch_exceptions=False)
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert [row["method"] for row in rows] == ["taps", "view_ensemble", "zero_shot"]
    wanted = {
        "dataset",
        "method",
        "seed",
        "n",
        "top1",
        "top5",
        "asked",
        "rate",
        "buffer_fill",
        "ms_p50",
        "ms_p95",
    }
    assert wanted | {"peak_mem_mb", "ece"} <= rows[0].keys()
    assert json.loads((tmp_path / "results.json").read_text()) == rows
    for method in ("taps", "view_ensemble", "zero_shot"):
        assert (tmp_path / "runs" / "zoo" / method / "1" / "predictions.csv").is_file()
    spec = json.loads((tmp_path / "runs" / "zoo" / "taps" / "1" / "run.json").read_text())
    assert spec["settings"] == {"views": 3, "rate": 0.5}


def test_no_gain_has_no_minus() -> None:
    """One image of 12 lost and one gained: rounding leaves a little less than nothing."""
    top1 = {"zero_shot": (5 / 12, 5 / 12, 5 / 12), "taps": (4 / 12, 5 / 12, 6 / 12)}
    rows = [
        {
            "dataset": "pets",
            "method": method,
            "seed": seed,
            "n": 10,
            "top1": value,
            "measures": {"top1": value},
        }
        for method, values in top1.items()
        for seed, value in enumerate(values)
    ]
    assert -1e-12 < (pool(rows)[1].gain or 0) < 0
    assert columns_of(rows, [])["to zero-shot"] == ["", "+0.00"]


def test_again_is_refused_and_resume_adds(zoo: Path, tmp_path: Path) -> None:
    first = call(zoo, tmp_path, "--method", "zero_shot", "--no-baselines")
    first[first.index("--set") : first.index("--set") + 2] = []
    runner.invoke(app, first, catch_exceptions=False)
    with pytest.raises(DataError, match="--resume"):
        runner.invoke(app, first, catch_exceptions=False)
    more = runner.invoke(app, [*call(zoo, tmp_path), "--resume", "--json"], catch_exceptions=False)
    assert len(json.loads(more.stdout)) == 3
    with pytest.raises(DataError, match="views=3, now 5"):
        runner.invoke(app, [*call(zoo, tmp_path), "--set", "views=5", "--resume"], catch_exceptions=False)


def test_a_table_is_shown(zoo: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, call(zoo, tmp_path), catch_exceptions=False)
    assert "zero-shot" in result.output
    assert f"(taps report {tmp_path})" in result.output  # in one line, whatever the path's length


@pytest.mark.parametrize(
    "options",
    [
        ["--seeds", "one"],
        ["--method", "tops"],
        ["--set", "vews=3"],
        ["--set", "views"],
        ["--dataset", "no-such-set"],
        ["--corrupt", "rain"],
        ["--severity", "9", "--corrupt", "sketch"],
        ["--outside", "nowhere"],
        ["--outside", "nowhere:2"],
        ["--order", "sorted"],
        ["--order", "by_domain"],
        ["--measures", "eec"],
        ["--set", "order=ask_first"],
    ],
)
def test_mistakes_are_sentences_and_write_nothing(zoo: Path, tmp_path: Path, options: list[str]) -> None:
    out = tmp_path / "out"
    with pytest.raises(TapsError):
        runner.invoke(app, [*call(zoo, out), *options], catch_exceptions=False)
    assert not list(out.rglob("*.csv"))


def test_exit_code_2_and_one_sentence(zoo: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "taps", *call(zoo, tmp_path), "--method", "tops"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("taps: Unknown method 'tops'")
    assert len(result.stderr.splitlines()) == 1


def test_unfinished_runs_are_told(zoo: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, [*call(zoo, tmp_path), "--method", "coop"], catch_exceptions=False)
    assert result.exit_code == 1
    before, _, after = result.output.partition("unfinished: zoo coop seed 1")
    assert "taps train coop" in before
    assert after


def test_lists() -> None:
    assert parse_list(" a,b ,,a") == ("a", "b")
    assert parse_numbers("--seeds", "3,1") == (3, 1)
    with pytest.raises(SettingsError, match="--seeds '-1'"):
        parse_numbers("--seeds", "-1")


def test_a_full_disk_is_a_sentence_and_the_evaluation_can_go_on(
    zoo: Path, tmp_path: Path, disk_room: Callable[[int], AbstractContextManager[None]]
) -> None:
    """Four kilobytes hold what is written about the runs, not the state of a learner with labels."""
    command = call(zoo, tmp_path, "--no-baselines", "--set", "policy=fixed", "--set", "tau0=0")
    with disk_room(4 << 10):
        result = runner.invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "unfinished: zoo taps seed 1" in said
    assert "cannot be written" in said
    assert not list(tmp_path.glob("**/crash.txt"))
    with disk_room(200), pytest.raises(TapsError, match="cannot be written"):
        runner.invoke(app, [*command, "--resume"], catch_exceptions=False)
    again = runner.invoke(app, [*command, "--resume"], catch_exceptions=False)
    assert again.exit_code == 0


def test_a_table_that_is_too_wide_leaves_columns_out_and_names_them(zoo: Path, tmp_path: Path) -> None:
    options = ["--method", "zero_shot", "--no-baselines", "--measures", "all"]
    given = [word for word in call(zoo, tmp_path, *options) if word not in ("--set", "views=3")]
    shown = runner.invoke(app, given, catch_exceptions=False, env={"COLUMNS": "80"}).stdout
    table, said = shown[: shown.index("Results:")].split("\n\n")
    *_, heads, cells = table.splitlines()
    assert heads.startswith("set   method   ")
    assert cells.startswith("zoo   zero_shot")
    assert len(heads) <= 80
    assert "zero-shot" not in shown.split()  # there is nothing to compare with it
    for word in ("adaptive", "Brier", "log-loss", "p95", "memory"):  # each column once, here or there
        assert len(re.findall(rf"\b{word}\b", table + said)) == 1
    assert "memory" in said


def test_the_last_measures_are_left_out_first() -> None:
    columns = {"method": ["taps"], "seeds": ["1"], "e": ["12"], "f" * 30: ["1"], "to zero-shot": ["+1.00"]}
    kept = ["method", "seeds", "to zero-shot"]
    assert [*fitting(columns, 100)] == [*columns]
    assert [*fitting(columns, 40)] == [*kept[:2], "e", kept[2]]
    assert [*fitting(columns, 28)] == [*kept[:2], "e", kept[2]]
    assert [*fitting(columns, 27)] == [*fitting(columns, 1)] == kept


def test_two_classes_of_one_name_stay_two(
    zoo: Path, tmp_path: Path, here: Callable[..., tuple[int, str, str]]
) -> None:
    """Two of ImageNet's classes are called missile; where nothing tells them apart, the first is named."""
    images = tmp_path / "net"
    shutil.copytree(zoo / "ant", images / "n03773504")
    shutil.copytree(zoo / "bee", images / "n04008634")
    options = ("--model", "tiny", "--set", "views=2")
    done = here(
        "eval", "--dataset", images, "--method", "zero_shot,view_ensemble+", *options, "--out", "runs"
    )
    assert done[0] == 0, done[2]
    assert json.loads(Path("runs/results.json").read_text())[0]["top1"] == 0.5
    assert here("run", images, "--annotator", "folder", *options, "--out", "run")[0] == 0
    assert here("predict", images, "--model", "tiny")[0] == 0
