"""`check_dataset` tells a good copy from a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from taps.data import check_dataset, named_sets
from taps.data.sets import official_classes
from taps.errors import DataError

from .layouts import coop, folder_of, put

V2 = "imagenetv2/imagenetv2-matched-frequency-format-val"
ROOT, FILE = "dtd/images", "split_zhou_DescribableTextures.json"


def whole_dtd(root: Path) -> list[tuple[str, int, str]]:
    classes = official_classes(named_sets()["dtd"]) or ()
    rows = [(f"{name}/{i}.jpg", label, name) for label, name in enumerate(classes) for i in range(36)]
    coop(root, ROOT, FILE, rows)
    return rows


def test_a_good_copy(tmp_path: Path) -> None:
    whole_dtd(tmp_path)
    check = check_dataset("DTD", tmp_path)
    assert check.ok
    assert (check.images, check.expected, check.classes, check.findings) == (1692, 1692, 47, ())


def test_every_fault_is_found_and_counted(tmp_path: Path) -> None:
    rows = whole_dtd(tmp_path)
    rows[0] = (rows[0][0], 3, "banded")
    rows[40] = (rows[40][0], 47, "blotchy")
    rows.append(rows[-1])
    coop(tmp_path, ROOT, FILE, rows)
    (tmp_path / ROOT / rows[80][0]).unlink()
    (tmp_path / ROOT / rows[90][0]).write_bytes(b"")
    put(tmp_path / ROOT / "extra" / "1.jpg")
    check = check_dataset("dtd", tmp_path)
    assert not check.ok
    told = {
        word: [f.count for f in check.findings if word in f.text]
        for word in (
            "mislabelled",
            "outside",
            "more than once",
            "are not in",
            "no bytes",
            "extra",
            "expected",
        )
    }
    assert told == {
        "mislabelled": [1],
        "outside": [1],
        "more than once": [1],
        "are not in": [1],
        "no bytes": [1],
        "extra": [1],
        "expected": [1],
    }
    assert [f.level for f in check.findings] == sorted(
        [f.level for f in check.findings], key="error wrong note".find
    )


def test_v2_counts_each_class(tmp_path: Path) -> None:
    folder_of(tmp_path / V2, [f"{i}/{j}.jpeg" for i in range(1000) for j in range(10) if (i, j) != (12, 3)])
    texts = [finding.text for finding in check_dataset("imagenetv2", tmp_path).findings]
    assert len(texts) == 2
    assert any("12 (9)" in text for text in texts)
    assert any("9,999 images can be used, 10,000 are expected" in text for text in texts)


def test_nothing_there(tmp_path: Path) -> None:
    check = check_dataset("sun397", tmp_path)
    assert not check.ok
    assert {finding.level for finding in check.findings} == {"error"}
    assert check.root is None
    assert "No folder" in check_dataset("sun397", tmp_path / "no").findings[0].text
    with pytest.raises(DataError, match="Unknown data set 'mnist'"):
        check_dataset("mnist", tmp_path)
