"""Pictures at a terminal: each form read back by another reader than the one that wrote it."""

from __future__ import annotations

import base64
import io
import os
import re

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from taps.oracles.picture import find_way, half_blocks, iterm, kitty, show_picture, sixel
from taps.types import PixelArray


@pytest.fixture
def flag() -> PixelArray:
    """Red above, blue below, a green column to the left; of the size a terminal shows it in."""
    pixels = np.zeros((400, 480, 3), np.uint8)
    pixels[:200], pixels[200:] = (255, 0, 0), (0, 0, 255)
    pixels[:, :60] = (0, 255, 0)
    return pixels


def test_sixels_say_the_same_pixels(flag: PixelArray) -> None:
    np.testing.assert_array_equal(read_sixel(sixel(flag)), flag)


def read_sixel(text: str) -> PixelArray:
    """A literal reader of the sixels that have no repeats."""
    assert text.startswith("\x1bPq")
    assert text.endswith("\x1b\\")
    size, body = re.match(r'\x1bPq"1;1;(\d+;\d+)(.*)\x1b\\$', text, re.DOTALL).groups()  # type: ignore[union-attr]
    width, height = map(int, size.split(";"))
    found = np.zeros((height + 6, width, 3), np.uint8)
    colours: dict[int, list[int]] = {}
    for number, r, g, b in re.findall(r"#(\d+);2;(\d+);(\d+);(\d+)", body):
        colours[int(number)] = [round(int(value) * 2.55) for value in (r, g, b)]
    x = y = colour = 0
    for token in re.findall(r"#\d+(?:;[\d;]+)?|[?-~]|[$-]", body):
        if token.startswith("#"):
            colour = colour if ";" in token else int(token[1:])
        elif token == "$":
            x = 0
        elif token == "-":
            x, y = 0, y + 6
        else:
            for bit in range(6):
                if (ord(token) - 63) >> bit & 1:
                    found[y + bit, x] = colours[colour]
            x += 1
    return found[:height]


def test_kitty_and_iterm_send_a_png(flag: PixelArray) -> None:
    rng = np.random.default_rng(0)
    noisy = rng.integers(0, 256, flag.shape, dtype=np.uint8)  # more than one piece
    text = kitty(noisy)
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert [head for head, _ in pieces] == ["f=100,a=T,m=1", *["m=1"] * (len(pieces) - 2), "m=0"]
    assert all(len(piece) <= 4096 for _, piece in pieces)
    for data in ("".join(piece for _, piece in pieces), iterm(noisy).partition(":")[2].rstrip("\a")):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), noisy)


def test_half_blocks_hold_two_pixels_each(flag: PixelArray) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", width=100, legacy_windows=False
    )
    console.print(half_blocks(flag))
    lines = console.file.getvalue().rstrip("\n").split("\n")  # type: ignore[attr-defined]
    assert all(line.count("▀") == 48 for line in lines)
    assert len(lines) == 20
    assert "38;2;255;0;0;48;2;255;0;0" in lines[2]
    assert "38;2;0;0;255;48;2;0;0;255" in lines[-2]
    assert lines[2].startswith("\x1b[38;2;0;255;0;48;2;0;255;0m")


def test_an_image_of_one_row() -> None:
    assert half_blocks(np.zeros((1, 90, 3), np.uint8)).plain.count("▀") == 48


@pytest.mark.parametrize(
    ("env", "way"),
    [
        ({"KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm"}, "blocks"),
        ({"TERM": "dumb", "DISPLAY": ":0"}, "none"),
        ({"TERM": "xterm", "TAPS_PICTURES": "none"}, "none"),
    ],
)
def test_the_way_follows_the_terminal(env: dict[str, str], way: str) -> None:
    assert find_way(env, terminal=True) == way


def test_nothing_is_drawn_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KITTY_WINDOW_ID", "1")
    out = io.StringIO()
    console = Console(file=out)
    way = find_way(os.environ, terminal=console.is_terminal)
    show_picture(console, b"not even an image", "x.png", way)
    assert out.getvalue() == ""
