"""When a kernel is used: it is tried ahead in a thread, or at first use, and kept if it agrees with torch."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from taps.model.kernels.many import pull_back

log = logging.getLogger("taps")
Kernel = TypeVar("Kernel")
Arguments = ParamSpec("Arguments")
Agree = Callable[[Tensor, Tensor], bool]


STATE: dict[str, str] = {}
"""Of every kernel that was tried, by the name of what looks for it: "used", or why it is not."""
LEFT_OUT: set[str] = set()
"""Names of kernels that are not to be used: `benchmarks/ablation.py` measures what each of them gains."""
THREADS = 8
"""In which kernels are tried ahead."""
_ahead: list[Future[object]] = []
_first = threading.RLock()


class NotMadeError(RuntimeError):
    """The kernel is not for this device or these sizes: nothing is wrong."""


def tried_once(
    without: str,
) -> Callable[[Callable[Arguments, Kernel]], Callable[Arguments, Kernel | None]]:
    """Decorate a function that imports a kernel, tries it, and returns it or raises.

    The decorated function does so once for each set of arguments. It returns None where the kernel cannot be
    imported or is not for these arguments, and with a warning in the log where it does not compile or gives
    wrong results. `STATE` takes note. While one thread tries a kernel, others that look for it wait.

    Args:
        without: What happens without the kernel, for the log.
    """

    def decorate(attempt: Callable[Arguments, Kernel]) -> Callable[Arguments, Kernel | None]:
        turns: dict[Any, threading.RLock] = {}

        @functools.cache
        @_one_at_first()
        def look(*arguments: Arguments.args, **named: Arguments.kwargs) -> Kernel | None:
            name = attempt.__name__
            try:
                # The way back in this thread, too: torch's own for it is one for all.
                with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
                    found = attempt(*arguments, **named)
            except Exception as error:
                expected = isinstance(error, ImportError | NotMadeError)
                level = logging.INFO if expected else logging.WARNING
                log.log(level, "%s: its kernel cannot be used here (%s).", without, error)
                STATE[name] = f"{type(error).__name__}: {error}"
                return None
            STATE.setdefault(name, "used")
            return found

        @functools.wraps(attempt)
        def find(*arguments: Arguments.args, **named: Arguments.kwargs) -> Kernel | None:
            if attempt.__name__ in LEFT_OUT:
                return None
            with turns.setdefault(arguments, threading.RLock()):
                return look(*arguments, **named)  # type: ignore[arg-type]

        find.cache_clear = look.cache_clear  # type: ignore[attr-defined]
        return find

    return decorate


@contextmanager
def _one_at_first() -> Iterator[None]:
    """Until there is one kernel nobody tries a second: Triton must be started by one thread alone."""
    with _first:
        if "used" not in STATE.values():
            yield
            return
    yield


def try_ahead(looks: Sequence[Callable[[], object]], device: torch.device) -> None:
    """Look for kernels in threads, so that they compile at the same time, while the caller goes on.

    Args:
        looks: Each looks for one; the quickest should be the first, since the others wait for it.
        device: On which they are tried.
    """
    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="taps-kernels")
    _ahead.extend(threads.submit(_look_on, device, look) for look in looks)
    threads.shutdown(wait=False)


def _look_on(device: torch.device, look: Callable[[], object]) -> None:
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        look()


def wait_for_trials() -> None:
    """Until no kernel is tried ahead any more."""
    for look in tuple(_ahead):
        look.exception()
    _ahead[:] = [look for look in _ahead if not look.done()]


def within(share: float) -> Agree:
    """Agreement as a whole: the difference's norm is at most this share of the expected result's."""
    return lambda mine, theirs: bool(
        (mine.double() - theirs.double()).norm() <= share * theirs.double().norm()
    )


def require_agreement(
    kernel: Callable[..., Any], plain: Callable[..., Any], inputs: Sequence[Any], agree: Agree
) -> None:
    """Raise unless both give the same results, and the same gradients on inputs that require them."""
    results = [_results(function, inputs) for function in (kernel, plain)]
    for mine, theirs in zip(*results, strict=True):
        if not agree(mine, theirs):
            off = float((mine.double() - theirs.double()).abs().max())
            raise RuntimeError(f"its results are off by up to {off:.3g}")


def _results(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    given = function(*inputs)
    outputs = [given] if isinstance(given, Tensor) else list(given)
    leaves = [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]
    if not leaves:
        return outputs
    generator = torch.Generator().manual_seed(2)
    upper = [torch.randn(each.shape, generator=generator).to(each) for each in outputs]
    return [each.detach() for each in outputs] + list(pull_back(outputs, leaves, upper))


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal random numbers on the GPU that require a gradient."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to("cuda", dtype).requires_grad_()
