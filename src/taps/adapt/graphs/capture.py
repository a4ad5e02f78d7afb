"""Recording work as CUDA graphs. What a recording returned stays in its place; each replay fills it anew."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Recording(Protocol[T_co]):
    """Work that can be done again."""

    @property
    def result(self) -> T_co:
        """What the work returned when it was recorded; its tensors hold the latest replay's values."""
        ...

    def replay(self) -> None: ...


class Tape(Protocol):
    """Records work. One tape's recordings share their scratch memory and must not run at the same time."""

    def home(self) -> AbstractContextManager[object]:
        """Where graphs of autograd must be built for recordings to differentiate them."""
        ...

    def record(self, work: Callable[[], T]) -> Recording[T]:
        """Do the work once, then record it; the result holds plain tensors (in tuples or dataclasses)."""
        ...

    def keep(self, work: Callable[[], T]) -> Recording[T]:
        """Record work whose result holds a graph of autograd. Must come before anything else on the tape."""
        ...

    def beside(self) -> AbstractContextManager[object]:
        """A second lane: what is done inside may run at the same time as what follows, until they `meet`."""
        ...

    def meet(self) -> None:
        """What follows waits for the second lane."""
        ...

    def apart(self) -> Tape:
        """A tape with scratch memory of its own: its recordings may be replayed beside this one's."""
        ...

    def narrow(self) -> bool:
        """Do without the second lane from now on; whether there was one."""
        ...


class CudaRecording(Generic[T]):
    def __init__(self, graph: torch.cuda.CUDAGraph, result: T) -> None:
        self.graph, self.result = graph, result

    def replay(self) -> None:
        self.graph.replay()  # type: ignore[no-untyped-call]


class CudaTape:
    """Records on a stream of its own: autograd runs a backward where its forward ran, so both run there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.side: torch.cuda.Stream | None = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()

    def home(self) -> AbstractContextManager[object]:
        return _Home(self.stream)

    def record(self, work: Callable[[], T]) -> CudaRecording[T]:
        # Kernels are compiled, libraries started in a rehearsal. Its result is where replays leave theirs,
        # outside the shared memory, in which another recording's scratch may lie anywhere.
        result = self._rehearse(work)
        return CudaRecording(self._capture(lambda: overwrite(result, work()))[0], result)

    def keep(self, work: Callable[[], T]) -> CudaRecording[T]:
        self._rehearse(work)
        return CudaRecording(*self._capture(work))

    def beside(self) -> AbstractContextManager[object]:
        return nullcontext() if self.side is None else _Beside(self.side)

    def meet(self) -> None:
        if self.side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)

    def apart(self) -> CudaTape:
        return CudaTape(self.device)

    def narrow(self) -> bool:
        had, self.side = self.side is not None, None
        self.pool = torch.cuda.graph_pool_handle()
        return had

    def _rehearse(self, work: Callable[[], T]) -> T:
        with self.home():
            result = work()
        torch.cuda.synchronize(self.device)
        return result

    def _capture(self, work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        graph = torch.cuda.CUDAGraph()
        # Other threads (decoding, serving) may go on using the device meanwhile.
        mode = "thread_local"
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode=mode):
            result = work()
        return graph, result


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


class _Beside:
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


class _Home(_Beside):
    """The tape's stream, ordered after and before the stream that was current."""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.outer.wait_stream(self.stream)
