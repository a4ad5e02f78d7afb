"""A picture for the console: in coloured half blocks, or in the browser."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import webbrowser
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from taps.images.decode import load_image
from taps.types import PixelArray

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLUMNS, ROWS = 48, 20  # at most, of the terminal
WAYS = ("blocks", "browser", "none")


def show_picture(console: Console, data: bytes, name: str, way: str) -> None:
    """Show one image.

    Args:
        console: The terminal.
        data: The bytes of an image file.
        name: What the image is called.
        way: One of `WAYS`.
    """
    if way == "none" or (way == "browser" and _open_browser(data, name)):
        return
    console.print(half_blocks(load_image(data, name=name, at_least=400)))


def find_way(env: Mapping[str, str], *, terminal: bool) -> str:
    """How pictures are shown here: TAPS_PICTURES if it is set, else blocks where there is a terminal."""
    if env.get("TAPS_PICTURES") in WAYS:
        return env["TAPS_PICTURES"]
    return "blocks" if terminal and env.get("TERM") != "dumb" else "none"


def half_blocks(pixels: PixelArray) -> Text:
    """The picture in characters: each shows two pixels, one above the other."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    small = _fitted(pixels, COLUMNS, 2 * ROWS)
    small = small[: len(small) // 2 * 2] if len(small) > 1 else small.repeat(2, axis=0)
    text = Text(no_wrap=True, end="")
    for top, bottom in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        for above, below in zip(top, bottom, strict=True):
            text.append("▀", Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
        text.append("\n")
    return text


def _fitted(pixels: PixelArray, width: int, height: int) -> PixelArray:
    image = Image.fromarray(pixels)
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR))


@cache
def _folder() -> Path:
    """Where a browser finds pictures: for this user alone, and removed when the program ends."""
    folder = Path(tempfile.mkdtemp(prefix="taps-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _open_browser(data: bytes, name: str) -> bool:
    """Show the image in a browser; whether one could be started."""
    file = _folder() / f"question{Path(name).suffix}"
    file.write_bytes(data)
    return webbrowser.open(file.as_uri())
