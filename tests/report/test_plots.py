"""Pictures are drawn where there is something to show, at a size that can be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from taps.evaluate.results import read_results
from taps.report.figure import MOST, shown
from taps.report.palette import FIXED, colours
from taps.report.plots import draw_all, frontier, running
from tests.made_up import made_up_folder

KINDS = {
    *("accuracy_over_time", "accuracy_against_labels", "entropy_and_threshold", "query_rate"),
    *("buffer_classes", "reliability_diagram", "accuracy_and_latency"),
}


def test_seven_pictures_of_800_pixels(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2)))
    drawn = draw_all(results, tmp_path / "plots")["pets"]
    assert {path.stem for path in drawn} == KINDS
    for path in drawn:
        with Image.open(path) as picture:
            assert picture.size == (800, 500)
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10


def test_nobody_asked_means_four_pictures_fewer(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, methods=("zero_shot", "tpt"), seeds=(1,), n=10))
    drawn = {path.stem for path in draw_all(results, tmp_path / "plots")["pets"]}
    assert drawn == {"accuracy_over_time", "reliability_diagram", "accuracy_and_latency"}


def test_running_mean() -> None:
    values = np.array([1.0, 0.0, 0.0, 1.0])
    assert running(values).tolist() == [values[: i + 1].mean() for i in range(4)]


points = st.tuples(st.integers(1, 9).map(float), st.integers(0, 9).map(float))


@given(st.lists(points, min_size=1, max_size=12))
def test_frontier_is_what_nothing_beats(found: list[tuple[float, float]]) -> None:
    kept = frontier(found)
    for index, (ms, accuracy) in enumerate(found):
        beaten = any(m <= ms and a >= accuracy and (m, a) != (ms, accuracy) for m, a in found)
        assert (found[index] in [found[k] for k in kept]) == (not beaten)
    assert [found[k][0] for k in kept] == sorted(found[k][0] for k in kept)


def test_colours_are_told_apart_and_stay() -> None:
    few = colours(["zero_shot", "tpt", "coop", "taps"])
    assert len(set(few.values())) == 4
    assert few["taps"] == FIXED["taps"]
    assert few == {name: colours(["zero_shot", "tpt", "coop", "taps"])[name] for name in few}


def test_of_many_methods_the_important_are_drawn() -> None:
    many = [*(f"m{i}" for i in range(12)), "taps", "zero_shot"]
    chosen = shown(many)
    assert len(chosen) == MOST
    assert {"taps", "zero_shot"} <= set(chosen)
    assert shown(["a", "b"]) == ["a", "b"]
