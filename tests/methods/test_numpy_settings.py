"""Whatever a user gives as one of numpy's numbers is taken, saved and read back as Python's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps import Learner
from taps.methods.registry import all_methods, method_settings, settings
from taps.model.clip import Clip
from taps.types import Answer, PixelArray

Picture = Callable[[int], PixelArray]


def as_numpy(value: Any) -> Any:
    """The same value as numpy has it."""
    kinds: dict[type, Callable[[Any], Any]] = {
        bool: np.bool_,
        int: np.int64,
        float: np.float64,
        str: np.str_,
        tuple: np.array,
    }
    return kinds.get(type(value), lambda same: same)(value)


@pytest.mark.parametrize("name", list(all_methods()))
def test_every_setting_of_every_method(name: str) -> None:
    """Numpy's numbers make the same settings, of Python's own kinds."""
    plain = settings(name)
    found = method_settings(name, {key: as_numpy(value) for key, value in plain.items()})
    assert found == method_settings(name, plain)
    for each in fields(found):
        assert not isinstance(getattr(found, each.name), np.generic | np.ndarray), each.name
        assert type(getattr(found, each.name)) is type(plain[each.name]), each.name


@pytest.mark.parametrize("name", ["view_ensemble+", "taps", "tda", "zero_shot"])
def test_a_learner_that_was_given_numpy_is_saved_and_goes_on(
    name: str, tiny: Clip, picture: Picture, tmp_path: Path
) -> None:
    small: dict[str, Any] = {"views": np.int32(4), "rate": np.float32(0.5), "policy": np.str_("random")}
    given = {key: value for key, value in small.items() if key in settings(name)}
    if "align_layers" in settings(name):
        given["align_layers"] = np.array([1, 0])
    learner = Learner(tiny, list(np.array(["ant", "bee", "cat"])), name, seed=np.int64(3), **given)
    twin = Learner(tiny, ["ant", "bee", "cat"], name, seed=3, **method_settings_given(learner, given))
    for i in range(4):
        said, other = learner.predict_one(picture(i)), twin.predict_one(picture(i))
        np.testing.assert_array_equal(said.probs, other.probs)
        if said.ask:
            learner.learn_one(np.int64(said.id), np.int64(1), annotator=np.str_("me"))
            twin.learn_one(said.id, 1, annotator="me")
    learner.save(tmp_path / "a")
    twin.save(tmp_path / "b")
    assert without_files(tmp_path / "a") == without_files(tmp_path / "b")
    again = Learner.load(tmp_path / "a", tiny)
    np.testing.assert_array_equal(
        again.predict_one(picture(9), update=False).probs, learner.predict_one(picture(9), update=False).probs
    )


def method_settings_given(learner: Learner, given: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(learner.settings, name) for name in given}


def without_files(directory: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((directory / "learner.json").read_text())
    return {name: index[name] for name in ("settings", "values")}


def test_other_answers(tiny: Clip, picture: Picture, tmp_path: Path) -> None:
    learner = Learner(tiny, ["ant", "bee", "cat", "dog"], "view_ensemble+", views=4, rate=1.0)
    ids = [learner.predict_one(picture(i)).id for i in range(4)]
    learner.learn_one(np.int64(ids[0]), no=np.array([0, 1]))
    learner.learn_one(np.int64(ids[1]), no=np.int32(2))
    learner.learn_one(np.int64(ids[2]), none=np.True_)
    learner.learn_one(np.int64(ids[3]), Answer(np.int16(2)))
    learner.save(tmp_path)
    answers = [learner.desk.queries.given[id].answer for id in ids]
    assert answers == [Answer(no=(0, 1)), Answer(no=(2,)), Answer(none=True), Answer(2)]
    assert Learner.load(tmp_path, tiny).answered == 4
