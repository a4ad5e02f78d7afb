"""Capture of work as CUDA graphs. Results of captured work lie in static buffers that each replay fills."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from taps.model.kernels.verify import wait_for_trials

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class CapturedGraph(Protocol[T_co]):
    """Work that can be replayed."""

    @property
    def result(self) -> T_co:
        """What the work returned when it was captured; its tensors hold the latest replay's values."""
        ...

    def replay(self) -> None: ...


class GraphCapture(Protocol):
    """Captures work. Graphs of one capture share a memory pool and must not be replayed at the same time."""

    def capture_stream(self) -> AbstractContextManager[object]:
        """The stream on which autograd graphs must be built for captured work to differentiate them."""
        ...

    def capture(self, work: Callable[[], T]) -> CapturedGraph[T]:
        """Do the work once, then capture it; the result holds plain tensors (in tuples or dataclasses)."""
        ...

    def capture_autograd(self, work: Callable[[], T]) -> CapturedGraph[T]:
        """Capture work whose result holds an autograd graph; only before anything else is captured."""
        ...

    def side_stream(self) -> AbstractContextManager[object]:
        """A second stream: work launched inside may overlap with what follows, until `join`."""
        ...

    def join(self) -> None:
        """Make what follows wait for the side stream."""
        ...

    def with_own_memory(self) -> GraphCapture:
        """A capture with a memory pool of its own: its graphs may be replayed while this one's are."""
        ...

    def drop_side_stream(self) -> bool:
        """Do without the side stream from now on; whether there was one."""
        ...


class CapturedCudaGraph(Generic[T]):
    def __init__(self, graph: torch.cuda.CUDAGraph, result: T) -> None:
        self.graph, self.result = graph, result

    def replay(self) -> None:
        self.graph.replay()  # type: ignore[no-untyped-call]


class CudaCapture:
    """Captures on its own stream: autograd runs a backward on its forward's stream, so both run there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.side: torch.cuda.Stream | None = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def capture_stream(self) -> AbstractContextManager[object]:
        return _CaptureStream(self.stream)

    def capture(self, work: Callable[[], T]) -> CapturedCudaGraph[T]:
        # The warm-up compiles kernels and starts libraries. Its result is where replays write theirs, outside
        # the shared pool, in which another graph's temporary tensors may lie anywhere.
        result = self._warm_up(work)
        return CapturedCudaGraph(self._capture(lambda: overwrite(result, work()))[0], result)

    def capture_autograd(self, work: Callable[[], T]) -> CapturedCudaGraph[T]:
        self._warm_up(work)
        return CapturedCudaGraph(*self._capture(work))

    def side_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.side is None else _SideStream(self.side)

    def join(self) -> None:
        if self.side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def with_own_memory(self) -> CudaCapture:
        return CudaCapture(self.device)

    def drop_side_stream(self) -> bool:
        had, self.side = self.side is not None, None
        self.pool = torch.cuda.graph_pool_handle()
        return had

    def _warm_up(self, work: Callable[[], T]) -> T:
        with self.capture_stream():
            result = work()
        torch.cuda.synchronize(self.device)
        return result

    def _capture(self, work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        wait_for_trials()
        graph = torch.cuda.CUDAGraph()
        # Other threads (decoding, serving) may go on using the device meanwhile.
        mode = "thread_local"
        with (
            no_collection(),
            torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode=mode),
        ):
            result = work()
        return graph, result


@contextmanager
def no_collection() -> Iterator[None]:
    """Python collects no garbage inside: a graph among it, destroyed during a capture, would spoil that."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def overwrite(old: Any, new: Any) -> None:
    """Copy the tensors of one result into those of another of the same shape."""
    if isinstance(old, Tensor):
        old.copy_(new)
    elif isinstance(old, tuple):
        for mine, given in zip(old, new, strict=True):
            overwrite(mine, given)
    elif is_dataclass(old):
        for field in fields(old):
            overwrite(getattr(old, field.name), getattr(new, field.name))


class _SideStream:
    """Another stream, ordered after the stream that was current."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.inside = torch.cuda.stream(stream)

    def __enter__(self) -> None:
        self.outer = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(self.outer)
        self.inside.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        self.inside.__exit__(*error)


class _CaptureStream(_SideStream):
    """The stream of the capture, ordered after and before the stream that was current."""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.outer.wait_stream(self.stream)
