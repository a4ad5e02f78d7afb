"""Images are sorted by class, and nothing is touched that an earlier sorting did not put there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from taps.data.dataset import Dataset, Sample
from taps.data.sources import FolderSource
from taps.errors import SettingsError
from taps.streams.class_folders import ClassFolders
from taps.streams.options import SortOptions
from taps.streams.sorting import TABLE, check_sorting, sort_all


def images(folder: Path, *names: str, text: str = "") -> Dataset:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text or f"picture {name}")
    return Dataset("images", (), tuple(Sample(name, None) for name in names), FolderSource(folder))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, apart from the table."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != TABLE]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def sort(dataset: Dataset, into: Path, labels: Sequence[str], link: bool = False, sure: float = 1.0) -> None:
    known = [(sample.path, label, 1.0) for sample, label in zip(dataset.samples, labels, strict=True)]
    sort_all(dataset, known, SortOptions(into, link, sure))


@pytest.mark.parametrize("link", [False, True])
def test_only_copies_of_an_earlier_sorting_are_moved(tmp_path: Path, link: bool) -> None:
    dataset = images(tmp_path / "in", "1.png", "2.png")
    mine = {"backup/1.png": b"picture 1.png", "dog/2.png": b"mine", "cat/1.png": b"mine, too"}
    for name, data in mine.items():
        (tmp_path / "to" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "to" / name).write_bytes(data)
    sort(dataset, tmp_path / "to", ["cat", "cat"], link)
    sorted_to_cat = {"cat/1 (2).png": b"picture 1.png", "cat/2.png": b"picture 2.png"}
    assert tree(tmp_path / "to") == mine | sorted_to_cat
    sort(dataset, tmp_path / "to", ["dog", "dog"], link)
    sorted_to_dog = {"dog/1.png": b"picture 1.png", "dog/2 (2).png": b"picture 2.png"}
    for _ in range(2):
        assert tree(tmp_path / "to") == mine | sorted_to_dog
        assert (tmp_path / "to/dog/1.png").is_symlink() == link
        sort(dataset, tmp_path / "to", ["dog", "dog"], link)  # again: nothing is to be done
    assert tree(tmp_path / "in") == {"1.png": b"picture 1.png", "2.png": b"picture 2.png"}


def test_a_copy_that_somebody_has_changed_is_his(tmp_path: Path) -> None:
    dataset = images(tmp_path / "in", "1.png")
    sort(dataset, tmp_path / "to", ["cat"])
    (tmp_path / "to/cat/1.png").write_bytes(b"PICTURE 1.png")  # of the same size
    sort(dataset, tmp_path / "to", ["dog"])
    assert tree(tmp_path / "to") == {"cat/1.png": b"PICTURE 1.png", "dog/1.png": b"picture 1.png"}


def test_a_copy_that_somebody_put_back_stays(tmp_path: Path) -> None:
    dataset = images(tmp_path / "in", "1.png")
    for label in ("cat", "dog"):
        sort(dataset, tmp_path / "to", [label])
    (tmp_path / "to/cat/1.png").write_bytes(b"picture 1.png")  # where it was sorted to at first
    sort(dataset, tmp_path / "to", ["ship"])
    assert tree(tmp_path / "to").keys() == {"cat/1.png", "ship/1.png"}


def test_folders_with_the_same_names_may_be_sorted_into_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sort(images(tmp_path / name, "a.png", text=name), tmp_path / "to", ["cat"])
    assert tree(tmp_path / "to") == {"cat/a.png": b"one", "cat/a (2).png": b"two"}
    sort(images(tmp_path / "two", "a.png", text="new"), tmp_path / "to", ["cat"])
    assert sorted(tree(tmp_path / "to").values()) == [b"new", b"one"]


def test_the_table_of_a_sorting_that_was_cut_off_is_continued(tmp_path: Path) -> None:
    dataset = images(tmp_path / "in", "1.png", "=2.png")
    sort(dataset, tmp_path / "to", ["a/b", "a_b"])
    table = tmp_path / "to" / TABLE
    table.write_bytes(table.read_bytes()[:-3])  # in the row of the second image
    there = {"a_b (2)/=2.png"}  # not noted any more, and so left alone
    for labels, found in (
        (("a_b", "a/b"), {"a_b (2)/1.png", "a_b/=2.png"}),
        (("=", "="), {"=/1.png", "=/=2.png"}),
    ):
        sort(dataset, tmp_path / "to", labels)
        assert tree(tmp_path / "to").keys() == there | found
    cells = table.read_text().replace("\n", ",").split(",")
    assert not [cell for cell in cells if cell.startswith("=")]


def test_what_was_not_sure_is_moved_when_it_is(tmp_path: Path) -> None:
    dataset = images(tmp_path / "in", "1.png", "2.png")
    sort(dataset, tmp_path / "to", ["cat", "not-sure"], sure=1.1)
    assert tree(tmp_path / "to").keys() == {"not-sure/cat/1.png", "not-sure/not-sure (2)/2.png"}
    sort(dataset, tmp_path / "to", ["cat", "not-sure"])
    assert tree(tmp_path / "to").keys() == {"cat/1.png", "not-sure (2)/2.png"}


ALIKE = [
    ("a/b", "a_b"), ("St.", "St"), ("x" * 121, "x" * 122), ("Cat", "cat"), ("é", "e\u0301"), ("", "_"),
    ("not-sure", "NOT-SURE"), ("sorted.csv", "sorted.csv."), ("con", "_con"), ("Ｃat", "cat"),
]  # fmt: skip


@pytest.mark.parametrize("pair", ALIKE, ids=lambda pair: ascii(pair)[:30])
def test_two_classes_never_share_a_folder(tmp_path: Path, pair: tuple[str, str]) -> None:
    for labels in (pair, pair[::-1]):
        into = tmp_path / str(labels == pair)
        dataset = images(tmp_path / "in", "1.png", "2.png")
        for _ in range(2):
            sort(dataset, into, labels)
            places = [path.parent.name for path in sorted(into.rglob("*.png"))]
            assert len({place.casefold() for place in places}) == 2
            assert {"not-sure", TABLE}.isdisjoint(places)
        sort(dataset, into, labels[::-1])  # each goes into the other's folder
        assert [path.parent.name for path in sorted(into.rglob("[12]*.png"))] == places


@pytest.mark.parametrize("name", ["con", "NUL", "aux.x", "com1", "lpt¹", "CONOUT$", "prn.tar.gz"])
def test_no_folder_has_a_name_that_windows_keeps(name: str) -> None:
    assert ClassFolders()[name] == f"_{name}"


def test_long_names_are_cut(tmp_path: Path) -> None:
    keys = ["/".join(["写真" * 20] * 4) + f"/{number}.png" for number in range(2)]
    sort(images(tmp_path / "in", *keys), tmp_path / "to", ["ラベル" * 100, "ラベル" * 101])
    assert len(tree(tmp_path / "to")) == 2


@pytest.mark.parametrize("into", ["p/in", "p/in/below", "p", ".", "linked", "table", "file", "run"])
def test_a_target_near_the_images_or_with_files_of_another_kind_is_refused(tmp_path: Path, into: str) -> None:
    images(tmp_path / "p" / "in", "1.png")
    (tmp_path / "linked").symlink_to(tmp_path / "p")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / TABLE).write_text("my,own\n")
    (tmp_path / "file").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "identity").touch()
    with pytest.raises(SettingsError, match="choose"):
        check_sorting(tmp_path / "p" / "in", SortOptions(tmp_path / into))
    os.chdir(tmp_path)
    for good in ("new", "p/other"):
        check_sorting(tmp_path / "p" / "in", SortOptions(Path(good)))
