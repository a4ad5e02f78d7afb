"""Limits on images, requests a second, and requests under way."""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from PIL import Image

from taps.model.images.decode import FORMATS as KNOWN
from taps.serve.errors import FormatError, TooLargeError, TooManyError
from taps.serve.options import Limits
from taps.serve.pieces import check_pieces


def check_image(data: bytes, limits: Limits) -> None:
    """Refuse an image of another format, with too many pixels or pieces; its pixels are not decoded."""
    if not data:
        raise FormatError("The request has no image; send it as the body, or as the field `image`.")
    check_pieces(data)  # before Pillow, which reads them one by one
    formats = [each for each in limits.formats if each in KNOWN]
    try:
        with Image.open(io.BytesIO(data), formats=formats) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TooLargeError(f"The image has more than {limits.pixels:,} pixels; make it smaller.") from None
    except Exception:  # on damaged files decoders raise nearly anything
        raise FormatError(
            f"This is not an image of a format that is taken here: {', '.join(limits.formats)}."
        ) from None
    if width * height > limits.pixels:
        raise TooLargeError(
            f"The image has {width} × {height} pixels; {limits.pixels:,} are taken at most. Make it smaller."
        )


class Rates:
    """A token bucket for each caller: `rate` requests a second, twice as many at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.clock = rate, clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, who: str) -> None:
        """Count one request; raises `TooManyError` where it is one too many."""
        with self._lock:
            now = self.clock()
            left, at = self._left.get(who, (2 * self.rate, now))
            left = min(2 * self.rate, left + (now - at) * self.rate)
            if left < 1:
                self._left[who] = (left, now)
                raise TooManyError(f"More than {self.rate:g} requests a second; slow down.", retry_after=1)
            self._left[who] = (left - 1, now)


class Shares:
    """Slots for requests; a caller who finds none is refused instead of waiting.

    One caller may take as many as remain free, so that the next one always finds some: of 100 slots the first
    may take 50, the second 25.
    """

    def __init__(self, count: int) -> None:
        self.count, self._taken = count, Counter[str]()
        self._lock = threading.Lock()

    def take(self, who: str) -> None:
        with self._lock:
            if self._taken[who] >= self.count - self._taken.total():
                raise TooManyError("Too many requests are under way; try again in a moment.", retry_after=1)
            self._taken[who] += 1

    def give_back(self, who: str) -> None:
        with self._lock:
            self._taken -= Counter([who])  # drops a caller who has none left

    @contextmanager
    def of(self, who: str) -> Iterator[None]:
        self.take(who)
        try:
            yield
        finally:
            self.give_back(who)
