"""What a type checker knows of a settings object, and what a person at a prompt sees of it."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import taps
from taps import Learner
from taps.errors import SettingsError
from taps.methods.registry import chosen_method, find_method, list_methods
from taps.methods.settings import AskSettings
from taps.methods.taps import TapsSettings
from taps.model.clip import Clip

ROOT = Path(__file__).resolve().parent.parent
SNIPPET = """
from taps.model.clip import Clip
from taps.learner import Learner
from taps.methods.plus import ViewEnsemblePlusSettings
from taps.methods.taps import TapsSettings

def make(clip: Clip) -> None:
    Learner(clip, ["cat", "dog"], method=TapsSettings(lr=1e-3, rate=0.1))
    Learner(clip, ["cat", "dog"], method=TapsSettings(raet=0.1))  # misspelt
    Learner(clip, ["cat", "dog"], method=TapsSettings(acquisition="margin"))  # that of another method
    Learner(clip, ["cat", "dog"], method=ViewEnsemblePlusSettings(acquisition="margin", views="8"))  # a text
"""


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
    assert [line.split(":")[1] for line in errors] == ["9", "10", "11"], said
    assert "raet" in errors[0]


@pytest.mark.parametrize("name", list_methods())
def test_the_settings_of_each_method_are_a_class_that_names_it(name: str) -> None:
    kind = find_method(name).settings
    assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind
    assert chosen_method(kind(), {}) == (name, kind())


def test_a_settings_object_makes_the_learner_that_keywords_make(tiny: Clip) -> None:
    by_object = Learner(tiny, ["cat", "dog"], TapsSettings(views=2, lr=0.5))
    by_words = Learner(tiny, ["cat", "dog"], "taps", views=2, lr=0.5)
    assert (by_object.method_name, by_object.settings) == ("taps", by_words.settings)


def test_settings_of_no_method_or_given_twice_are_refused(tiny: Clip) -> None:
    with pytest.raises(SettingsError, match="AskSettings are those of no method"):
        Learner(tiny, ["cat", "dog"], AskSettings())
    with pytest.raises(SettingsError, match="given twice: in TapsSettings and as rate"):
        Learner(tiny, ["cat", "dog"], TapsSettings(), rate=0.5)


def test_a_learner_says_what_it_is(tiny: Clip) -> None:
    learner = Learner(tiny, ["cat", "dog"], "taps", views=1, rate=1.0)
    prediction = learner.predict_one(np.zeros((40, 30, 3), np.uint8))
    assert prediction.ask
    learner.learn_one(prediction.id, "dog")
    assert repr(learner) == "<Learner taps on tiny, 2 classes: 1 seen, 1 asked, 1 answered>"


def test_tab_completion_offers_what_is_public() -> None:
    assert {"Answer", "Dataset", "Learner", "Prediction", "load_clip", "stream"} <= set(dir(taps))
    assert all(getattr(taps, name) is not None for name in taps.__all__)
    assert not [name for name in dir(taps) if name in ("importlib", "annotations", "HOMES")]
