"""`taps data`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from taps.cli.lookup import data
from taps.data import named_sets
from taps.data.sets import official_classes


def call(*arguments: str) -> Result:
    return CliRunner().invoke(data, list(arguments), env={"COLUMNS": "200", "TAPS_DATA": ""})


@pytest.fixture
def eurosat(tmp_path: Path) -> Path:
    """A copy with every image of EuroSAT's test split, none of them with content worth decoding."""
    classes = official_classes(named_sets()["eurosat"]) or ()
    rows = [(f"{name}/{i}.jpg", label, name) for label, name in enumerate(classes) for i in range(810)]
    for name in classes:
        (tmp_path / "eurosat/2750" / name).mkdir(parents=True)
    for path, _, _ in rows:
        (tmp_path / "eurosat/2750" / path).write_bytes(b"x")
    (tmp_path / "eurosat/split_zhou_EuroSAT.json").write_text(json.dumps({"test": rows}))
    return tmp_path


def test_list_names_every_set() -> None:
    text = call("list").output
    for named in named_sets().values():
        assert named.id in text
    rows = json.loads(call("list", "--json").output)
    assert {row["id"]: row["images"] for row in rows}["food101"] == 30300
    assert len(rows) == 15


def test_check_of_a_good_and_a_bad_copy(eurosat: Path) -> None:
    good = call("check", "EuroSAT", "--root", str(eurosat))
    assert good.exit_code == 0
    assert good.output == "EuroSAT: 8,100 of 8,100 images, 10 classes, as published.\n"
    (eurosat / "eurosat/2750/River/0.jpg").unlink()
    bad = call("check", "eurosat", "--root", str(eurosat), "--json")
    assert bad.exit_code == 1
    told = json.loads(bad.output)
    assert (told["ok"], told["images"], told["expected"]) == (False, 8099, 8100)
    assert any("River/0.jpg" in finding["text"] and finding["count"] == 1 for finding in told["findings"])
    assert (
        "error: EuroSAT: 1 of 8,100 images are not in"
        in call("check", "eurosat", "--root", str(eurosat)).output
    )


def test_bad_usage_is_two(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from taps.cli.main import run; run()",
        "data",
        "check",
        "mnist",
        "--root",
        ".",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("taps: 'mnist' is neither a folder nor a file")


def test_check_reads_every_image_of_ones_own_folder(pictures: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pictures, tmp_path / "mine")
    assert call("check", str(folder)).exit_code == 0
    (folder / "ant" / "cut.png").write_bytes((folder / "ant" / "0.png").read_bytes()[:40])
    (folder / "ant" / "logo.svg").write_text("<svg/>")
    (folder / "ant" / "notes").write_text("mine")
    result = call("check", str(folder))
    assert result.exit_code == 1
    assert "cut.png" in result.output
    assert "1 .svg, 1 without extension" in result.output
    assert "24 of 25 images" in result.output


def test_check_of_a_named_set_asks_where_it_is() -> None:
    result = call("check", "eurosat")
    assert "--root" in str(result.exception)
