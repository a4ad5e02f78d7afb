"""Images for the pages: small JPEGs, made one at a time, the last ones kept."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from taps.model.images.decode import load_small

KEPT = 16 << 20  # bytes of JPEGs
WEBP = 8_000_000  # pixels; Pillow takes 16 bytes for each, and browsers show the file itself


class Pictures:
    """One thread decodes for all, so that memory is that of one image, and is used again for the next."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "pictures")
        self._made: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    async def of(self, image: str, size: int, read: Callable[[], bytes]) -> bytes:
        """A stored image, no wider or higher than `size`; `read` gives its bytes, or says why not."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._of, image, size, read)

    def _of(self, image: str, size: int, read: Callable[[], bytes]) -> bytes:
        data, key = read(), (image, size)
        made = self._made.pop(key, None) or as_jpeg(data, size)
        self._made[key] = made
        while sum(map(len, self._made.values())) > KEPT:
            self._made.popitem(last=False)
        return made


def as_jpeg(data: bytes, size: int) -> bytes:
    """A JPEG no wider or higher than `size`; a large WEBP as it is."""
    if data[:4] == b"RIFF":
        with Image.open(io.BytesIO(data), formats=["WEBP"]) as image:
            if image.width * image.height > WEBP:
                return data
    made = io.BytesIO()
    Image.fromarray(load_small(data, size)).save(made, "JPEG", quality=88)
    return made.getvalue()
