"""`recipes/rivals.py` on made-up features."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import rivals
import rivals_measures
import rivals_page
from label import read_rows
from rivals_page import write_page

import taps
from taps.asking.question import class_seconds
from taps.errors import DataError


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of three classes, of which one is the largest; the views of an image differ a little."""
    folder, rng = tmp_path_factory.mktemp("features"), np.random.default_rng(0)
    dim = taps.load_clip("tiny").config.embed_dim
    for name in ("dtd", "sketch"):
        labels = rng.permutation(np.repeat([0, 1, 2], [48, 16, 16] if name == "dtd" else [28, 26, 26]))
        images = rng.normal(size=(3, dim))[labels] + rng.normal(size=(80, dim))
        views = images[:, None] + 0.3 * rng.normal(size=(80, 2, dim))
        np.savez(folder / f"{name}-2.npz", features=views, labels=labels, classes=np.array(["a", "b", "c"]))
    return folder


def given(features: Path, rows: Path, *more: str) -> argparse.Namespace:
    words = ["--features", str(features), "--rows", str(rows), "--model", "tiny", "--views", "2"]
    words += [
        "--heads",
        "view_ensemble+,class_means",
        "--rules",
        "random,margin",
        "--budgets",
        "view_ensemble+,class_means",
    ]
    words += ["--kinds", "bitta,view_ensemble+", "--cases", "class_means", "--orders", "1"]
    return rivals.parser().parse_args([*words, *more])


@pytest.fixture(scope="module")
def rows(features: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rivals.jsonl"
    assert rivals.run_all(given(features, file)) == len(read_rows(file)) > 40
    return file


def test_every_stream_has_a_row_once(features: Path, rows: Path) -> None:
    held = read_rows(rows)
    assert len({rivals.key(row) for row in held}) == len(held)
    assert rivals.run_all(given(features, rows)) == 0  # nothing is left
    assert {row["case"] for row in held} == {"", *rivals.CASES}
    for row in held:
        assert row["images"] == 80 or row["case"] == rivals.MOSTLY
        assert row["asked"] <= np.ceil(row["rate"] * row["images"]) or row["questions"] != "class"


def test_one_class_mostly_is_four_of_five_images_of_a_set_that_has_them(rows: Path) -> None:
    held = [row for row in read_rows(rows) if row["case"] == rivals.MOSTLY]
    assert {(row["set"], row["images"], row["largest"]) for row in held} == {("dtd", 60, 80.0)}


def test_every_kind_of_question_gets_the_same_seconds(rows: Path) -> None:
    """A budget of 10 % of 80 images is 8 classes of three; a yes or no takes 1.6 s of their 2.87 s."""
    held = [row for row in read_rows(rows) if (row["method"], row["rate"]) == ("bitta", 0.1)]
    whole = 8 * class_seconds(3)
    assert {row["questions"] for row in held} == {"class", "yes_no"}
    for row in held:
        each = 1.6 if row["questions"] == "yes_no" else class_seconds(3)
        assert row["annotator_seconds"] == pytest.approx(row["asked"] * each)
        assert whole - 3 * class_seconds(3) <= row["annotator_seconds"] <= whole + class_seconds(3)


def test_a_file_of_rows_is_of_one_commit(features: Path, rows: Path, tmp_path: Path) -> None:
    held, file = [row | {"commit": "another"} for row in read_rows(rows)[:3]], tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in held))
    with pytest.raises(DataError, match="has streams of commit another"):
        rivals.run_all(given(features, file))
    assert read_rows(file) == held


def test_other_heads_read_the_mean_of_the_views_ours_sees(features: Path) -> None:
    views = np.load(features / "dtd-2.npz")["features"]
    units = views / np.linalg.norm(views, axis=-1, keepdims=True)
    ours, mean, one = (
        rivals.shown(views, {"method": method, "views": count}).numpy()
        for method, count in (("view_ensemble+", 2), ("gda", 2), ("gda", 1))
    )
    np.testing.assert_allclose(ours, units, atol=1e-6)
    np.testing.assert_allclose(one, units[:, :1], atol=1e-6)
    total = units.sum(axis=1)
    np.testing.assert_allclose(mean[:, 0], total / np.linalg.norm(total, axis=-1, keepdims=True), atol=1e-6)


def test_a_dry_run_says_what_is_left(
    features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rivals.run_all(given(features, tmp_path / "rows.jsonl", "--dry")) == 0
    assert "streams to run, about" in capsys.readouterr().out
    assert not (tmp_path / "rows.jsonl").exists()
    with pytest.raises(DataError, match="features of no set with 2 views"):
        rivals.run_all(given(tmp_path, tmp_path / "rows.jsonl"))


@pytest.mark.parametrize("case", ["", "20 % wrong", "two classes confused"])
def test_the_annotator_errs_as_the_case_says(case: str) -> None:
    chance, largest = np.random.default_rng(0), np.array([0, 1])
    told = [rivals.answer_of(label, case, largest, 10, chance) for label in [0, 5] * 2000]
    wrong = [float(np.mean(np.array(told[start::2]) != label)) for start, label in enumerate((0, 5))]
    expected = {"": (0, 0), "20 % wrong": (0.18, 0.18), "two classes confused": (0.5, 0)}[case]
    assert wrong == pytest.approx(expected, abs=0.04)


def curve(*points: tuple[float, float, float]) -> rivals_measures.Curve:
    """Of one stream of two classes: answers, seconds and accuracy at each rate."""
    rows = [
        {"asked": asked, "images": 100, "classes": 2, "annotator_seconds": took, "accuracy": height}
        for asked, took, height in points
    ]
    return {row["asked"] / 100: {("dtd", 0): row} for row in rows}


def test_each_doubling_of_a_budget_counts_alike() -> None:
    steps = curve((1, 2, 10), (2, 4, 20), (8, 16, 40))  # one doubling of mean height 15, two of 30
    assert rivals_measures.areas(steps, lambda row: row["asked"])["dtd", 0] == pytest.approx(25)
    shifted = curve((1, 2, 13), (2, 4, 23), (8, 16, 43))
    assert rivals_measures.areas(shifted, lambda row: row["annotator_seconds"])["dtd", 0] == pytest.approx(28)


def test_areas_are_paired_with_those_of_random_questions() -> None:
    low, high = curve((1, 2, 10), (2, 4, 20), (8, 16, 40)), curve((1, 2, 13), (2, 4, 23), (8, 16, 43))
    for each in (*low.values(), *high.values()):
        (row,) = each.values()
        each["dtd", 1] = row | {"accuracy": row["accuracy"] + 1.0}
    found = rivals_measures.budget_figures(high, low)
    assert found["area"] == pytest.approx(28.5)
    assert found["over_random"] == pytest.approx([3, 0])


def test_kinds_of_questions_are_compared_where_all_have_seconds() -> None:
    steps, shorter = curve((1, 2, 10), (2, 4, 20), (8, 16, 40)), curve((1, 4, 30), (4, 16, 50))
    spans = rivals_measures.shared_seconds([steps, shorter])
    assert rivals_measures.areas_between(steps, spans)["dtd", 0] == pytest.approx(30)
    assert rivals_measures.areas_between(shorter, spans)["dtd", 0] == pytest.approx(40)


def test_every_budget_that_was_run_is_on_the_curve(rows: Path) -> None:
    found = rivals_measures.figures(read_rows(rows))
    assert {each["method"] for each in found["curves"]} == {"view_ensemble+", "class_means"}
    assert all(each["rates"] == [0.01, 0.02, 0.05, 0.1, 0.2] for each in found["curves"])
    kinds = {"bitta": {"class", "yes_no"}, "view_ensemble+": {"class", "yes_no", "both"}}
    for method, expected in kinds.items():
        assert {each["questions"] for each in found["seconds"] if each["method"] == method} == expected


def test_answers_a_class_are_read_off_between_two_budgets_and_never_beyond() -> None:
    steps = curve((1, 2, 10), (4, 8, 20), (16, 32, 40))  # 0.5, 2 and 8 answers a class
    assert rivals_measures.at_answers(steps, 4)["dtd", 0] == pytest.approx(30)
    assert rivals_measures.at_answers(steps, 1)["dtd", 0] == pytest.approx(15)
    assert rivals_measures.at_answers(steps, 16) == {}


def test_the_area_by_answers_a_class_is_between_1_and_16_of_them() -> None:
    (rows,) = rivals_measures.asked_rows(curve((1, 2, 0), (2, 4, 10), (64, 99, 60))).values()
    assert rivals_measures.area_by_class(rows) == pytest.approx(30)  # 10 at 1, 50 at 16
    assert rivals_measures.area_by_class(rows[:2]) is None


def test_the_page_has_every_part(features: Path, rows: Path, tmp_path: Path) -> None:
    held = read_rows(rows)
    write_page(held, rivals.origin(given(features, rows), held), tmp_path)
    said, found = (
        (tmp_path / "results" / "rivals.md").read_text(),
        json.loads((tmp_path / "results" / "rivals.json").read_text()),
    )
    assert "## By budget" in said
    assert "| always the largest class |" in said
    assert "{" not in said
    zero = [row for row in held if row["method"] == "zero_shot" and not row["case"] and row["views"] == 2]
    mean = np.mean([row["accuracy"] for row in zero])
    assert found["kinds"]["zero_shot  2"]["accuracy"] == pytest.approx(mean, abs=1e-3)
    assert f"| `zero_shot` | {mean:.1f} | – |" in said
    assert (tmp_path / "figures" / "label-rivals.svg").read_text().count("<polyline") >= 2


def test_a_kind_that_lacks_a_set_is_left_out(rows: Path) -> None:
    held = [row for row in read_rows(rows) if (row["set"], row["method"]) != ("dtd", "class_means")]
    found = rivals_measures.figures(held)
    assert "zero_shot  2" in found["kinds"]
    assert not [name for name in found["kinds"] if name.startswith("class_means")]


def test_the_page_says_where_another_head_is_better() -> None:
    def kind(method: str, *heights: float) -> dict[str, object]:
        sets = dict(zip(("dtd", "sketch"), heights, strict=True))
        return {
            "method": method,
            "rule": "random",
            "accuracy": sum(heights) / 2,
            "by_set": sets,
            "late_by_set": sets | {"sketch": 0},
        }

    kinds = [
        kind("view_ensemble+", 40, 50),
        kind("gda", 20, 51),
        kind("clap", 30, 30),
        kind("zero_shot+", 99, 99),
    ]
    said = rivals_page.reading({str(k["method"]): k for k in kinds}, chosen=["dtd"])
    assert "`view_ensemble+` has 45.0, the best other head, `gda`, 35.5" in said
    assert "over the 1 on which no default of ours was chosen `view_ensemble+` has 50.0" in said
    assert "whole stream: `gda` on `sketch` (+1.0). In its last quarter: none." in said
