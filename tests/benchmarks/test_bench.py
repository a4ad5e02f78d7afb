"""`benchmarks/bench.py` as a developer calls it."""

from __future__ import annotations

import json
from pathlib import Path

import cpu_ratio
import pytest
from bench import app
from typer.testing import CliRunner

runner = CliRunner()


def bench(*arguments: str) -> str:
    done = runner.invoke(app, [*arguments, "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("decoders", ["0", "2"])
def test_stream_goes_from_bytes_to_predictions(tmp_path: Path, decoders: str) -> None:
    file = tmp_path / "stream.json"
    bench("stream", "--model", "tiny", "--classes", "3", "--images", "2", "--views", "2", "--json", str(file),
          "--decoders", decoders)  # fmt: skip
    assert json.loads(file.read_text())["stream"]["images_per_second"] > 0


def test_pool_measures_streams_alone_and_together(tmp_path: Path) -> None:
    file = tmp_path / "pool.json"
    bench("pool", "--model", "tiny", "--classes", "3", "--views", "2", "--streams", "1,3", "--repeats", "1",
          "--json", str(file))  # fmt: skip
    rows = json.loads(file.read_text())["pool"]
    assert [row["streams"] for row in rows] == [1, 3]
    assert rows[1]["ratio"] == rows[1]["alone_ms"]["median"] / rows[1]["together_ms"]["median"]
    assert rows[1]["tflop"] == pytest.approx(3 * rows[0]["tflop"])


@pytest.mark.parametrize("method", ["zero_shot+", "tpt_skip"])
def test_pool_counts_the_products_of_steps_that_every_image_takes(tmp_path: Path, method: str) -> None:
    file = tmp_path / "pool.json"
    bench("pool", "--model", "tiny", "--classes", "3", "--views", "2", "--streams", "2", "--repeats", "1",
          "--method", method, "--json", str(file))  # fmt: skip
    [row] = json.loads(file.read_text())["pool"]
    assert row["images_per_second"] > 0
    assert "tflop" not in row  # no gradients; none where its gate lets an image pass


def test_start_measures_the_way_to_the_first_predictions(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    bench("start", "--model", "tiny", "--classes", "3", "--views", "2", "--json", str(file))
    start = json.loads(file.read_text())["start"]
    assert list(start)[:4] == ["model", "learner", "first_prediction", "second_prediction"]
    assert all(seconds > 0 for seconds in start.values())


@pytest.mark.slow
def test_scaling_varies_one_number_at_a_time_and_draws(tmp_path: Path) -> None:
    file, drawn = tmp_path / "scaling.json", tmp_path / "scaling.png"
    bench("scaling", "--classes", "3,5", "--views", "2", "--buffer", "0,20", "--sizes", "32",
          "--repeats", "1", "--length", "20", "--json", str(file), "--plot", str(drawn))  # fmt: skip
    rows = json.loads(file.read_text())["rows"]
    assert [(row["over"], row["value"]) for row in rows[-6:]] == [
        ("views", 2), ("buffer", 0), ("buffer", 20), ("image_size", 32), ("classes", 3), ("classes", 5),
    ]  # fmt: skip
    assert [row["value"] for row in rows if row["over"] == "stream"] == list(range(1, 21))
    assert drawn.stat().st_size > 1000


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
