"""A rule and a policy from outside: the code of docs/own-method.md as a plugin, used by their names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from taps import Learner
from taps.asking.base import POLICIES
from taps.asking.reasons import reason
from taps.asking.rules import RULES
from taps.cli.main import app
from taps.errors import SettingsError
from taps.model.clip import Clip
from taps.registry import PLUGINS, load_plugins
from taps.types import PixelArray

PAGE = (Path(__file__).parents[2] / "docs" / "own-method.md").read_text(encoding="utf-8")
[CODE] = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "@rule(" in code]
Picture = Callable[[int], PixelArray]
CHOSEN: dict[str, Any] = {"acquisition": "rare", "policy": "every_third", "tau0": 0.0, "explore": 0.0}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The file, loaded; afterwards nobody knows its names."""
    monkeypatch.setenv(PLUGINS, "")
    for registry in (RULES, POLICIES):
        len(registry)
        monkeypatch.setattr(registry, "_things", dict(registry._things))
    (tmp_path / "rare.py").write_text(CODE, encoding="utf-8")
    load_plugins([str(tmp_path / "rare.py")])
    return str(tmp_path / "rare.py")


@pytest.mark.parametrize("method", ["zero_shot+", "class_means"])
def test_a_learner_asks_by_them(
    tiny: Clip, picture: Picture, plugin: str, tmp_path: Path, method: str
) -> None:
    learner = Learner(tiny, ["a", "b"], method, **CHOSEN)
    counts = np.zeros(2)
    asked = []
    for i in range(8):
        said = learner.predict_one(picture(i))
        assert said.score == pytest.approx(float((said.probs / (1 + counts)).sum()), abs=1e-6)
        if said.ask:
            learner.learn_one(said.id, 1)
            counts[1] += 1
            asked.append(i)
        if i == 4:
            learner.save(tmp_path / "saved")
            learner = Learner.load(tmp_path / "saved", clip=tiny)
    assert asked == [0, 3, 6]


def test_a_command_takes_them(plugin: str, pictures: Path, tmp_path: Path) -> None:
    sets = [part for name, value in CHOSEN.items() for part in ("--set", f"{name}={value}")]
    given = [
        "--plugin",
        plugin,
        "eval",
        "--dataset",
        str(pictures),
        "--method",
        "zero_shot+",
        "--model",
        "tiny",
    ]
    given += [
        "--limit",
        "6",
        "--seeds",
        "1",
        "--no-baselines",
        "--json",
        "--out",
        str(tmp_path / "out"),
        *sets,
    ]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 0, found.output
    [row] = [row for row in json.loads(found.stdout) if row["method"] == "zero_shot+"]
    assert row["asked"] == 2


def test_the_page_says_why(tiny: Clip, plugin: str) -> None:
    settings = Learner(tiny, ["a", "b"], "zero_shot+", **CHOSEN).settings
    assert "few answers" in reason(settings, [["a", 0.6], ["b", 0.4]], 0.6, 0.0, 0.9)


def test_names_taken_or_mistyped_are_refused(tiny: Clip, plugin: str, tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text(CODE.replace('"rare"', '"margin"'), encoding="utf-8")
    with pytest.raises(SettingsError, match="asking rule named 'margin' exists"):
        load_plugins([str(tmp_path / "again.py")])
    with pytest.raises(SettingsError, match=r"Did you mean 'every_third'\?$"):
        Learner(tiny, ["a", "b"], "zero_shot+", policy="every_thrid")
