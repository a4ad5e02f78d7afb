"""Steps of many images at once against the step of each."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from taps.learning.fast.engine import Engine, each_of
from taps.learning.gradient import Gradient
from taps.learning.memory import Known, ReplayItem, labelled_gradients
from taps.learning.step import StepResult, differentiate_views, score_views, take_step
from taps.methods.taps import PromptTuner
from taps.model.clip.config import builtin_config
from taps.model.clip.load import load_clip
from taps.model.clip.model import Clip, initialise
from taps.model.prompts.choose import untrained
from taps.model.prompts.coop import Coop
from tests.learning.test_graphs import (
    LABELS,
    capture_steps,
    far,
    make_tuner,
    narrow_clip,
    random_pixels,
    teach,
)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def whole_clip(dtype: torch.dtype) -> Clip:
    """A relative whose text tower has no causal mask: texts are run whole."""
    config = replace(builtin_config("tiny"), name="whole", causal=False)
    return initialise(Clip(config), torch.Generator().manual_seed(4)).to(dtype)


MODELS: dict[str, Any] = {"narrow": narrow_clip, "whole": whole_clip}


def streams(clip: Clip, kind: str, **settings: Any) -> list[PromptTuner]:
    """Three streams of one start: one without labels, two that were told different things."""
    prompts = untrained(clip, kind, torch.Generator().manual_seed(1))
    tuners = [make_tuner(clip, prompts, lr=1e-2, **settings) for _ in range(3)]
    images = random_pixels(clip, len(LABELS), seed=2).to(clip.device)
    for tuner, taught in zip(tuners[1:], (images, images.flip(0)), strict=True):
        teach(tuner, clip, taught)
    return tuners


def alone(tuner: PromptTuner, views: Tensor) -> StepResult:
    return take_step(tuner.classifier, tuner.anchor, tuner.fresh, views, tuner.memory, tuner.step_settings)


def compare(one: StepResult, other: StepResult, tolerance: float) -> None:
    for name in ("logits", "entropy", "ensemble", "features"):
        assert far(getattr(one, name), getattr(other, name)) < tolerance, name
    assert torch.equal(one.chosen, other.chosen)
    assert bool(one.taken) == bool(other.taken)


@pytest.mark.parametrize("kind", ["maple", "coop"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_every_image_gets_the_numbers_of_its_own_step(
    model: str, kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    clip = MODELS[model](dtype)
    tuners = streams(clip, kind)
    views = torch.stack([random_pixels(clip, 8, seed=seed) for seed in range(3)])
    lead = tuners[0]
    memory = Known(labelled_gradients([tuner.memory for tuner in tuners], lead.anchor))
    together = take_step(lead.classifier, lead.anchor, lead.fresh, views, memory, lead.step_settings)
    for tuner, each, mine in zip(tuners, views, each_of(together), strict=True):
        compare(mine, alone(tuner, each), tolerance)
    assert far(together.logits[1], alone(tuners[0], views[1]).logits) > 1e-6  # its own labels did count


@pytest.mark.parametrize("kind", ["maple", "coop"])
def test_one_way_back_through_the_texts_is_that_of_each_image(kind: str) -> None:
    clip = narrow_clip(torch.float64)
    tuner = streams(clip, kind)[0]
    views = torch.stack([random_pixels(clip, 8, seed=seed) for seed in range(3)])
    scored = score_views(tuner.classifier, tuner.anchor, views, tuner.step_settings)
    seen = differentiate_views(tuner.classifier, tuner.anchor, scored, tuner.step_settings)
    gradient = Gradient(seen.by_text, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch loops over attention on a CPU, and says so
        once = tuner.anchor.pull_back_each(gradient, at_once=True)
    each = tuner.anchor.pull_back_each(gradient, at_once=False)
    assert gradient.text is not None
    assert once.text is not None
    assert each.text is not None
    assert far(once.text, each.text) < 1e-12
    expected = tuner.anchor.pull_back(Gradient(gradient.text[2], None)).text
    assert expected is not None
    assert far(once.text[2], expected) < 1e-12


def test_an_image_without_numbers_keeps_its_neighbours_as_they_are() -> None:
    clip = narrow_clip(torch.float64)
    tuner = streams(clip, "maple")[0]
    views = torch.stack([random_pixels(clip, 8, seed=seed) for seed in range(3)]).double()
    views[1] = np.nan
    done = tuner.engine.steps(tuner.classifier, tuner.anchor, views, [None] * 3, tuner.step_settings)
    assert [bool(each.taken) for each in done] == [True, False, True]
    compare(done[2], alone(tuner, views[2]), 1e-11)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_captured_steps_of_many_images_are_the_plain_ones(count: int) -> None:
    clip = narrow_clip(torch.float64)
    tuners = streams(clip, "maple")
    graphs = capture_steps(tuners[0])
    owners = [tuners[number % 3] for number in range(count)]
    for round in range(2):  # captured, then replayed with other images
        views = [random_pixels(clip, 8, seed=10 * round + number) for number in range(count)]
        done = tuners[0].encode_batch(owners, views)
        for owner, each, (mine, _) in zip(owners, views, done, strict=True):
            compare(mine, alone(owner, each), 1e-11)
        if round == 0:
            captured = graphs.captured
    assert graphs.captured == captured


def test_streams_of_one_model_share_where_they_start_as_long_as_they_live() -> None:
    clip = load_clip("tiny")
    one, two = (make_tuner(clip, Coop().initial(clip)) for _ in range(2))
    assert one.anchor is two.anchor
    assert one.engine is two.engine
    assert one.memory is not two.memory
    for other in ({"lr": 0.5}, {"weight_ce": 0.5}, {"engine": "eager"}, {"reset": "never"}):
        assert make_tuner(clip, Coop().initial(clip), **other).engine is not one.engine, other
    assert make_tuner(clip, Coop().initial(clip, words="a sketch of a")).anchor is not one.anchor


@needs_cuda
@pytest.mark.parametrize("kind", ["maple", "coop"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_on_cuda_steps_together_are_those_of_each(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    clip = narrow_clip(torch.float32).to(device="cuda", dtype=dtype)
    tuners = streams(clip, kind, engine="graph")
    assert isinstance(tuners[0].engine, Engine)
    for round in range(2):
        views = [random_pixels(clip, 8, seed=10 * round + number).cuda() for number in range(3)]
        done = tuners[0].encode_batch(tuners, views)
        for tuner, each, (mine, _) in zip(tuners, views, done, strict=True):
            expected = tuner._step(each)
            assert float(mine.entropy) == pytest.approx(float(expected.entropy), rel=tolerance)
            told, wanted = (torch.softmax(step.logits, dim=-1) for step in (mine, expected))
            assert far(told, wanted) < tolerance
    assert sorted(tuners[0].engine.batches) == [2]
    feature = torch.zeros(clip.config.embed_dim, device="cuda")
    tuners[0].learn(99, 0, ReplayItem(random_pixels(clip, 1, seed=9)[0].cuda(), None, feature))
