"""Ctrl-C as a wish: the image under way is finished and everything saved before the run stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class Interrupt:
    """While it is entered, the first Ctrl-C only sets `wanted`; a second one stops at once.

    Attributes:
        wanted: Whether somebody pressed Ctrl-C.
    """

    def __init__(self) -> None:
        self.wanted = self._at_once = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        # Where another handler is at work, as in worker processes, that one decides; so it does in threads.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):
                self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While a person is asked, Ctrl-C does not wait for the answer."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.wanted or self._at_once:
            raise KeyboardInterrupt
        self.wanted = True
