"""Benchmarks as a developer calls them, on the tiny model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ablation
import cpu_ratio
import cuda_tests
import pool
import pytest
import views_accuracy

import taps

SMALL = ["--model", "tiny", "--device", "cpu", "--classes", "3", "--views", "2", "--repeats", "1"]


def test_pool_measures_streams_alone_and_together(tmp_path: Path) -> None:
    file = tmp_path / "pool.json"
    pool.main([*SMALL, "--streams", "1,3", "--json", str(file)])
    rows = json.loads(file.read_text())["pool"]
    assert [row["streams"] for row in rows] == [1, 3]
    assert rows[1]["ratio"] == rows[1]["alone_ms"]["median"] / rows[1]["together_ms"]["median"]
    assert rows[1]["tflop"] == pytest.approx(3 * rows[0]["tflop"])


@pytest.mark.parametrize("method", ["zero_shot+", "tpt_skip"])
def test_pool_counts_the_products_of_steps_that_every_image_takes(tmp_path: Path, method: str) -> None:
    file = tmp_path / "pool.json"
    pool.main([*SMALL, "--streams", "2", "--method", method, "--json", str(file)])
    [row] = json.loads(file.read_text())["pool"]
    assert row["images_per_second"] > 0
    assert "tflop" not in row  # no gradients; none where its gate lets an image pass


def test_the_bare_encoder_and_what_is_around_it_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "ratio.json"
    cpu_ratio.main(["--model", "tiny", "--images", "4", "--views", "2", "--rounds", "1", "--json", str(file)])
    found = {row["what"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(found) == [
        "taps predict", "taps run, 2 views", "taps run --quick", "taps label, 2 views",
        "decoding", "view 0", "2 views",
    ]  # fmt: skip
    for row in found.values():
        assert "processor_ratio" not in row or 0 < row["processor_ratio"] == row["processor_ratios"][0]


def test_every_kind_of_step_is_taken_in_the_plain_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "ablation.json"
    small = ["--model", "tiny", "--classes", "3", "--buffer", "2", "--views", "4", "--repeats", "1"]
    ablation.main([*small, "--only", "plain", "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["step"] for row in rows] == 2 * ["episodic", "continual", "8 streams", "view_ensemble+"]
    assert all(row["ms"]["median"] > 0 for row in rows)
    assert capsys.readouterr().out.count("| plain |") == 2


def test_every_kernel_is_in_the_ablation() -> None:
    """Whatever is decorated so; but not that of views, which are ready there."""
    files = (Path(taps.__file__).parent).rglob("*.py")
    names = {name for file in files for name in re.findall(r"@tried_once\(.*\)\ndef (\w+)", file.read_text())}
    assert names == {*ablation.KERNELS, "views_kernel"}


def test_each_number_of_views_is_measured_and_drawn(tmp_path: Path) -> None:
    file, drawn = tmp_path / "views.json", tmp_path / "views.png"
    few = ["--model", "tiny", "--images", "6", "--views", "1,4", "--rate", "0.5"]
    views_accuracy.main([*few, "--json", str(file), "--png", str(drawn)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["views"] for row in rows] == [1, 4]
    assert all(0 <= row["accuracy"] <= 1 and row["answers"] > 0 for row in rows)
    assert drawn.stat().st_size > 1000


def test_the_files_of_tests_for_a_gpu_exist() -> None:
    assert [file for file in cuda_tests.FILES if not (cuda_tests.TESTS / f"{file}.py").is_file()] == []
