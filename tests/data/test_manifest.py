"""CSV and JSONL manifests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taps.data import load_dataset
from taps.errors import DataError

from .layouts import folder_of, put

ROWS = [("img/1.jpg", "dog", "day"), ("img/2.jpg", "guinea_pig", "night"), ("img/3.jpg", "", "night")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path, [path for path, _, _ in ROWS])


def csv_of(folder: Path, rows: list[tuple[str, ...]], header: str = "path,label,domain") -> Path:
    return put(folder / "m.csv", "\n".join([header, *(",".join(row) for row in rows)]) + "\n")


def test_csv_and_jsonl_say_the_same(folder: Path) -> None:
    lines = [json.dumps({"path": p, "label": name or None, "domain": d}) for p, name, d in ROWS]
    jsonl = put(folder / "m.jsonl", "\n\n".join(lines))
    loaded = [load_dataset(csv_of(folder, ROWS)), load_dataset(jsonl)]
    assert loaded[0] == loaded[1]
    assert loaded[0].classes == ("dog", "guinea pig")
    assert loaded[0].labels == [0, 1, None]
    assert [s.domain for s in loaded[0].samples] == ["day", "night", "night"]
    assert loaded[0].read(1) == b"img/2.jpg"


@pytest.mark.parametrize("separator", [";", "\t"])
def test_what_spreadsheets_write_where_the_comma_is_in_numbers(folder: Path, separator: str) -> None:
    text = csv_of(folder, ROWS).read_text().replace(",", separator)
    assert load_dataset(put(folder / "other.csv", text)).samples == load_dataset(folder / "m.csv").samples


def test_a_list_of_paths_alone(folder: Path) -> None:
    listed = csv_of(folder, [("img/1.jpg",), ("img/2.jpg",)], header="path")
    assert load_dataset(listed, classes=["cat", "dog"]).labels == [None, None]


def test_given_names_and_indices(folder: Path) -> None:
    assert load_dataset(csv_of(folder, ROWS), classes=["Guinea Pig", "cat", "dog"]).labels == [2, 0, None]
    numbers = csv_of(folder, [("img/1.jpg", "2", ""), ("img/2.jpg", "0", "")])
    assert load_dataset(numbers, classes=["x", "y", "z"]).labels == [2, 0]


def test_wnids_in_a_manifest(folder: Path) -> None:
    data = load_dataset(csv_of(folder, [("img/1.jpg", "n01443537", ""), ("img/2.jpg", "n01440764", "")]))
    assert [data.classes[label] for label in data.labels if label is not None] == ["goldfish", "tench"]


@pytest.mark.parametrize(
    ("rows", "classes", "sentence"),
    [
        (
            [("img/9.jpg", "dog"), ("img/8.jpg", "cat")],
            None,
            "2 files that are not there: img/9.jpg, img/8.jpg",
        ),
        ([("img/1.jpg", "dog"), ("img/1.jpg", "cat")], None, "two different labels"),
        ([("img/1.jpg", "1"), ("img/2.jpg", "0")], None, "numbers for labels"),
        ([("img/1.jpg", "dog"), ("img/2.jpg", "dog")], None, "one class only"),
        (
            [("img/1.jpg", "emu"), ("img/2.jpg", "dog")],
            ["dog", "cat"],
            r"not in the list of 2 names: emu \(1 rows\)",
        ),
        ([("img/1.jpg", "7"), ("img/2.jpg", "1")], ["dog", "cat"], r"7 \(1 rows\)"),
        ([("", "dog"), ("img/2.jpg", "cat")], None, "1 rows without a path"),
        ([], None, "no rows"),
    ],
)
def test_rows_that_cannot_be_used(
    folder: Path, rows: list[tuple[str, ...]], classes: list[str] | None, sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        load_dataset(csv_of(folder, rows, "path,label"), classes=classes)


def test_files_that_are_no_manifests(folder: Path) -> None:
    with pytest.raises(DataError, match="columns file, class"):
        load_dataset(put(folder / "a.csv", "file,class\nx.jpg,dog\n"))
    with pytest.raises(DataError, match="line 2 is not JSON"):
        load_dataset(put(folder / "a.jsonl", '{"path": "img/1.jpg", "label": "a"}\n{"path": "img'))
    with pytest.raises(DataError, match="must be an object"):
        load_dataset(put(folder / "b.jsonl", "[1]"))
