"""Tars as webdataset and ImageNet have them, and Parquet as the `datasets` library writes it."""

from __future__ import annotations

import io
import pickle
import random
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taps.data import load_dataset
from taps.errors import DataError

from .layouts import folder_of, put, tar_of


def shards(folder: Path, ending: str = "cls") -> Path:
    """Six images of three classes in two tars; the same names in both."""
    for number in range(2):
        files = {}
        for row in range(3):
            files[f"{row:03}.jpg"] = f"image {number} {row}"
            files[f"{row:03}.{ending}"] = (
                str((number + row) % 3) if ending == "cls" else f'{{"label": {row}}}'
            )
        tar_of(folder / f"train-{number:05}.tar", files)
    put(folder / "classnames.txt", "ant\nbee\ncat\n")
    return folder


def test_labels_lie_beside_images_in_shards(tmp_path: Path) -> None:
    data = load_dataset(shards(tmp_path / "net"), split="train")
    assert (data.name, data.classes) == ("net", ("ant", "bee", "cat"))
    assert data.labels == [0, 1, 2, 1, 2, 0]
    assert data.samples[3].key == "train-00001/000.jpg"
    assert [data.read(i).decode() for i in (4, 0)] == ["image 1 1", "image 0 0"]
    assert data.skipped == 0
    again = pickle.loads(pickle.dumps(data))
    assert again.read(5) == b"image 1 2"
    assert load_dataset(shards(tmp_path / "told", "json")).labels == [0, 1, 2] * 2
    one = load_dataset(tmp_path / "net" / "train-00001.tar")  # one shard by itself finds the names, too
    assert (one.labels, one.samples[0].key) == ([1, 2, 0], "000.jpg")


def test_shards_of_the_split_are_taken_by_their_names(tmp_path: Path) -> None:
    folder = shards(tmp_path / "net")
    tar_of(folder / "validation-00000.tar", {"a.jpg": "held out", "a.cls": "2"})
    assert len(load_dataset(folder, split="train")) == 6
    data = load_dataset(folder)
    assert (data.labels, data.read(0)) == ([2], b"held out")


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


def test_what_cannot_be_read_in_shards_is_said(tmp_path: Path) -> None:
    folder = shards(tmp_path / "net")
    (folder / "classnames.txt").unlink()
    with pytest.raises(DataError, match=r"classnames\.txt"):
        load_dataset(folder)
    put(folder / "classnames.txt", "ant\nbee\n")
    with pytest.raises(DataError, match="not in the list of 2 names"):
        load_dataset(folder)
    with tarfile.open(tmp_path / "small.tar", "w:gz"):
        pass
    with pytest.raises(DataError, match="compressed"):
        load_dataset(tmp_path / "small.tar")
    cut = tar_of(tmp_path / "cut.tar", {"a.jpg": "a" * 2000, "a.cls": "ant", "b.jpg": "b", "b.cls": "bee"})
    data = load_dataset(cut)
    cut.write_bytes(cut.read_bytes()[:1500])
    with pytest.raises(DataError, match="cut short"):
        data.read(0)


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), number, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def test_parquet_of_the_datasets_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {
        "image": [{"bytes": png(number), "path": None} for number in range(20)],
        "label": [number % 3 for number in range(19)] + [-1],
    }
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["ant", "guinea_pig", "cat"])
    )
    made = datasets.Dataset.from_dict(columns, features=features)
    for number in range(2):  # three groups of rows in each
        shard = made.select(range(10 * number, 10 * number + 10))
        (tmp_path / "net" / "data").mkdir(parents=True, exist_ok=True)
        shard.to_parquet(tmp_path / "net" / "data" / f"test-{number:05}-of-00002.parquet", batch_size=4)
    data = load_dataset(tmp_path / "net")
    assert (data.name, data.classes) == ("net", ("ant", "guinea pig", "cat"))
    assert data.labels == [*columns["label"][:19], None]
    order = list(range(20))
    random.Random(1).shuffle(order)
    there = pickle.loads(pickle.dumps(data))
    for index in order:
        assert there.read(index) == png(index)
    assert there.image(7)[0, 0, 0] == 7
    assert load_dataset(tmp_path / "net", classes=["a", "b", "c"]).classes == ("a", "b", "c")


def test_parquet_of_texts_and_bytes_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"img": [png(0), png(1), None], "class": ["dog", "cat", None]})
    parquet.write_table(table, tmp_path / "pets.parquet")
    data = load_dataset(tmp_path / "pets.parquet")
    assert (data.name, data.classes, data.labels) == ("pets", ("cat", "dog"), [1, 0, None])
    assert data.read(1) == png(1)
    with pytest.raises(DataError, match="row 2"):
        data.read(2)
    parquet.write_table(table.drop_columns(["class"]), tmp_path / "bare.parquet")
    with pytest.raises(DataError, match="rename one"):
        load_dataset(tmp_path / "bare.parquet")
    put(tmp_path / "broken.parquet", "PAR1")
    with pytest.raises(DataError, match="fetch it again"):
        load_dataset(tmp_path / "broken.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"taps-vlm\[parquet\]"):
        load_dataset(tmp_path / "pets.parquet")


def test_a_damaged_group_of_rows_is_told_for_its_images_alone(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "pets.parquet"
    table = pyarrow.table({"image": [png(i) for i in range(8)], "label": ["cat", "dog"] * 4})
    parquet.write_table(table, path, row_group_size=4, use_dictionary=False)
    start = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    held = bytearray(path.read_bytes())
    held[start : start + 40] = bytes(byte ^ 0xFF for byte in held[start : start + 40])
    path.write_bytes(held)
    data = load_dataset(path)
    assert data.read(0) == png(0)
    with pytest.raises(DataError, match=r"pets\.parquet cannot be read as Parquet .*fetch it again"):
        data.image(4)
