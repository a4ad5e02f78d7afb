"""Ways back: from given gradients, and of kernels for many gradients of one forward at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound=Callable[..., Any])


class _Number(torch.autograd.Function):
    """A number without a value, made of tensors; its gradients on them are those given."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return tensors[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, one: Tensor) -> tuple[Tensor | None, ...]:
        given = ctx.saved_tensors
        return None, *given, *(None for _ in given)


def pull_back(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor], **options: Any
) -> tuple[Tensor, ...]:
    """`torch.autograd.grad` from given gradients on the outputs.

    That imports sympy to compare their shapes, which takes up to some seconds; differentiating a number does
    not.
    """
    with torch.enable_grad():
        number = _Number.apply(len(outputs), *outputs, *given)  # type: ignore[no-untyped-call]
    return torch.autograd.grad(number, inputs, **options)


def way_back(gradients: int) -> Callable[[T], T]:
    """Decorate the backward of an autograd function so that it is taken by `torch.vmap`.

    So one autograd graph takes many gradients at once. The decorated function must take gradients with one
    dimension more, the first, than the forward's results have.

    Args:
        gradients: How many of its arguments are gradients, the first ones; the others are the forward's.
    """

    def decorate(function: T) -> T:
        class Back(torch.autograd.Function):
            @staticmethod
            def forward(*given: Any) -> Any:
                return function(*given)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                """Nothing is kept: nobody differentiates a gradient here."""

            @staticmethod
            def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
                pairs = zip(given[:gradients], in_dims[:gradients], strict=True)
                first = [_batch_first(each, dim, info.batch_size) for each, dim in pairs]
                results = function(*first, *given[gradients:])
                several = isinstance(results, tuple)
                return results, tuple(None if each is None else 0 for each in results) if several else 0

        return Back.apply  # type: ignore[return-value]

    return decorate


def _batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
