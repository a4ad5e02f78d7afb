"""The registry of measures, numbers pooled over orders, and each measure as a loop over images."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.errors import SettingsError
from taps.study.evaluate import measures
from taps.study.evaluate.evaluate import collect
from taps.study.evaluate.jobs import Job, run_job
from taps.study.evaluate.measures import MEASURES, SHORT, find_measures
from taps.study.evaluate.pooled import POOLED, pool
from taps.study.evaluate.scores import Run, measured


def row(seed: int, dataset: str = "pets", method: str = "zero_shot", **measures: float) -> dict[str, Any]:
    about = {"dataset": dataset, "method": method, "seed": seed, "n": 10 * seed}
    return about | {"top1": 0.0, "measures": measures} | measures


def test_each_measure_says_what_it_is() -> None:
    assert all(
        measure.better in ("higher", "lower") and measure.description.endswith(".")
        for measure in MEASURES.values()
    )
    assert len({measure.title for measure in MEASURES.values()}) == len(MEASURES)
    assert find_measures(["ece", "top1"]) == [MEASURES["ece"], MEASURES["top1"]]
    assert find_measures(["all"]) == list(MEASURES.values())
    assert set(SHORT) <= set(MEASURES)
    with pytest.raises(SettingsError, match="Unknown measure 'eec'"):
        find_measures(["eec"])


def test_numbers_as_tables_show_them() -> None:
    assert MEASURES["top1"].heading == "top-1 %"
    assert MEASURES["top1"].text(0.61234) == "61.23"
    assert MEASURES["drift_drop"].text(-1e-17) == "0.00"
    assert MEASURES["brier"].text(0.61234) == "0.612"
    assert MEASURES["peak_mem_mb"].text(1234.4) == "1,234"


def test_runs_are_pooled_as_the_measure_says() -> None:
    rows = [row(seed, top1=seed / 20, ms_p50=float(seed)) for seed in range(1, 21)]
    assert MEASURES["top1"].pooled(rows) == pytest.approx(0.525)
    assert MEASURES["worst_tenth"].pooled(rows) == pytest.approx((0.05 + 0.10) / 2)
    assert MEASURES["worst_tenth"].pooled(rows[:5]) == pytest.approx(0.05)
    assert MEASURES["ms_p50"].pooled([*rows[:4], row(9, ms_p50=1000.0)]) == 3.0
    assert MEASURES["ece"].pooled(rows) is None


def test_a_gain_is_over_the_orders_that_zero_shot_has_too() -> None:
    rows = [row(1, top1=0.5), row(2, top1=0.7), row(2, method="taps", top1=0.75)]
    rows += [row(3, method="taps", top1=0.1), row(1, "dtd", "taps", top1=0.2)]
    found = {(cell.dataset, cell.method): cell for cell in pool(rows)}
    assert found["pets", "taps"].gain == pytest.approx(0.05)
    assert (found["pets", "taps"].images, found["pets", "taps"].seeds) == (30, 2)
    assert found["pets", "zero_shot"].gain is found["dtd", "taps"].gain is None


def test_a_run_has_every_measure_it_can_have(
    tmp_path: Path, make_job: Callable[..., Job], pictures: Path
) -> None:
    job = make_job("view_ensemble+", settings={"views": 4, "policy": "fixed", "tau0": 0.0})
    other = tmp_path / "other"
    for name in ("dot", "cat"):  # the second one is a class of both
        (other / name).mkdir(parents=True)
        for path in (pictures / "ant").iterdir():
            (other / name / path.name).write_bytes(path.read_bytes())
    stream = replace(job.stream, outside=f"{other}:0.25", order="by_class", name="mixed")
    found = run_job(replace(job, stream=stream), tmp_path / "out")
    assert found is not None
    assert (found["n"], found["outside"]) == (32, 8)
    # Every image has an answer, so that none is left to be right without one.
    assert set(found["measures"]) == set(MEASURES) - {"worst_tenth", "final"}
    assert sum(found["reliability"]["share"]) == pytest.approx(1.0)
    collect(tmp_path / "out")
    [cell] = json.loads((tmp_path / "out" / POOLED).read_text())
    assert cell["measures"]["worst_tenth"] == found["top1"]
    events = (replace(job, stream=stream).folder(tmp_path / "out") / "events.jsonl").read_text()
    assert events.count('"none": true') == 8


# Few distinct values, so that ties are common.
scores = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=30).filter(
    lambda pairs: len({outside for _, outside in pairs}) == 2
)
probs = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any), min_size=1, max_size=12)


@given(scores)
def test_auroc_counts_pairs(pairs: list[tuple[int, bool]]) -> None:
    beaten = [
        1.0 if bad > good else 0.5 if bad == good else 0.0
        for bad, outside in pairs
        if outside
        for good, other in pairs
        if not other
    ]
    score, outside = np.array([float(s) for s, _ in pairs]), np.array([o for _, o in pairs])
    assert measures.auroc(score, outside) == pytest.approx(sum(beaten) / len(beaten))


@given(scores)
def test_fpr95_tries_every_limit(pairs: list[tuple[int, bool]]) -> None:
    inside = [s for s, outside in pairs if not outside]
    let_in = [
        sum(s <= limit for s, outside in pairs if outside) / sum(outside for _, outside in pairs)
        for limit in sorted(inside)
        if 100 * sum(s <= limit for s in inside) >= 95 * len(inside)
    ]
    score, outside = np.array([float(s) for s, _ in pairs]), np.array([o for _, o in pairs])
    assert measures.fpr95(score, outside) == let_in[0]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 1)), min_size=1, max_size=40))
def test_per_class_counts_every_class_once(pairs: list[tuple[str, int]]) -> None:
    of = {name: [right for label, right in pairs if label == name] for name, _ in pairs}
    expected = sum(sum(found) / len(found) for found in of.values()) / len(of)
    correct = np.array([float(right) for _, right in pairs])
    assert measures.per_class([label for label, _ in pairs], correct) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1)), min_size=1, max_size=60))
def test_adaptive_bins_hold_equally_many(pairs: list[tuple[int, int]]) -> None:
    ordered = sorted(((p / 1000, c) for p, c in pairs), key=lambda pair: pair[0])
    n, total, start = len(ordered), 0.0, 0
    for b in range(15):
        size = n // 15 + (b < n % 15)
        part = ordered[start : start + size]
        start += size
        if part:
            total += size / n * abs(sum(p for p, _ in part) / size - sum(c for _, c in part) / size)
    probability, correct = np.array([p / 1000 for p, _ in pairs]), np.array([float(c) for _, c in pairs])
    assert measures.adaptive_calibration_error(probability, correct) == pytest.approx(total)


@given(probs, st.randoms(use_true_random=False))
def test_brier_and_log_loss_from_whole_distributions(rows: list[list[int]], random: Any) -> None:
    p = [[value / sum(row) for value in row] for row in rows]
    labels = [random.randrange(3) for _ in p]
    squared = [
        sum((v - (k == label)) ** 2 for k, v in enumerate(row)) for row, label in zip(p, labels, strict=True)
    ]
    losses = [-math.log(max(row[label], 1e-12)) for row, label in zip(p, labels, strict=True)]
    of_label = np.array([row[label] for row, label in zip(p, labels, strict=True)])
    squares = np.array([sum(v * v for v in row) for row in p])
    assert measures.brier(squares, of_label) == pytest.approx(sum(squared) / len(p))
    assert measures.log_loss(of_label) == pytest.approx(sum(losses) / len(p))


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=5), st.integers(1, 6)
)
def test_drift_phase_by_phase(phases: list[list[int]], window: int) -> None:
    found = []
    for part in phases[1:]:
        if len(part) < 2:
            continue
        w = min(window, len(part) // 2)
        settled = sum(part[w:]) / len(part[w:])
        first = sum(part[:w]) / w
        recovered = [
            end for end in range(w, len(part) + 1) if sum(part[end - w : end]) / w >= settled - 1e-12
        ]
        found.append((first, settled - first, recovered[0] if recovered else len(part)))
    phase = np.array([float(i) for i, part in enumerate(phases) for _ in part])
    correct = np.array([float(right) for part in phases for right in part])
    mine = measures.drift(phase, correct, window)
    if not found:
        assert mine == {}
    else:
        expected = [sum(column) / len(found) for column in zip(*found, strict=True)]
        assert list(mine.values()) == pytest.approx(expected)


def made_run(outside: list[int], **columns: Any) -> Run:
    n = len(outside)
    plain = {name: np.zeros(n) for name in Run.__dataclass_fields__ if name not in ("paths", "truths")}
    keys, labels = [f"{i}.png" for i in range(n)], ["a" if i % 2 else "b" for i in range(n)]
    return Run(keys, labels, **plain | {"outside": np.array(outside, float)} | columns)


def test_images_of_no_class_are_told_apart_and_not_part_of_the_accuracy() -> None:
    nan = np.nan
    run = made_run(
        [0, 1, 0, 1],
        correct=np.array([1, nan, 0, nan]),
        top5=np.array([1, nan, 1, nan]),
        probability=np.array([0.9, 0.2, 0.6, 0.7]),
        view_entropy=np.array([0.1, 1.0, 0.5, 0.6]),
        of_truth=np.array([0.9, nan, 0.3, nan]),
        squares=np.array([0.82, 0.3, 0.46, 0.5]),
    )
    found = measured(run)
    assert found["top1"] == 0.5
    assert found["ece"] == pytest.approx((0.1 + 0.6) / 2)
    assert found["auroc_max"] == 0.75
    assert found["auroc_entropy"] == 1.0
    assert found["fpr95_max"] == 0.5
    assert "auroc_reject" not in found  # nothing was learned of such images
    assert "auroc_max" not in measured(run.inside)
    assert measured(run.inside)["top1"] == 0.5


def test_two_classes_of_one_name_are_two() -> None:
    run = made_run([0, 0, 0], correct=np.array([1.0, 0, 0]), truth_index=np.array([0.0, 1, 1]))
    run = replace(run, truths=["missile"] * 3)
    assert measured(run)["per_class"] == 0.5
    older = replace(run, truth_index=np.full(3, np.nan))  # it says no more than the name
    assert measured(older)["per_class"] == pytest.approx(1 / 3)
