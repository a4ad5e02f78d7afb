"""Tars of class folders, and one for each class, as ImageNet has them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from taps.data import load_dataset
from taps.errors import DataError

from .layouts import folder_of, tar_of


def test_a_tar_for_each_class(tmp_path: Path) -> None:
    for wnid in ("n01440764", "n01443537"):
        tar_of(tmp_path / "train" / f"{wnid}.tar", {f"{wnid}_{i}.JPEG": f"{wnid} {i}" for i in range(2)})
    data = load_dataset(tmp_path, split="train")
    assert data.classes == ("tench", "goldfish")
    assert (data.labels, data.read(3)) == ([0, 0, 1, 1], b"n01443537 1")


def test_a_tar_that_lies_beside_folders_is_not_the_data_set(tmp_path: Path) -> None:
    folder_of(tmp_path, ["cat/1.jpg", "dog/1.jpg"])
    tar_of(tmp_path / "devkit.tar", {"readme.txt": ""})
    assert load_dataset(tmp_path).classes == ("cat", "dog")


def test_what_cannot_be_read_in_tars_is_said(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "small.tar", "w:gz"):
        pass
    with pytest.raises(DataError, match="compressed"):
        load_dataset(tmp_path / "small.tar")
    cut = tar_of(tmp_path / "cut.tar", {"ant/a.jpg": "a" * 2000, "bee/b.jpg": "b"})
    data = load_dataset(cut)
    cut.write_bytes(cut.read_bytes()[:1500])
    with pytest.raises(DataError, match="cut short"):
        data.read(0)
