"""A prompt family and an annotator from outside: one file of a plugin each, used by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import taps
from taps import Learner
from taps.data import sign_digits
from taps.errors import SettingsError
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.families import FAMILIES
from taps.registry import PLUGINS, load_plugins
from taps.streams.annotators.base import ANNOTATORS, find_annotator

Call = Callable[..., tuple[int, str, str]]
PAGE = (Path(__file__).parents[2] / "docs" / "own-method.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[FAMILY] = [code for code in CODE if "@family" in code]
[ANNOTATOR] = [code for code in CODE if "@annotator" in code]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a folder of its own; what a plugin enters is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLUGINS, "")
    for registry in (FAMILIES, ANNOTATORS):
        len(registry)  # our own come first
        monkeypatch.setattr(registry, "_things", dict(registry._things))
    monkeypatch.setattr("taps.registry._loaded", set())
    own_loss = FAMILY.replace("yield loss +", "yield 100 + loss +")
    Path("shifted.py").write_text(own_loss, encoding="utf-8")
    Path("stubborn.py").write_text(ANNOTATOR, encoding="utf-8")


def test_a_family_is_trained_saved_imported_and_used_by_a_method(
    tiny: Clip, here: Call, pictures: Path
) -> None:
    plugin = ("--plugin", "shifted.py", "--model", "tiny")
    code, said, err = here(
        *("train", "shifted", "--data", pictures, "--shots", 2, "--batch", 4, "--out", "prompts", *plugin)
    )
    assert code == 0, err
    assert "shifted prompts" in said
    prompts = Prompts.from_pretrained("prompts")
    history = prompts.record["history"]
    assert len(history) == FAMILIES["shifted"].recipe.epochs
    assert all(100 < each["loss"] < 110 for each in history)  # its own loss
    base = {"seed": 0, "views": 4}
    image = np.full((30, 30, 3), 128, np.uint8)
    for method, settings in (("source", {}), ("taps", base | {"weight_coarse": 0, "weight_fine": 0})):
        probs = [
            Learner(tiny, ["cat", "dog"], method, prompts=given, **settings).predict_one(image).probs
            for given in ("prompts", "hand")
        ]
        assert np.isfinite(probs).all()
        assert not np.allclose(*probs)
    torch.save({"word": prompts.parameters["context"], "shift": prompts.parameters["shift"]}, "public.pt")
    read = ("import", "public.pt", "--kind", "shifted", "--out", "read")
    code, _, err = here(*plugin[:2], "prompts", *read, *plugin[2:])
    assert code == 0, err
    assert Prompts.from_pretrained("read").fingerprint == prompts.fingerprint


def test_without_its_plugin_a_family_is_unknown(here: Call) -> None:
    code, _, err = here("train", "shifted", "--data", ".", "--model", "tiny", "--out", "prompts")
    assert code == 2
    assert "'shifted'; use one of" in err
    assert "maple" in err


def test_an_annotator_answers_a_run_and_a_stream(
    tiny: Clip, here: Call, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--model", "tiny", "--rate", 1, "--set", "views=1", "--limit", 5, "--method", "taps")
    annotator = ("--annotator", "stubborn:says=bee,after=2", "--plugin", "stubborn.py")
    code, _, err = here("run", pictures, *common, *annotator, "--out", "o")
    assert code == 0, err
    events = [json.loads(line) for line in (tmp_path / "o" / "events.jsonl").read_text().splitlines()]
    assert [each["label"] for each in events if each["event"] == "answered"] == ["bee"] * 3
    monkeypatch.delitem(ANNOTATORS._things, "stubborn")  # as in another process
    monkeypatch.setenv(PLUGINS, "")
    monkeypatch.setattr("taps.registry._loaded", set())
    code, _, err = here("run", "--resume", "--limit", 6, "--out", "o")
    assert code == 2
    assert "'stubborn' of a plugin" in err
    code, _, err = here("predict", pictures, "--learner", "o", "--quiet")  # nobody is asked
    assert code == 0, err
    code, _, err = here("run", "--resume", "--limit", 6, "--out", "o", *annotator[2:])
    assert code == 0, err
    code, _, err = here("run", pictures, *common, "--annotator", "stubborn:mood=bad", "--out", "p")
    assert code == 2
    assert "'mood'; its options are: says, after" in err
    images = sign_digits().shuffled(seed=0).take(range(4))
    learner = Learner(tiny, images.classes, views=1, rate=1.0)
    answers = [step.answer for step in taps.stream(learner, images, annotator="stubborn:says=five,after=1")]
    assert answers == [None, "five", "five", "five"]


def test_a_name_gives_the_labels_with_errors_or_late(tiny: Clip) -> None:
    images = sign_digits().shuffled(seed=0).take(range(6))

    def given(annotator: str) -> list[bool | None]:
        learner = Learner(tiny, images.classes, views=1, rate=1.0)
        steps = list(taps.stream(learner, images, annotator=annotator))
        return [None if each.answer is None else each.answer == each.truth for each in steps]

    assert given("folder") == [True] * 6
    assert given("noisy:rate=1.0") == [False] * 6
    assert given("delayed:delay=2") == given("none") == [None] * 6
    with pytest.raises(SettingsError, match="rate is 'often'"):
        find_annotator("noisy:rate=often")
    with pytest.raises(SettingsError, match="data set"):
        taps.stream(Learner(tiny, images.classes, views=1), ["a.jpg"], annotator="folder")


def test_a_plugin_takes_no_name_that_is_taken() -> None:
    Path("again.py").write_text(ANNOTATOR.replace('"stubborn"', '"folder"'), encoding="utf-8")
    with pytest.raises(SettingsError, match="annotator named 'folder' exists"):
        load_plugins(["again.py"])
