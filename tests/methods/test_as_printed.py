"""The paper's stream, of the product's parts, against a learner of the method `taps`: the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import taps
from taps.methods.taps import TapsSettings, as_printed
from taps.model.clip import Clip, load_clip
from taps.model.prompts import Prompts
from taps.model.prompts.choose import untrained
from taps.model.prompts.classify import prompt_classifier
from taps.types import Query

CLASSES = ("cat", "dog", "owl")
ROOM = 4  # in the memory
SETTINGS: dict[str, Any] = {"rate": 0.3, "warmup": 4, "tau0": 0.9, "buffer": ROOM, "views": 12}


def pictures(count: int) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 256, (40, 30 + t % 7, 3), dtype=np.uint8) for t in range(count)]


def prompts_of(clip: Clip, kind: str) -> Prompts:
    return untrained(clip, kind, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("update_queried", [True, False])
@pytest.mark.parametrize("kind", ["maple", "coop"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learner_of_taps_is_the_stream_as_printed(
    kind: str, dtype: torch.dtype, update_queried: bool
) -> None:
    clip = load_clip("tiny", dtype=dtype)
    prompts, images = prompts_of(clip, kind), pictures(24)
    settings = TapsSettings(prompts=prompts, fraction=0.25, update_queried=update_queried, **SETTINGS)
    learner = taps.Learner(clip, CLASSES, settings, seed=3)

    def expert(t: int) -> int:
        return t % 3

    def annotator(query: Query) -> int:
        return expert(query.id)

    printed = as_printed(images, expert, prompt_classifier(clip, CLASSES, prompts), prompts, settings, seed=3)
    asked = 0
    for event, (t, probs, decision) in zip(taps.stream(learner, images, annotator), printed, strict=True):
        found = event.prediction
        assert found is not None
        assert (event.t, found.ask, found.threshold) == (t, decision.ask, decision.threshold)
        assert np.array_equal(found.probs, probs.float().numpy())
        asked += found.ask
    assert asked > ROOM  # so that images were evicted, too
    assert asked < len(images)
