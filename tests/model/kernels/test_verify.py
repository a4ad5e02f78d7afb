"""A kernel is used where it agrees with the plain operation, and replaced where it does not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from taps.model.clip import ops
from taps.model.kernels import verify
from taps.model.kernels.verify import NotMadeError, require_agreement, tried_once, within


class Square(torch.autograd.Function):
    """x², with a gradient of `slope` · x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.slope * ctx.saved_tensors[0] * gradient, None


def square(slope: float) -> Callable[[Tensor], Tensor]:
    return lambda x: Square.apply(x, slope)  # type: ignore[no-any-return, no-untyped-call]


def test_results_and_gradients_must_both_agree() -> None:
    agree = within(1e-6)
    x = torch.linspace(-1, 1, 7, dtype=torch.float64, requires_grad=True)
    require_agreement(square(2.0), torch.square, [x], agree)
    with pytest.raises(RuntimeError, match="off by"):
        require_agreement(lambda x: x * x + 0.1, torch.square, [x], agree)
    with pytest.raises(RuntimeError, match="off by"):  # right forwards, wrong backwards
        require_agreement(square(2.1), torch.square, [x], agree)
    require_agreement(square(2.1), torch.square, [x.detach()], agree)  # nobody asks for gradients


def test_what_is_not_a_number_agrees_with_nothing() -> None:
    x = torch.tensor([1.0, float("nan")])
    with pytest.raises(RuntimeError, match="off by"):
        require_agreement(torch.clone, torch.nan_to_num, [x], within(0.1))


def test_a_kernel_that_is_left_out_is_not_tried_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    @tried_once("Squares are torch's")
    def left_out_kernel() -> Callable[[Tensor], Tensor]:
        return torch.square

    monkeypatch.setattr(verify, "LEFT_OUT", {"left_out_kernel"})
    monkeypatch.setattr(verify, "STATE", dict(verify.STATE))
    assert left_out_kernel() is None
    assert "left_out_kernel" not in verify.STATE
    verify.LEFT_OUT.clear()
    assert left_out_kernel() is torch.square


def test_a_kernel_is_tried_once_for_each_size_and_replaced_where_it_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = []

    @tried_once("Squares are torch's")
    def kernel(size: int) -> Callable[[Tensor], Tensor]:
        tried.append(size)
        require_agreement(
            square(2.0 if size < 4 else 3.0),
            torch.square,
            [torch.ones(size, requires_grad=True)],
            within(1e-6),
        )
        return square(2.0)

    with caplog.at_level(logging.INFO, "taps"), torch.no_grad():  # gradients are compared all the same
        assert kernel(3) is kernel(3)
        assert kernel(3) is not None
        assert kernel(5) is None
        assert kernel(5) is None
    assert tried == [3, 5]
    assert (
        caplog.text.count("Squares are torch's: its kernel cannot be used here (its results are off by") == 1
    )


def test_a_refused_kernel_is_a_warning_and_one_for_another_device_is_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "STATE", {})

    def looks(name: str, error: Exception | None) -> Callable[[], int | None]:
        def look() -> int:
            if error is not None:
                raise error
            return 1

        look.__name__ = name
        return tried_once("All is torch's")(look)

    with caplog.at_level(logging.WARNING, "taps"):
        assert looks("fine", None)() == 1
        assert looks("elsewhere", NotMadeError("not for these sizes"))() is None
        assert not caplog.text
        assert looks("wrong", ValueError("no compiler"))() is None
    assert "All is torch's: its kernel cannot be used here (no compiler)." in caplog.text
    assert verify.STATE == {
        "fine": "used",
        "elsewhere": "NotMadeError: not for these sizes",
        "wrong": "ValueError: no compiler",
    }


def test_quick_gelu_and_its_gradient_are_the_formula() -> None:
    x = torch.linspace(-6, 6, 41, dtype=torch.float64, requires_grad=True)
    expected = x * torch.sigmoid(1.702 * x)
    found = ops.quick_gelu(x)
    torch.testing.assert_close(found, expected)
    upper = torch.linspace(1, 2, 41, dtype=torch.float64)
    slopes = [torch.autograd.grad(each, x, upper)[0] for each in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_kernels_tried_ahead_in_threads_are_found_or_refused_as_elsewhere(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "STATE", {})
    tried: list[float] = []
    begun, go_on = threading.Event(), threading.Event()

    @tried_once("Squares are torch's")
    def kernel(slope: float) -> Callable[[Tensor], Tensor]:
        tried.append(slope)
        begun.set()
        assert go_on.wait(60)
        x = torch.linspace(-1, 1, 7, requires_grad=True)
        require_agreement(square(slope), torch.square, [x], within(1e-6))
        return square(slope)

    with caplog.at_level(logging.WARNING, "taps"):
        verify.try_ahead([lambda: kernel(2.0), lambda: kernel(3.0)], torch.device("cpu"))
        assert begun.wait(60)
        assert len(tried) == 1  # the first one of all is tried alone
        go_on.set()
        found = kernel(2.0)  # waits for the thread that tries it
        verify.wait_for_trials()
        assert found is not None
        assert found is kernel(2.0)
        assert kernel(3.0) is None
    assert sorted(tried) == [2.0, 3.0]
    assert (
        caplog.text.count("Squares are torch's: its kernel cannot be used here (its results are off by") == 1
    )


def test_attention_in_trials_is_that_of_torch() -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(0))
    for causal in (False, True):
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.testing.assert_close(ops.literal_attention(q, k, v, is_causal=causal), expected)
