"""Prefetch: while one image is being classified, the next ones are read and decoded in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def prefetch(
    items: Iterable[A], work: Callable[[A], B], *, threads: int = 2, depth: int = 4
) -> Iterator[Future[B]]:
    """Results in order, at most `depth` of them prepared beforehand.

    Futures come back, so that an image that cannot be decoded raises where it is used and the stream goes on.
    They may be the items of another prefetch.

    >>> [each.result() for each in prefetch([1, 2, 3], lambda x: x * x)]
    [1, 4, 9]
    """
    rest, pool, waiting = iter(items), ThreadPoolExecutor(threads), deque[Future[B]]()
    try:
        waiting.extend(pool.submit(work, item) for item in islice(rest, depth))
        while waiting:
            first = waiting.popleft()
            waiting.extend(pool.submit(work, item) for item in islice(rest, 1))
            yield first
    finally:
        for each in waiting:  # what was not begun is not wanted any more, unless somebody has its future
            each.cancel()
        pool.shutdown(wait=bool(waiting))
