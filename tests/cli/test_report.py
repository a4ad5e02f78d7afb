"""`taps report` from the command line, on results that `taps eval` made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from taps.cli.eval import app
from taps.errors import DataError
from tests.made_up import made_up_folder

runner = CliRunner()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (root / "zoo" / name).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "zoo" / name / f"{i}.png")
    options = [
        "eval",
        "--dataset",
        str(root / "zoo"),
        "--model",
        "tiny",
        "--seeds",
        "1,2",
        "--set",
        "views=3",
    ]
    runner.invoke(app, [*options, "--out", str(root / "out")], catch_exceptions=False)
    return root / "out"


def test_tables_and_pictures(results: Path) -> None:
    shown = runner.invoke(app, ["report", str(results)], catch_exceptions=False)
    assert shown.exit_code == 0
    for method in ("zero_shot", "view_ensemble", "taps"):
        assert f"| {method} |" in shown.output
    assert (results / "report.html").stat().st_size > 10_000
    assert (results / "report.tex").is_file()
    assert (results / "plots" / "zoo" / "accuracy_over_stream.svg").is_file()


def test_another_baseline_and_one_format(results: Path, tmp_path: Path) -> None:
    options = ["report", str(results), "--baseline", "taps", "--format", "md", "--no-plots"]
    shown = runner.invoke(app, options, catch_exceptions=False)
    assert "Difference to taps" in shown.output


def test_without_zero_shot_the_first_method_is_the_baseline(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("tda", "taps"), seeds=(1,), n=20)
    shown = runner.invoke(
        app, ["report", str(tmp_path), "--format", "md", "--no-plots"], catch_exceptions=False
    )
    assert "Difference to taps" in shown.output


def test_an_empty_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results"):
        runner.invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
