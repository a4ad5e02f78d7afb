"""Methods that tune layer norms, against CLIP written out in float64; the shared model stays as it was."""

from __future__ import annotations

import pytest
import torch

from taps import Learner
from taps.clip import Clip
from taps.methods.registry import find_method, method_settings
from tests.methods import literal
from tests.methods.literal import NAMES

Weights = dict[str, torch.Tensor]
VIEWS, LR = 5, 1e-3
PHOTO = (320, 1125, 539, 320)  # "a photo of a"


@pytest.fixture(scope="module")
def weights(tiny64: Clip) -> Weights:
    return {name: value.clone() for name, value in tiny64.state_dict().items()}


@pytest.fixture(scope="module")
def views() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    coarse = torch.randint(0, 256, (VIEWS, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return coarse.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)


def build(name: str, clip: Clip, **settings: object):  # type: ignore[no-untyped-def]
    return find_method(name).build(clip, NAMES, method_settings(name, settings), 0)


def norms(weights: Weights) -> Weights:
    """Weights and biases of the vision tower's layer norms."""
    return {name: value for name, value in weights.items() if name.startswith("visual.") and ".ln_" in name}


def literal_logits(weights: Weights, images: torch.Tensor) -> torch.Tensor:
    photo = [weights["token_embedding.weight"][list(PHOTO)]]
    texts = [literal.text_feature(weights, name, photo, "{}.") for name in NAMES]
    return literal.logits_of(
        weights, [literal.image_feature(weights, image, None)[0] for image in images], texts
    )


def literal_gradient(weights: Weights, images: torch.Tensor, loss) -> tuple[Weights, torch.Tensor]:  # type: ignore[no-untyped-def]
    leaves = {name: value.clone().requires_grad_() for name, value in norms(weights).items()}
    logits = literal_logits({**weights, **leaves}, images)
    found = torch.autograd.grad(loss(logits), list(leaves.values()))
    return dict(zip(leaves, found, strict=True)), logits.detach()


def mean_of_entropies(logits: torch.Tensor) -> torch.Tensor:
    return literal.entropy(literal.softmax_rows(logits)).mean()


def test_tent_takes_adams_step_on_the_mean_of_the_views_entropies(
    tiny64: Clip, weights: Weights, views: torch.Tensor
) -> None:
    gradient, before = literal_gradient(weights, views, mean_of_entropies)
    moved = {name: literal.adamw_step(weights[name], g, LR, decay=0.0) for name, g in gradient.items()}
    after = literal.softmax_rows(literal_logits({**weights, **moved}, views[:1]))[0]
    output = build("tent", tiny64, lr=LR).predict(views)
    assert float((output.probs - after).abs().max()) < 1e-9
    assert abs(output.entropy - float(literal.mean_prediction_entropy(before))) < 1e-9
    assert float((after - literal.softmax_rows(before)[0]).abs().max()) > 1e-6  # the step did move something


def test_tent_carries_over_only_where_it_is_told_to(
    tiny64: Clip, weights: Weights, views: torch.Tensor
) -> None:
    once = build("tent", tiny64).predict(views).probs
    afresh, carried = build("tent", tiny64), build("tent", tiny64, reset="never")
    twice = [method.predict(views).probs for method in (afresh, carried) for _ in range(2)]
    assert torch.equal(twice[1], once)
    assert not torch.equal(twice[3], once)
    every = build("tent", tiny64, reset="every:2")
    assert torch.equal([every.predict(views).probs for _ in range(3)][2], once)
    for name, value in tiny64.state_dict().items():  # others use the same model
        assert torch.equal(value, weights[name]), name


def test_the_big_weights_are_shared(tiny64: Clip) -> None:
    own = dict(build("tent", tiny64).tower.named_parameters())
    for name, value in tiny64.visual.named_parameters():
        assert (own[name] is value) == (".ln_" not in f".{name}")


def test_added_classes_keep_what_was_learned(tiny: Clip, picture) -> None:  # type: ignore[no-untyped-def]
    learner = Learner(tiny, NAMES, "tent", views=3, reset="never")
    learner.predict_one(picture(0))
    before = learner.method.snapshot().tensors
    learner.add_class("ship")
    assert all(torch.equal(value, before[name]) for name, value in learner.method.snapshot().tensors.items())
    assert learner.predict_one(picture(1)).probs.shape == (4,)
