"""Gradients in two parts against one graph from the learned tensors to the loss."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from taps.learning.gradient import NOTHING, Gradient, point_at, to_parameters
from taps.model.clip import Clip
from taps.model.clip.tokenizer import encode
from taps.model.prompts import Prompts
from taps.model.prompts.classify import prompt_classifier
from taps.model.prompts.coop import Coop
from tests.literal import Literal, maple_tokens

CLASSES = ("cat", "hot dog", "ship")


def doubled(prompts: Prompts) -> dict[str, Tensor]:
    return {name: value.double() for name, value in prompts.parameters.items()}


def test_sums_and_multiples() -> None:
    one, two = Gradient(torch.ones(2), None), Gradient(torch.ones(2), torch.ones(3))
    total = one + two * 2.0 + NOTHING
    assert total.text is not None
    assert total.vision is not None
    assert total.text.tolist() == [3, 3]
    assert total.vision.tolist() == [2, 2, 2]
    assert NOTHING + NOTHING == NOTHING
    assert NOTHING * 5.0 == NOTHING


def test_from_text_features_and_vision_tokens_to_maple(tiny64: Clip, maple_prompts: Prompts) -> None:
    """Half the way by `pull_back`, the rest by `to_parameters`; the coupling joins both."""
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    point = point_at(classifier, doubled(maple_prompts))
    generator = torch.Generator().manual_seed(0)
    assert point.tokens.vision is not None
    on_text = torch.randn(point.text.shape, generator=generator, dtype=torch.float64)
    on_vision = torch.randn(point.tokens.vision.shape, generator=generator, dtype=torch.float64)
    pulled = point.pull_back(Gradient(on_text, on_vision))
    gradients = to_parameters(classifier, point.parameters, pulled)

    leaves = {name: value.clone().requires_grad_() for name, value in point.parameters.items()}
    text, vision = maple_tokens(leaves)
    rows = [encode(maple_prompts.suffix.replace("{}", name)) for name in CLASSES]
    features = Literal(tiny64).text(rows, text)
    features = features / features.norm(dim=1, keepdim=True)
    assert (features - point.text).abs().max() < 1e-10
    expected = torch.autograd.grad(
        (features * on_text).sum() + (vision * on_vision).sum(), list(leaves.values())
    )
    for (name, gradient), wanted in zip(gradients.items(), expected, strict=True):
        assert (gradient - wanted).abs().max() < 1e-10, name
        assert wanted.abs().max() > 1e-3


def test_a_point_is_pulled_back_through_again_and_again(tiny64: Clip) -> None:
    prompts = Coop().initial(tiny64)
    classifier = prompt_classifier(tiny64, CLASSES, prompts)
    point = point_at(classifier, doubled(prompts))
    gradient = Gradient(torch.ones_like(point.text), None)
    first, second = point.pull_back(gradient), point.pull_back(gradient * 3.0)
    assert first.text is not None
    assert second.text is not None
    assert torch.allclose(first.text * 3, second.text)
    assert first.vision is None


def test_nothing_to_differentiate_is_zero(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    parameters = doubled(maple_prompts)
    zeros = to_parameters(classifier, parameters, NOTHING)
    assert zeros.keys() == parameters.keys()
    assert not any(value.any() for value in zeros.values())
    # A gradient on vision tokens alone reaches the text tokens through the coupling.
    shape = point_at(classifier, parameters, graph=False).tokens.vision
    assert shape is not None
    joined = to_parameters(classifier, parameters, Gradient(None, torch.ones_like(shape)))
    assert joined["context"].abs().max() > 0


def test_a_point_without_graph_has_the_same_values(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    parameters = doubled(maple_prompts)
    with_graph, without = (point_at(classifier, parameters, graph=graph) for graph in (True, False))
    assert torch.equal(with_graph.text, without.text)
    assert without.graph is None
    assert without.context is None
    assert not with_graph.text.requires_grad
    # Nothing to pull back through: only the part on vision tokens is left.
    kept = without.pull_back(Gradient(torch.ones_like(without.text), torch.ones(1)))
    assert kept.text is None
    assert kept.vision is not None


def test_points_can_be_made_where_gradients_are_off(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    with torch.no_grad():
        point = point_at(classifier, doubled(maple_prompts))
        pulled = point.pull_back(Gradient(torch.ones_like(point.text), None))
        gradients = to_parameters(classifier, point.parameters, pulled)
    assert gradients["context"].abs().max() > 0


def test_a_missing_part_or_way_back_leaves_the_vision_part_alone(
    tiny64: Clip, maple_prompts: Prompts
) -> None:
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    point = point_at(classifier, doubled(maple_prompts))
    on_text, on_vision = torch.ones_like(point.text), torch.ones(2)
    left = Gradient(None, on_vision)
    assert point.pull_back(left) == left
    assert point.pull_back_each(left, at_once=False) == left
    for missing in ("graph", "context"):
        cut = replace(point, **{missing: None})
        assert cut.pull_back(Gradient(on_text, on_vision)) == left
        assert cut.pull_back_each(Gradient(on_text[None], on_vision), at_once=False) == left


def test_a_point_without_graph_keeps_its_parameters(tiny64: Clip) -> None:
    prompts = Coop().initial(tiny64)
    parameters = doubled(prompts)
    assert (
        point_at(prompt_classifier(tiny64, CLASSES, prompts), parameters, graph=False).parameters
        is parameters
    )


def test_learned_tensors_that_a_gradient_does_not_reach_get_zeros(
    tiny64: Clip, maple_prompts: Prompts
) -> None:
    """The coupling makes vision tokens of text tokens; a gradient on text tokens says nothing of it."""
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    point = point_at(classifier, doubled(maple_prompts))
    assert point.tokens.text is not None
    on_text = torch.ones_like(point.tokens.text)
    gradients = to_parameters(classifier, point.parameters, Gradient(on_text, None))
    assert torch.equal(gradients["context"], torch.ones_like(point.parameters["context"]))
    for name, value in point.parameters.items():
        if name.startswith("coupling"):
            assert torch.equal(gradients[name], torch.zeros_like(value))


def test_a_gradient_of_double_precision_reaches_single_precision_parameters(tiny: Clip) -> None:
    prompts = Coop().initial(tiny)
    classifier = prompt_classifier(tiny, CLASSES, prompts)
    parameters = dict(prompts.parameters)
    tokens = point_at(classifier, parameters).tokens.text
    assert tokens is not None
    gradients = to_parameters(classifier, parameters, Gradient(torch.ones_like(tokens).double(), None))
    assert gradients["context"].dtype == torch.float32
    assert gradients["context"].abs().max() > 0


@pytest.mark.parametrize("at_once", [False, True])
def test_gradients_of_many_images_are_those_of_each_by_autograd(
    tiny64: Clip, maple_prompts: Prompts, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """One by one, or all at once as on a GPU: against one graph for each image."""
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    point = point_at(classifier, doubled(maple_prompts))
    generator = torch.Generator().manual_seed(1)
    assert point.tokens.vision is not None
    on_text, on_vision = (
        torch.randn(4, *part.shape, generator=generator, dtype=torch.float64)
        for part in (point.text, point.tokens.vision)
    )
    vmap, ways = torch.vmap, []
    monkeypatch.setattr(torch, "vmap", lambda function: ways.append("vmap") or vmap(function))
    monkeypatch.setattr(Tensor, "is_cuda", at_once)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch loops over attention on a CPU, and says so
        pulled = point.pull_back_each(Gradient(on_text, on_vision), at_once=at_once)
        found = to_parameters(classifier, point.parameters, pulled, many=True)
        # The graph stays, and one image's gradient is no row of many.
        again = point.pull_back_each(Gradient(on_text[:1], on_vision[:1]), at_once=at_once)
        alone = to_parameters(classifier, point.parameters, Gradient(again.text[0], again.vision[0]))
    assert ways == ["vmap"] * 3 * at_once
    assert pulled.vision is on_vision

    leaves = {name: value.clone().requires_grad_() for name, value in point.parameters.items()}
    text, vision = maple_tokens(leaves)
    rows = [encode(maple_prompts.suffix.replace("{}", name)) for name in CLASSES]
    features = torch.nn.functional.normalize(Literal(tiny64).text(rows, text), dim=1)
    for i in range(4):
        expected = torch.autograd.grad(
            (features * on_text[i]).sum() + (vision * on_vision[i]).sum(),
            list(leaves.values()),
            retain_graph=True,
        )
        assert list(found) == list(leaves)
        for (name, gradients), wanted in zip(found.items(), expected, strict=True):
            assert gradients.shape == (4, *wanted.shape)
            assert (gradients[i] - wanted).abs().max() < 1e-10, name
            if i == 0:
                assert (alone[name] - wanted).abs().max() < 1e-10, name


def test_one_by_one_no_gradient_is_given_to_torch(tiny64: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would import sympy, for seconds, to compare shapes; a number is differentiated instead."""
    prompts = Coop().initial(tiny64)
    classifier = prompt_classifier(tiny64, CLASSES, prompts)
    point = point_at(classifier, doubled(prompts))
    grad, ways = torch.autograd.grad, []

    def differentiate(outputs: Tensor, inputs: list[Tensor], **options: bool) -> tuple[Tensor, ...]:
        ways.append(outputs.shape)
        return grad(outputs, inputs, **options)

    monkeypatch.setattr(torch.autograd, "grad", differentiate)
    pulled = point.pull_back_each(Gradient(torch.ones(2, *point.text.shape), None), at_once=False)
    to_parameters(classifier, point.parameters, pulled, many=True)
    assert ways == [()] * 4


def test_both_parts_are_of_the_same_images(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier = prompt_classifier(tiny64, CLASSES, maple_prompts)
    parameters = doubled(maple_prompts)
    tokens = point_at(classifier, parameters, graph=False).tokens
    assert tokens.text is not None
    assert tokens.vision is not None
    gradient = Gradient(tokens.text.expand(3, *tokens.text.shape), tokens.vision[None])
    with pytest.raises(ValueError, match="shorter"):
        to_parameters(classifier, parameters, gradient, many=True)
