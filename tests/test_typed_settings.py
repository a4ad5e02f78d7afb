"""What a type checker knows of a learner's settings, and what a person at a prompt sees of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import taps
from taps import Learner
from taps.clip import Clip

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "typed_settings.py"
SNIPPET = """
from typing import Any
from taps.clip import Clip
from taps.learner import Learner

def make(clip: Clip, own: dict[str, Any]) -> None:
    Learner(clip, ["cat", "dog"], "taps", rate=0.1, views=8)
    Learner(clip, ["cat", "dog"], "taps", raet=0.1)  # misspelt
    Learner(clip, ["cat", "dog"], "taps", rate="0.1")  # a text
    Learner(clip, ["cat", "dog"], "mine", **own)
"""


def test_the_list_of_settings_is_that_of_the_methods() -> None:
    spec = importlib.util.spec_from_file_location("typed_settings", RECIPE)
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    assert recipe.text() == recipe.TARGET.read_text(encoding="utf-8"), f"run python {RECIPE}"


def test_a_misspelt_setting_is_a_type_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n"
        "[mypy-torch.*,numpy.*,rich.*,PIL.*]\nfollow_imports = skip\n"  # quicker
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    said, _, _ = api.run(["--config-file", "mypy.ini", "--cache-dir", str(tmp_path / "cache"), "snippet.py"])
    errors = [line for line in said.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in errors] == ["8", "9"], said
    assert "raet" in errors[0]


def test_a_learner_says_what_it_is(tiny: Clip) -> None:
    learner = Learner(tiny, ["cat", "dog"], "taps", views=1, rate=1.0)
    prediction = learner.predict_one(np.zeros((40, 30, 3), np.uint8))
    assert prediction.ask
    learner.learn_one(prediction.id, "dog")
    assert repr(learner) == "<Learner taps on tiny, 2 classes: 1 seen, 1 asked, 1 answered>"


def test_tab_completion_offers_what_is_public() -> None:
    assert {"Learner", "load_clip", "list_methods", "settings"} <= set(dir(taps))
    assert not [name for name in dir(taps) if name in ("importlib", "annotations", "HOMES")]
