"""Five thousand saved learners changed by hand, of every method."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from taps.errors import PromptsError
from taps.methods.registry import all_methods, find_method
from taps.model.clip import Clip
from tests.tampered import Original, Picture, lived, survive

EACH = 110  # of about fifty methods
OWN: dict[str, Any] = {"views": 4, "rate": 0.4, "buffer": 6, "reset": "never"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are absurd
@pytest.mark.parametrize("method", sorted(all_methods()))
def test_a_saved_learner_of_any_method_changed_by_hand(
    tiny: Clip, picture: Picture, tmp_path: Path, method: str
) -> None:
    known = find_method(method).known
    try:
        learner = lived(tiny, method, picture, **{name: OWN[name] for name in OWN.keys() & known})
    except PromptsError as error:  # no trained prompts of this kind for the small model
        pytest.skip(str(error))
    original = Original.of(learner, tmp_path / "original")
    survive(tiny, original, random.Random(method), tmp_path / "changed", picture, times=EACH)
