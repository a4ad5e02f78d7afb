"""Rows are computed from the record as plain loops would compute them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.errors import DataError
from taps.streams.record import COLUMNS
from taps.streams.score import ImageScore, RunningScore
from taps.study.evaluate.measures import bins_of, calibration_error
from taps.study.evaluate.scores import answers_at, overhead, read_run, score
from tests.made_up import made_up_folder

probabilities = st.floats(0.001, 1.0, allow_nan=False)


def naive_ece(probability: list[float], correct: list[int], bins: int) -> float:
    total = 0.0
    for b in range(bins):
        inside = [i for i, p in enumerate(probability) if b / bins < p <= (b + 1) / bins]
        if inside:
            confidence = sum(probability[i] for i in inside) / len(inside)
            accuracy = sum(correct[i] for i in inside) / len(inside)
            total += len(inside) / len(probability) * abs(confidence - accuracy)
    return total


@given(st.lists(st.tuples(st.integers(1, 999), st.integers(0, 1)), min_size=1, max_size=50))
def test_calibration_error_is_the_definition(pairs: list[tuple[int, int]]) -> None:
    # Thousandths over 16 bins never fall on a border by rounding alone.
    probability, correct = [p / 1000 + 1e-5 for p, _ in pairs], [c for _, c in pairs]
    mine = calibration_error(np.array(probability), np.array(correct, float), 16)
    assert mine == pytest.approx(naive_ece(probability, correct, 16))


def test_fifteen_bins_closed_on_the_right() -> None:
    """Edges are k/15; one that is a probability to the last bit belongs to the bin below it."""
    edges = [k for k in range(1, 16) if k / 15 * 15 == k]
    assert len(edges) > 10
    for k in edges:
        assert bins_of(np.array([k / 15])).tolist() == [k - 1]
        assert bins_of(np.array([k / 15 - 1e-9, min(1.0, k / 15 + 1e-9)])).tolist() == [k - 1, min(k, 14)]
    assert bins_of(np.array([0.0, 1e-12, 1.0])).tolist() == [0, 0, 14]


def test_calibration_error_takes_fifteen_bins_unless_told() -> None:
    """With a probability in the middle of each of 30 half-bins, any other number of bins differs."""
    probability = [(i + 0.5) / 30 for i in range(30)]
    correct = [i % 2 for i in range(30)]
    expected = naive_ece(probability, correct, 15)
    assert calibration_error(np.array(probability), np.array(correct, float)) == pytest.approx(expected)
    others = [naive_ece(probability, correct, bins) for bins in (10, 14, 16, 20, 30)]
    assert min(abs(other - expected) for other in others) > 1e-4


def test_a_row_is_read_off_the_csv(tmp_path: Path) -> None:
    out = made_up_folder(tmp_path, methods=("taps",), seeds=(1,), n=40)
    folder = out / "runs" / "pets" / "taps" / "1"
    lines = [line.split(",") for line in (folder / "predictions.csv").read_text().splitlines()[1:]]
    run = read_run(folder)
    row = score(
        run,
        RunningScore(position=41, broken=1, method_s=2.0, decode_s=1.0, wall_s=3.1),
        {"buffer_fill": 3},
        asked=4,
    )
    assert row["n"] == 40
    assert row["broken"] == 1
    assert row["top1"] == sum(int(line[COLUMNS.index("correct")]) for line in lines) / 40
    assert row["top5"] == sum(int(line[COLUMNS.index("top5")]) for line in lines) / 40
    seconds = sorted(float(line[COLUMNS.index("seconds")]) for line in lines)
    assert row["ms_p50"] == pytest.approx(500 * (seconds[19] + seconds[20]))
    assert row["rate"] == 0.1
    assert row["buffer_fill"] == 3
    assert row["overhead"] == pytest.approx(0.05)
    assert answers_at(folder) == [i for i, line in enumerate(lines) if line[COLUMNS.index("asked")] == "1"]


def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, methods=("taps",), seeds=(1,), n=40) / "runs/pets/taps/1"
    path = folder / "predictions.csv"
    path.write_bytes(path.read_bytes()[:-7])
    assert len(read_run(folder)) == 39


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "predictions.csv").write_text(text)
    with pytest.raises(DataError, match="not made by"):
        read_run(tmp_path)


def test_damage_is_a_sentence(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, methods=("taps",), seeds=(1,), n=5) / "runs/pets/taps/1"
    path = folder / "predictions.csv"
    lines = path.read_text().splitlines()
    cells = lines[2].split(",")
    path.write_text("\n".join([*lines[:2], ",".join([*cells[:8], "yes", *cells[9:]]), *lines[3:]]) + "\n")
    with pytest.raises(DataError, match="damaged"):
        read_run(folder)
    path.write_text("\n".join([*lines[:2], "1,2", *lines[3:]]) + "\n")
    with pytest.raises(DataError, match="damaged"):
        read_run(folder)


def test_the_first_part_of_a_run(tmp_path: Path) -> None:
    run = read_run(made_up_folder(tmp_path, methods=("taps",), seeds=(1,), n=9) / "runs/pets/taps/1")
    part = run.first(4)
    assert len(part) == 4
    assert part.paths == run.paths[:4]
    assert np.array_equal(part.view_entropy, run.view_entropy[:4])


def test_odd_names_survive_the_csv(tmp_path: Path) -> None:
    from contextlib import closing

    from taps.streams.record import Record
    from taps.types import Prediction

    keys = ["a,b.png", 'quo"te.png', "line\u2028end.png", "return\r.png", "new\nline.png", "ü.png"]
    with closing(Record(tmp_path)) as record:
        for t, key in enumerate(keys):
            prediction = Prediction(t, 0, "x", np.array([0.7, 0.3], np.float32), 0.6, np.inf, False, 0.01)
            record.row(t, key, prediction, ImageScore(0, 1, hit=True), ("x", "y"))
    run = read_run(tmp_path)
    assert run.paths == keys
    assert np.isinf(run.threshold).all()


def test_no_method_time_means_no_overhead() -> None:
    assert overhead(RunningScore()) == 0.0
