"""The commands for realistic streams in docs/measuring.md run, on small folders of these names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PAGE = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Realistic streams")[1].split("\n## ")[0]
COMMANDS = re.findall(r"^taps (.+)$", SECTION, re.MULTILINE)
FOLDERS = {
    "digits": (["."], ["one", "two", "six"], 12),
    "textures": (["."], ["dotted", "woven", "braided"], 12),
    "VLCS": (["Caltech101", "LabelMe", "SUN09", "VOC2007"], ["bird", "dog"], 3),
    "OfficeHome": (["Art", "Clipart", "Product", "Real World"], ["Alarm_Clock", "TV"], 3),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, rng = tmp_path_factory.mktemp("sets"), np.random.default_rng(0)
    for name, (domains, classes, images) in FOLDERS.items():
        for place in [root / name / domain / each for domain in domains for each in classes]:
            place.mkdir(parents=True)
            for index in range(images):
                pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{index}.png")
    return root


@pytest.mark.parametrize("command", COMMANDS)
def test_command(
    folders: Path, tmp_path: Path, here: Callable[..., tuple[int, str, str]], command: str
) -> None:
    for name in FOLDERS:
        (tmp_path / name).symlink_to(folders / name)
    words = [*command.split(), "--model", "tiny"]
    if {"tpt", "dota"} & {*re.split("[ ,]", command)}:
        words += ["--set", "views=2"]
    if words[0] == "eval":
        words += ["--no-baselines", "--seeds", "1"]  # one order is enough to see that it runs
    code, _, err = here(*words)
    assert code == 0, err
    out = tmp_path / words[words.index("--out") + 1]
    if words[0] == "eval":
        rows = json.loads((out / "results.json").read_text())
        wanted = words[words.index("--measures") + 1].split(",") if "--measures" in words else ["top1"]
        assert {row["method"] for row in rows} == set(words[words.index("--method") + 1].split(","))
        assert all(set(wanted) <= row["measures"].keys() for row in rows)


def test_every_order_has_an_example() -> None:
    assert len(COMMANDS) == 6
