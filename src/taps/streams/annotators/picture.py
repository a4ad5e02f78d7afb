"""Shows an image at the console: in coloured half blocks, or in the browser."""

from __future__ import annotations

import atexit
import webbrowser
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from taps.disk import make_temporary, remove_tree, write_bytes
from taps.model.images.decode import load_image
from taps.types import PixelArray

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLUMNS, ROWS = 48, 20  # at most, of the terminal
WAYS = ("blocks", "browser", "none")


def show_picture(console: Console, data: bytes, name: str, way: str) -> None:
    """Show an image file called `name` in one of `WAYS`; in blocks where no browser starts."""
    if way == "none" or (way == "browser" and _open_browser(data, name)):
        return
    console.print(half_blocks(load_image(data, name=name, at_least=400)))


def find_way(env: Mapping[str, str], *, terminal: bool) -> str:
    """How pictures are shown here: TAPS_PICTURES if it is set, else blocks where there is a terminal."""
    if env.get("TAPS_PICTURES") in WAYS:
        return env["TAPS_PICTURES"]
    return "blocks" if terminal and env.get("TERM") != "dumb" else "none"


def half_blocks(pixels: PixelArray) -> Text:
    """The image in characters: each shows two pixels, one above the other."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    image = Image.fromarray(pixels)
    scale = min(COLUMNS / image.width, 2 * ROWS / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    small = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
    small = small[: len(small) // 2 * 2] if len(small) > 1 else small.repeat(2, axis=0)
    text = Text(no_wrap=True, end="")
    for top, bottom in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        for above, below in zip(top, bottom, strict=True):
            text.append("▀", Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
        text.append("\n")
    return text


@cache
def _folder() -> Path:
    """Where the browser finds images: readable for this user alone, removed when the program ends."""
    folder = make_temporary()
    atexit.register(remove_tree, folder)
    return folder


def _open_browser(data: bytes, name: str) -> bool:
    """Show the image in a browser; whether one could be started."""
    file = _folder() / f"question{Path(name).suffix}"
    write_bytes(file, data)
    return webbrowser.open(file.as_uri())
