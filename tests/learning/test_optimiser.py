"""AdamW as a pure function against torch's own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest
import torch

from taps.learning.optimiser import _corrections, adamw, all_finite, fresh_moments


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "context": torch.randn(2, 3, generator=generator, dtype=torch.float64),
        "bias": torch.randn(4, generator=generator, dtype=torch.float64),
    }


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_many_steps_equal_torchs(weight_decay: float) -> None:
    parameters = tensors(0)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    theirs = torch.optim.AdamW(leaves.values(), lr=4e-3, weight_decay=weight_decay)
    moments = fresh_moments(parameters)
    for step in range(20):
        gradients = tensors(step + 1)
        for name, leaf in leaves.items():
            leaf.grad = gradients[name].clone()
        theirs.step()
        parameters, moments, taken = adamw(parameters, gradients, moments, lr=4e-3, weight_decay=weight_decay)
        assert bool(taken)
        for name, leaf in leaves.items():
            assert (parameters[name] - leaf).abs().max() < 1e-12
    assert moments.steps == 20


def test_a_first_step_goes_by_signs() -> None:
    parameters, gradients = tensors(0), tensors(1)
    moved, _, _ = adamw(parameters, gradients, fresh_moments(parameters), lr=0.1, weight_decay=0.0)
    for name, value in parameters.items():
        assert torch.allclose(moved[name], value - 0.1 * gradients[name].sign(), atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_no_tensor(bad: float) -> None:
    parameters = tensors(0)
    _, moments, _ = adamw(parameters, tensors(1), fresh_moments(parameters), lr=0.1)
    gradients = tensors(2)
    gradients["bias"][1] = bad
    same, kept, taken = adamw(parameters, gradients, moments, lr=0.1)
    assert not bool(taken)
    for name in parameters:
        assert torch.equal(same[name], parameters[name])
        assert torch.equal(kept.first[name], moments.first[name])
        assert torch.equal(kept.second[name], moments.second[name])


def test_nothing_given_is_written_to() -> None:
    parameters, gradients = tensors(0), tensors(1)
    moments = fresh_moments(parameters)
    adamw(parameters, gradients, moments, lr=0.1)
    assert all(torch.equal(parameters[name], value) for name, value in tensors(0).items())
    assert all(torch.equal(gradients[name], value) for name, value in tensors(1).items())
    assert all(not value.any() for value in (*moments.first.values(), *moments.second.values()))


def test_gradients_of_another_precision_are_taken_in_the_parameters() -> None:
    parameters = {name: value.float() for name, value in tensors(0).items()}
    moved, moments, _ = adamw(parameters, tensors(1), fresh_moments(parameters), lr=0.1)
    assert {value.dtype for value in (*moved.values(), *moments.first.values())} == {torch.float32}


def test_all_finite_is_one_boolean() -> None:
    values = tensors(0)
    assert bool(all_finite(values))
    values["context"][0, 0] = math.nan
    assert not bool(all_finite(values))


def test_what_is_not_said_is_as_in_torchs() -> None:
    parameters, gradients = tensors(0), tensors(1)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    for name, leaf in leaves.items():
        leaf.grad = gradients[name].clone()
    torch.optim.AdamW(leaves.values(), lr=0.1).step()
    moved, _, _ = adamw(parameters, gradients, fresh_moments(parameters), lr=0.1)
    for name, leaf in leaves.items():
        assert (moved[name] - leaf).abs().max() < 1e-12


def test_steps_counted_on_the_device_are_those_counted_on_the_host() -> None:
    parameters = tensors(0)
    _, moments, _ = adamw(parameters, tensors(1), fresh_moments(parameters), lr=0.1)
    on_device = replace(moments, steps=torch.tensor(float(cast(int, moments.steps)), dtype=torch.float64))
    expected, _, _ = adamw(parameters, tensors(2), moments, lr=0.1)
    moved, after, _ = adamw(parameters, tensors(2), on_device, lr=0.1)
    assert isinstance(after.steps, torch.Tensor)
    assert after.steps.item() == 2
    for name, wanted in expected.items():
        assert torch.allclose(moved[name], wanted, rtol=1e-12, atol=0)


def test_corrections_are_made_where_the_gradients_are(monkeypatch: pytest.MonkeyPatch) -> None:
    there = torch.device("meta")
    assert _corrections(3, (0.9, 0.999), there).device == there
    assert _corrections(3, (0.9, 0.999), torch.device("cpu")).tolist() == pytest.approx([0.271, 0.002997001])
    seen: list[torch.device] = []

    def spy(steps: int, betas: tuple[float, float], device: torch.device) -> torch.Tensor:
        seen.append(device)
        return torch.ones(2, device=device)

    monkeypatch.setattr("taps.learning.optimiser._corrections", spy)
    far = {name: value.to(there) for name, value in tensors(0).items()}
    adamw(far, far, fresh_moments(far), lr=0.1)
    assert seen == [there]
