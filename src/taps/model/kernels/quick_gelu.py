"""QuickGELU, x · σ(1.702 x), as one elementwise CUDA kernel each way, in C++ compiled at first use."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.cuda.jiterator import _create_jit_fn

# Half precision is computed in float.
FORWARD = "template <typename T> T quick_gelu(T x) { return x / (T(1) + exp(T(-1.702) * x)); }"
BACKWARD = """template <typename T> T quick_gelu_backward(T g, T x) {
    T s = T(1) / (T(1) + exp(T(-1.702) * x));
    return g * (s + T(1.702) * x * s * (T(1) - s));
}"""


def compile_quick_gelu() -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """The kernels: x → y, and (gradient on y, x) → gradient on x."""
    return _create_jit_fn(FORWARD), _create_jit_fn(BACKWARD)
