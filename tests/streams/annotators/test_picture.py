"""Pictures at a console: in half blocks, or in the browser."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from taps.streams.annotators.picture import find_way, half_blocks, show_picture
from taps.types import PixelArray


@pytest.fixture
def flag() -> PixelArray:
    """Red above, blue below, a green column to the left; of the size a terminal shows it in."""
    pixels = np.zeros((400, 480, 3), np.uint8)
    pixels[:200], pixels[200:] = (255, 0, 0), (0, 0, 255)
    pixels[:, :60] = (0, 255, 0)
    return pixels


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
        ({"TERM": "xterm"}, "blocks"),
        ({"TERM": "xterm", "DISPLAY": ":0"}, "blocks"),
        ({"TERM": "xterm", "TAPS_PICTURES": "browser"}, "browser"),
        ({"TERM": "xterm", "TAPS_PICTURES": "sixel"}, "blocks"),
        ({"TERM": "dumb", "DISPLAY": ":0"}, "none"),
        ({"TERM": "xterm", "TAPS_PICTURES": "none"}, "none"),
    ],
)
def test_the_way_follows_the_terminal(env: dict[str, str], way: str) -> None:
    assert find_way(env, terminal=True) == way


def test_nothing_is_drawn_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPS_PICTURES", raising=False)
    out = io.StringIO()
    console = Console(file=out)
    way = find_way(os.environ, terminal=console.is_terminal)
    show_picture(console, b"not even an image", "x.png", way)
    assert out.getvalue() == ""


VIEWED = """
import os, sys, tempfile
from pathlib import Path
from rich.console import Console
from taps.streams.annotators.picture import show_picture
other = Path(sys.argv[1])
Path(tempfile.gettempdir(), f"taps-question-{os.getpid()}.png").symlink_to(other)
for data in (b"first", b"second"):
    show_picture(Console(), data, "a folder/x.png", "browser")
    (child,) = [path for path in Path(tempfile.gettempdir()).rglob("*.png") if not path.is_symlink()]
    print(child.read_bytes(), oct(child.parent.stat().st_mode & 0o777))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no shell script starts there")
def test_a_picture_in_a_browser_is_private_and_removed_in_the_end(tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {seen}\n')
    browser.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "mine").write_text("not to be touched")
    env = os.environ | {"BROWSER": str(browser), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-c", VIEWED, str(tmp_path / "mine")]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert said == "b'first' 0o700\nb'second' 0o700\n"
    first, second = seen.read_text().split()
    assert first == second
    assert re.fullmatch(f"file://{tmp_path}/tmp/taps-[^/]+/question.png", first)
    assert (tmp_path / "mine").read_text() == "not to be touched"
    assert [path.is_symlink() for path in (tmp_path / "tmp").iterdir()] == [True]  # that of the test alone


def test_where_no_browser_starts_it_is_blocks(monkeypatch: pytest.MonkeyPatch, flag: PixelArray) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    file, out = io.BytesIO(), io.StringIO()
    Image.fromarray(flag).save(file, "PNG")
    show_picture(Console(file=out, width=100), file.getvalue(), "x.png", "browser")
    assert out.getvalue().count("▀") == 48 * 20
