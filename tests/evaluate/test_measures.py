"""The registry of measures, and numbers pooled over orders and corruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taps.data.imagenet_c import IMAGENET_C
from taps.errors import SettingsError
from taps.evaluate.evaluate import collect
from taps.evaluate.jobs import Job, run_job
from taps.evaluate.measures import MEASURES, SHORT, find_measures
from taps.evaluate.pooled import POOLED, pool


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
    assert MEASURES["top1"].pooled([{"top1": 0.5, "seed": 1}]) == 0.5  # a row without `measures`


def test_a_gain_is_over_the_orders_that_zero_shot_has_too() -> None:
    rows = [row(1, top1=0.5), row(2, top1=0.7), row(2, method="taps", top1=0.75)]
    rows += [row(3, method="taps", top1=0.1), row(1, "dtd", "taps", top1=0.2)]
    found = {(cell.dataset, cell.method): cell for cell in pool(rows)}
    assert found["pets", "taps"].gain == pytest.approx(0.05)
    assert (found["pets", "taps"].images, found["pets", "taps"].seeds) == (30, 2)
    assert found["pets", "zero_shot"].gain is found["dtd", "taps"].gain is None


def test_mean_corruption_error_is_relative_to_zero_shot_kind_by_kind() -> None:
    rows, ratios = [], []
    for i, kind in enumerate(IMAGENET_C):
        mine = base = 0.0
        for severity in (1, 5):
            for seed in (1, 2):
                error = 0.2 + 0.01 * i + 0.02 * severity
                theirs = error * (0.5 + 0.03 * i + 0.01 * seed)
                base, mine = base + error, mine + theirs
                name = f"pets+{kind}-{severity}"
                rows += [row(seed, name, top1=1 - error), row(seed, name, "taps", top1=1 - theirs)]
        ratios.append(mine / base)
    found = {(cell.dataset, cell.method): cell for cell in pool(rows)}
    assert found["pets+imagenet-c-like", "taps"].measures["mce"] == pytest.approx(sum(ratios) / 15)
    assert found["pets+imagenet-c-like", "zero_shot"].measures["mce"] == pytest.approx(1.0)
    assert found["pets+imagenet-c-like", "taps"].seeds == 2
    fewer = [each for each in rows if "fog" not in each["dataset"]]
    assert not any("mce" in cell.measures for cell in pool(fewer)), "fourteen are no benchmark"
    uneven = [each for each in rows if each["method"] == "zero_shot" or each["seed"] == 1]
    assert ("pets+imagenet-c-like", "taps") not in {(cell.dataset, cell.method) for cell in pool(uneven)}


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
    assert set(found["measures"]) == set(MEASURES) - {"worst_tenth", "mce"}
    assert sum(found["reliability"]["share"]) == pytest.approx(1.0)
    collect(tmp_path / "out")
    [cell] = json.loads((tmp_path / "out" / POOLED).read_text())
    assert cell["measures"]["worst_tenth"] == found["top1"]
    events = (replace(job, stream=stream).folder(tmp_path / "out") / "events.jsonl").read_text()
    assert events.count('"none": true') == 8
