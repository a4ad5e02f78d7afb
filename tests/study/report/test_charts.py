"""Pictures are drawn where there is something to show, and names in them do not cover each other."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taps.study.evaluate.measures import MEASURES
from taps.study.evaluate.results import read_results
from taps.study.report.charts import MOST, dotplot, frontier, over_stream, questions_of, running, trade_off
from taps.study.report.pages import draw
from taps.study.report.svg import FIXED, Dots, Line, chart, colours, spread, standalone
from tests.made_up import made_up_folder

MANY = ("zero_shot", "view_ensemble", "source", "tpt", "taps", "zero", "mta")


def test_every_picture_that_the_results_allow(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2)))
    drawn = draw(results, "zero_shot")["pets"]
    quiet = {"accuracy_over_stream", "accuracy_against_time", "reliability"}
    assert drawn.keys() == quiet | {"accuracy_against_labels", "asked"}
    for parts in drawn.values():
        root = ElementTree.fromstring(standalone(parts))
        assert len(root.findall("{http://www.w3.org/2000/svg}svg")) == len(parts)
    nobody = read_results(made_up_folder(tmp_path / "quiet", methods=("zero_shot", "tpt"), seeds=(1,), n=10))
    assert draw(nobody, "zero_shot")["pets"].keys() == quiet


def test_many_curves_have_a_picture_each(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, methods=MANY, seeds=(1,), n=40))
    assert len(over_stream(results, "pets", "zero_shot")) == len(MANY) - 1
    few = results.only(MANY[:MOST], ["pets"])
    [one] = over_stream(few, "pets", "zero_shot")
    assert all(f">{method}</text>" in one for method in MANY[:MOST])


def test_the_front_is_marked(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, seeds=(1,)))
    picture = trade_off(results, MEASURES["ms_p50"], title="Time")
    points = {m: (r[0].row["ms_p50"], r[0].top1) for (_, m), r in results.results.items()}
    best = {
        m
        for m, mine in points.items()
        if not any(a <= mine[0] and b >= mine[1] and (a, b) != mine for a, b in points.values())
    }
    red = re.findall(r'r="5.0" fill="#D55E00"><title>(.*?)</title>', picture)
    assert set(red) == best
    assert set(re.findall(r"<title>(.*?)</title>", picture)) == points.keys()


def test_questions_are_drawn_by_the_score_that_decided() -> None:
    """The entropy says the contrary here."""
    asked = {"entropy": "0.1", "score": "0.9", "threshold": "0.5", "asked": "1"}
    quiet = {"entropy": "2.0", "score": "0.2", "threshold": "0.5", "asked": "0"}
    heights = re.findall(r'cy="([\d.]+)" r="(2.2|3.4)"', questions_of([asked, quiet]))
    assert {r: float(y) for y, r in heights}["3.4"] < {r: float(y) for y, r in heights}["2.2"]


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


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(1, 30))
def test_names_are_moved_apart_and_keep_their_order(wanted: list[float], gap: float) -> None:
    placed = spread(wanted, gap, 0.0, 100.0)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    room = min(gap, 100 / max(len(wanted) - 1, 1))
    for one, other in pairwise(order):
        assert placed[other] - placed[one] >= room - 1e-6
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in placed)


@given(st.lists(points, min_size=2, max_size=15))
def test_labels_of_points_do_not_cover_each_other(found: list[tuple[float, float]]) -> None:
    names = [f"method {i}" for i in range(len(found))]
    dots = Dots("", [x for x, _ in found], [y for _, y in found], "#000", 4.0, names)
    picture = chart([dots], x_title="x", y_title="y")
    placed = re.findall(r'class="name halo" x="([\d.]+)" y="([\d.]+)">(.*?)<', picture)
    boxes = [(float(x), float(y) - 10, float(x) + 7.8 * len(name), float(y) + 3) for x, y, name in placed]
    for i, (left, top, right, bottom) in enumerate(boxes):
        for a, b, c, d in boxes[:i]:
            assert left >= c or a >= right or top >= d or b >= bottom


def test_charts_are_xml_whatever_names_hold() -> None:
    name = 'a<b & "c"'
    for picture in (
        chart([Line(name, [0, 1], [0.0, float("nan")], "#000")], x_title=name, y_title=name, title=name),
        dotplot([(name, 1.0, 0.5), ("b", 2.0, None)], x_title=name, title=name),
    ):
        root = ElementTree.fromstring(standalone([picture]))
        assert name in [element.text for element in root.iter()]


def test_colours_are_told_apart_and_stay() -> None:
    few = colours(["zero_shot", "tpt", "coop", "taps"])
    assert len(set(few.values())) == 4
    assert few["taps"] == FIXED["taps"]
    assert few == {name: colours(["zero_shot", "tpt", "coop", "taps"])[name] for name in few}


def test_a_point_without_a_place_is_left_out_with_its_label() -> None:
    nan, inf = float("nan"), float("inf")
    marks = [
        Dots("", [1.0, 2.0, 3.0, inf], [1.0, nan, 3.0, 4.0], "#000", labels=["a", "b", "c", "d"]),
        Line("curve", [1.0, 2.0, 3.0], [1.0, 2.0, inf], "#000", low=[nan, 1.0, 0.0], high=[2.0, inf, 9.0]),
    ]
    picture = chart(marks, x_title="x", y_title="y")
    assert re.findall("<title>(.*?)</title>", picture) == ["a", "c"]
    assert picture.count("<circle") == 2
    assert not re.search(r"\b(nan|inf)\b", picture)


def test_scores_that_are_not_finite_are_no_end_of_the_page() -> None:
    """Empty as they are written now, and as they were written before."""
    cells = [("0.5", "0.7"), ("", ""), ("nan", "inf"), ("inf", "inf"), ("-inf", "-inf")]
    rows = [{"score": s, "entropy": "1", "threshold": t, "asked": "0"} for s, t in cells]
    picture = questions_of(rows)
    assert not re.search(r"\b(nan|inf)\b", picture)
    assert picture.count("<circle") == 2  # the first, and at the top the one above every threshold
