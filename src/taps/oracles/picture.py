"""A picture at a terminal: as the terminal takes it, in a viewer, or in coloured half blocks."""

from __future__ import annotations

import base64
import io
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
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
CELL = (10, 20)  # pixels of a character cell, about
WAYS = ("kitty", "iterm", "sixel", "viewer", "blocks", "none")


def show_picture(console: Console, data: bytes, name: str, way: str) -> None:
    """Show one image.

    Args:
        console: The terminal.
        data: The bytes of an image file.
        name: What the image is called.
        way: One of `WAYS`.
    """
    if way == "none":
        return
    if way == "viewer" and _open_viewer(data, name):
        return
    pixels = load_image(data, name=name, at_least=400)
    if way in ENCODERS:
        console.file.write(ENCODERS[way](pixels) + "\n")
        console.file.flush()
    else:
        console.print(half_blocks(pixels))


def find_way(env: Mapping[str, str], *, terminal: bool) -> str:
    """How pictures are shown here: TAPS_PICTURES if it is set, else what the terminal says it can do."""
    if env.get("TAPS_PICTURES") in WAYS:
        return env["TAPS_PICTURES"]
    if not terminal or env.get("TERM") == "dumb":
        return "none"
    program = env.get("TERM_PROGRAM", "") + env.get("LC_TERMINAL", "")
    if "KITTY_WINDOW_ID" in env or "kitty" in env.get("TERM", "") or "ghostty" in program:
        return "kitty"
    if "iTerm" in program or "WezTerm" in program:
        return "iterm"
    if _says_sixel():
        return "sixel"
    display = "DISPLAY" in env or "WAYLAND_DISPLAY" in env or sys.platform == "darwin"
    return "viewer" if display and _viewer() else "blocks"


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


def kitty(pixels: PixelArray) -> str:
    """Kitty's graphics protocol: a PNG in pieces of 4,096 characters."""
    text = _png(pixels)
    pieces = [text[start : start + 4096] for start in range(0, len(text), 4096)]
    heads = ["f=100,a=T,", *[""] * (len(pieces) - 1)]
    more = [1] * (len(pieces) - 1) + [0]
    return "".join(
        f"\x1b_G{head}m={m};{piece}\x1b\\" for head, m, piece in zip(heads, more, pieces, strict=True)
    )


def iterm(pixels: PixelArray) -> str:
    """iTerm's inline images."""
    return f"\x1b]1337;File=inline=1;preserveAspectRatio=1:{_png(pixels)}\a"


def sixel(pixels: PixelArray) -> str:
    """Sixels: six rows at a time, one colour after the other."""
    image = Image.fromarray(_fitted(pixels, COLUMNS * CELL[0], ROWS * CELL[1])).quantize(255)
    palette = np.array(image.getpalette(), np.int64).reshape(-1, 3)
    indices = np.asarray(image)
    used = np.unique(indices).tolist()
    colours = "".join(f"#{k};2;" + ";".join(str(round(c / 2.55)) for c in palette[k]) for k in used)
    bands = (indices[start : start + 6] for start in range(0, len(indices), 6))
    size = f'"1;1;{indices.shape[1]};{indices.shape[0]}'
    return "\x1bPq" + size + colours + "-".join("$".join(_band(band)) for band in bands) + "\x1b\\"


ENCODERS: dict[str, Callable[[PixelArray], str]] = {"kitty": kitty, "iterm": iterm, "sixel": sixel}


def _band(band: np.ndarray) -> Iterator[str]:  # type: ignore[type-arg]
    """The rows of a band, colour by colour: each character holds one column's bits."""
    weights = 1 << np.arange(len(band))
    for k in np.unique(band).tolist():
        bits = ((band == k) * weights[:, None]).sum(axis=0)
        yield f"#{k}" + "".join(chr(63 + value) for value in bits.tolist())


def _fitted(pixels: PixelArray, width: int, height: int) -> PixelArray:
    image = Image.fromarray(pixels)
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR))


def _png(pixels: PixelArray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(_fitted(pixels, COLUMNS * CELL[0], ROWS * CELL[1])).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _says_sixel() -> bool:
    """Ask the terminal what it is (primary device attributes); 4 among its answer means sixels."""
    try:
        import termios
        import tty
    except ImportError:  # not on this system
        return False
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    said = b""
    try:
        tty.setcbreak(fd)
        sys.stderr.write("\x1b[c")
        sys.stderr.flush()
        while not said.endswith(b"c") and select.select([fd], [], [], 0.2)[0]:
            said += os.read(fd, 1)
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
    return b"4" in said.rstrip(b"c").partition(b"?")[2].split(b";")[1:]


def _viewer() -> str | None:
    return shutil.which("open" if sys.platform == "darwin" else "xdg-open")


def _open_viewer(data: bytes, name: str) -> bool:
    """Show the image in the desktop's viewer; whether one could be started."""
    viewer = _viewer()
    if viewer is None:
        return False
    file = Path(tempfile.gettempdir()) / f"taps-question-{os.getpid()}{Path(name).suffix}"
    file.write_bytes(data)
    quiet = subprocess.DEVNULL
    subprocess.Popen([viewer, str(file)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    return True
