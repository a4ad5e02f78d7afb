"""Every number among the settings of every method, at values that few can mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

from taps import Learner
from taps.errors import TapsError
from taps.methods.registry import all_methods, find_method
from taps.model.clip import Clip
from taps.types import PixelArray

WRONG = (math.nan, math.inf, -1, 1e308, 0, 10**30, True, 1e-300)


def numbers() -> list[tuple[str, str]]:
    """A method for each setting that is a number, of each default."""
    found = {
        (each.name, repr(each.default)): (name, each.name)
        for name, method in all_methods().items()
        for each in fields(method.settings)
        if "int" in str(each.type) or "float" in str(each.type)
    }
    return sorted(found.values())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are absurd
@pytest.mark.parametrize(("method", "setting"), numbers())
def test_a_setting_of_any_value_is_refused_in_a_sentence_or_lived_with(
    tiny: Clip, picture: Callable[[int], PixelArray], method: str, setting: str
) -> None:
    small = {"views": 2, "rate": 0.9}
    known = find_method(method).known
    for value in WRONG:
        given: dict[str, Any] = {name: small[name] for name in small.keys() & known} | {setting: value}
        with suppress(TapsError):
            learner = Learner(tiny, ["cat", "dog", "ship"], method, **given)
            for number in range(2):
                id = learner.predict_one(picture(number)).id
                if learner.method.asks:
                    learner.learn_one(id, number)
            learner.summary()
