"""Every method that needs no trained prompts says on a GPU what it says on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from taps import Learner, load_clip
from taps.methods.registry import all_methods
from taps.types import PixelArray

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
NAMES = ("cat", "dog", "bird", "fire truck")
SMALL = {"views": 4, "fraction": 0.5, "policy": "fixed", "tau0": -1.0, "view_backend": "pillow"}
FREE = {name: each for name, each in all_methods().items() if each.prompts in (None, "hand", "optional")}


@pytest.mark.parametrize("name", FREE)
def test_gpu_and_cpu_agree(picture: Callable[[int], PixelArray], name: str) -> None:
    given = {key: value for key, value in SMALL.items() if key in FREE[name].known}
    said = []
    for device in ("cpu", "cuda"):
        clip = load_clip("tiny", device=device, dtype=torch.float32)
        learner = Learner(clip, NAMES, name, **given)
        rows = []
        for i in range(24 if name.endswith("+") else 6):  # a head looks for neighbours from the 17th on
            prediction = learner.predict_one(picture(i))
            rows.append(prediction.probs)
            if prediction.ask:
                learner.learn_one(prediction.id, i % len(NAMES))
        said.append(np.stack(rows))
    # A first AdamW step is a sign step: rounding may flip the sign of a component that is nearly 0.
    np.testing.assert_allclose(said[0], said[1], atol=0.05)
