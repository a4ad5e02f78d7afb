"""Work done ahead: in order, and none lost where one prefetch is the next one's items."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from taps.model.images.prefetch import prefetch


def test_one_prefetch_may_feed_another() -> None:
    slow = threading.Event()

    def first(item: int) -> int:
        assert slow.wait(60)
        if item == 3:
            raise ValueError(item)
        return item * item

    def second(coming: Future[int]) -> int:
        return coming.result() + 1

    chain = prefetch(prefetch(range(6), first, threads=1, depth=1), second, threads=1, depth=10)
    begun = next(chain)  # all of the inner ones have been handed out by now, and none is done
    slow.set()
    found = [begun, *chain]
    with pytest.raises(ValueError, match="3"):
        found.pop(3).result()
    assert [each.result() for each in found] == [1, 2, 5, 17, 26]


def test_what_nobody_waits_for_is_not_begun() -> None:
    done: list[int] = []
    coming = prefetch(range(10), done.append, threads=1, depth=3)
    next(coming).result()
    coming.close()  # type: ignore[attr-defined]
    assert len(done) <= 4
