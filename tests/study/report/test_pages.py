"""The page about a method on a data set: counts by class, confusions, the most confident mistakes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from taps.study.evaluate.evaluate import evaluate_jobs
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec
from taps.study.evaluate.results import read_results
from taps.study.report import pages
from taps.study.report.pages import (
    class_table,
    confusion_matrix,
    confusion_table,
    read_rows,
    write_details,
)


def row(label: str, predicted: str, probability: float = 0.5) -> dict[str, str]:
    right = str(int(label == predicted))
    return {"truth": label, "predicted": predicted, "correct": right, "probability": str(probability)}


ROWS = [
    row("a", "a"),
    row("a", "b"),
    row("a", "b"),
    row("a", "c"),
    row("b", "b"),
    row("c", "a"),
    row("c", "c"),
]


def test_classes_from_the_worst_to_the_best() -> None:
    assert [each[:3] for each in class_table(ROWS).rows] == [
        ("a", "b (2), c (1)", "4"),
        ("c", "a (1)", "2"),
        ("b", "", "1"),
    ]
    assert [each[3] for each in class_table(ROWS).rows] == ["25.0", "50.0", "100.0"]


def test_confusions_by_how_often() -> None:
    assert confusion_table(ROWS).rows[0] == ("a", "b", "2", "50")
    assert len(confusion_table(ROWS).rows) == 3


def test_the_matrix_counts_every_pair() -> None:
    text = confusion_matrix(ROWS)
    assert (
        '<tr><th>a · 1</th><td class=on style="--p:0.25">1</td><td class=off style="--p:0.50">2</td>' in text
    )
    assert confusion_matrix([row(str(i), str(i)) for i in range(99)]) == ""


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Any:
    root = tmp_path_factory.mktemp("look")
    shutil.copytree(pictures, root / "data")
    stream = StreamSpec(str(root / "data"), name="pictures")
    evaluate_jobs([Job(stream, ModelSpec("tiny"), "zero_shot", seed) for seed in (1, 2)], root / "out")
    return root, read_results(root / "out")


def test_the_most_confident_mistakes_come_with_their_images(looked: Any) -> None:
    root, results = looked
    write_details(results, root / "out")
    page = (root / "out/runs/pictures/zero_shot/index.html").read_text()
    rows = [each for result in results.of("pictures", "zero_shot") for each in read_rows(result)]
    assert len(rows) == 48
    wrong = max(
        (each for each in rows if each["correct"] == "0"), key=lambda each: float(each["probability"])
    )
    first = page.split("<figure><img")[1]
    assert first.startswith(' src="data:image/jpeg;base64,')
    assert f"<small>{wrong['path']}</small>" in first.split("</figure>")[0]
    assert page.count("<figure><img") == min(
        12, len({each["path"] for each in rows if each["correct"] == "0"})
    )


def test_a_data_set_that_is_gone_leaves_the_words(looked: Any) -> None:
    root, results = looked
    (root / "data").rename(root / "elsewhere")
    for cached in (pages.picture_of, pages._images):
        cached.cache_clear()
    write_details(results, root / "out")
    page = (root / "out/runs/pictures/zero_shot/index.html").read_text()
    assert "<img" not in page
    assert "Most confident mistakes" in page
