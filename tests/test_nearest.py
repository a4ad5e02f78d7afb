"""A name that is nearly right is answered with the right one, wherever names are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taps.data import demo_dataset, load_dataset
from taps.data.check import check_dataset
from taps.data.corrupt import corrupt_dataset
from taps.data.orders import ordered
from taps.errors import TapsError
from taps.methods.presets import preset
from taps.methods.registry import find_method, method_settings
from taps.model.clip import load_clip
from taps.model.clip.hub import published
from taps.model.prompts.choose import choose_prompts
from taps.study.evaluate.measures import find_measures
from taps.study.evaluate.plan import check_values
from taps.study.report.compare import leaderboard


@pytest.mark.parametrize(
    ("look", "meant"),
    [
        (lambda: find_method("tsps"), "tps"),
        (lambda: method_settings("taps", {"viws": 3}), "views"),
        (lambda: check_values(["taps"], {"viws": 3}), "views"),
        (lambda: preset("taps", "dtdd"), "dtd"),
        (lambda: load_clip("poket"), "pocket"),
        (lambda: load_clip("ViT-B-61"), "ViT-B-16"),
        (lambda: published("ViT-B-16", "opnai"), "openai"),
        (lambda: choose_prompts(load_clip("tiny"), "copp", default="hand"), "coop"),
        (lambda: load_dataset("imagent"), "imagenet"),
        (lambda: check_dataset("imagent", "."), "imagenet"),
        (lambda: corrupt_dataset(demo_dataset(), "inverrt", 3), "invert"),
        (lambda: ordered(demo_dataset(), "shufled", 0), "shuffled"),
        (lambda: find_measures(["top2"]), "top5"),
        (lambda: leaderboard([Path()], "ecce"), "ece"),
    ],
)
def test_the_name_that_was_meant(look: Callable[[], Any], meant: str) -> None:
    with pytest.raises(TapsError, match=f"Did you mean '{meant}'"):
        look()
