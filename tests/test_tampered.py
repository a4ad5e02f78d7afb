"""A saved learner changed by hand: it is refused in a sentence, or it lives on without an exception."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from taps import Learner
from taps.errors import StateError
from taps.model.clip import Clip
from tests.tampered import Original, Picture, lived, survive

SETTINGS: dict[str, dict[str, Any]] = {
    "view_ensemble+": {"views": 4, "rate": 0.4},
    "taps": {"views": 4, "rate": 0.4, "buffer": 6},
    "tip_adapter": {"rate": 0.4, "buffer": 6, "acquisition": "vessal"},
    "simatta": {"rate": 0.4, "buffer": 6},
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are absurd
@pytest.mark.parametrize("method", SETTINGS)
def test_forty_changes_of_a_saved_learner_end_in_a_sentence_or_in_a_life(
    tiny: Clip, picture: Picture, tmp_path: Path, method: str
) -> None:
    original = Original.of(lived(tiny, method, picture, **SETTINGS[method]), tmp_path / "original")
    survive(tiny, original, random.Random(method), tmp_path / "changed", picture, times=40)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"policy.seen": -1}, "policy.seen"),
        ({"policy.asked": float("nan")}, "policy.asked"),
        ({"answered": True}, "answered"),
        ({"accuracy.asked": [[0, 9, 0.5, 0.1, None]]}, "accuracy.asked"),
        ({"questions.counts": {}}, "questions"),
        ({"state.head.people": [1]}, "people"),
        ({"pending": [99]}, "pending"),
    ],
)
def test_the_sentence_names_what_is_wrong_and_the_learner_stays_as_it_was(
    tiny: Clip, picture: Picture, change: dict[str, Any], told: str
) -> None:
    learner = lived(tiny, "view_ensemble+", picture, views=4, rate=0.4)
    state, fresh = learner.state_dict(), learner.clone()
    for path, value in change.items():
        *way, last = path.split(".")
        holder = state["values"]
        for step in way:
            holder = holder[step]
        holder[last] = value
    with pytest.raises(StateError, match=told):
        fresh.load_state_dict(state)
    assert fresh.seen == fresh.asked == 0
    fresh.predict_one(picture(0))


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("method.head.ridge.inverse", lambda value: value[:-1], "ridge.inverse"),
        ("method.head.lens.mean", lambda value: value * torch.nan, "lens.mean"),
        ("method.head.counts", lambda value: value.float(), "counts"),
        ("method.head.outside.inputs", lambda value: torch.cat([value, value]), "outside"),
        ("method.head.example.0.look", lambda value: value.flatten(), "example.0.look"),
    ],
)
def test_a_tensor_of_another_shape_type_or_without_numbers_is_named(
    tiny: Clip, picture: Picture, name: str, change: Any, told: str
) -> None:
    learner = lived(tiny, "view_ensemble+", picture, views=4, rate=0.4)
    state = learner.state_dict()
    state["tensors"][name] = change(state["tensors"][name])
    with pytest.raises(StateError, match=told):
        learner.clone().load_state_dict(state)


@pytest.mark.parametrize(
    "state", [{}, None, {"values": {}, "tensors": {}}, {"values": None, "tensors": None}]
)
def test_what_is_no_state_at_all_is_refused_in_a_sentence(tiny: Clip, state: Any) -> None:
    with pytest.raises(StateError, match="state"):
        Learner(tiny, ["cat", "dog"], views=1).load_state_dict(state)


def test_a_resumed_stream_draws_by_the_seed_that_it_began_with(tiny: Clip, picture: Picture) -> None:
    began = Learner(tiny, ["cat", "dog"], "view_ensemble+", seed=5, views=1, rate=0.5)
    resumed = Learner(tiny, ["cat", "dog"], "view_ensemble+", seed=0, views=1, rate=0.5)
    resumed.load_state_dict(began.state_dict())
    asked = [[each.predict_one(picture(number)).ask for number in range(60)] for each in (began, resumed)]
    assert asked[0] == asked[1]
