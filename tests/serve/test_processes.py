"""The processes that compute share the memory of the one they are forked from."""

from __future__ import annotations

import gc
import os
import socket

import pytest

from taps.clip import Clip
from taps.serve.processes import Processes


def test_nothing_that_is_shared_is_collected_after_the_fork(
    tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection writes to every object it looks at, and so copies the page it is on."""

    class Forked(Exception):  # noqa: N818
        pass

    def fork() -> int:
        raise Forked(gc.get_freeze_count())

    before, (ours, theirs) = gc.get_freeze_count(), socket.socketpair()
    monkeypatch.setattr(socket, "socketpair", lambda: (ours, theirs))
    monkeypatch.setattr(os, "fork", fork)
    with ours, theirs, pytest.raises(Forked) as found:
        Processes(tiny, 1)
    gc.unfreeze()
    assert found.value.args[0] > before + 10_000
