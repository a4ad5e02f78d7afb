"""The functions that one image passes through from `taps run` to its row, walked on the real call stack."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from taps.cli.main import run

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
MOST = 20
BEGINS = "session.loop._one_image"


def stack_of(frame: FrameType | None) -> tuple[str, ...]:
    """The functions of `taps` on a stack, the outermost first."""
    found: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module.startswith("taps."):
            found.append(f"{module.removeprefix('taps.')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(found))


def stacks_of(act: Callable[[], object]) -> set[tuple[str, ...]]:
    """Every stack of the functions of `taps` that is reached while an image is dealt with."""
    seen: set[tuple[str, ...]] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (frame.f_globals.get("__name__") or "").startswith("taps."):
            found = stack_of(frame)
            if BEGINS in found:
                seen.add(found)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(before)
    return seen


def test_the_way_of_one_image_is_at_most_twenty_functions_deep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photos" / "cat" / "one.png")
    options = ["--model", "tiny", "--device", "cpu", "--rate", "1", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(
        "sys.argv", ["taps", "run", str(tmp_path / "photos"), "--classes", "cat,dog", *options]
    )

    def command() -> None:
        with suppress(SystemExit):
            run()

    seen = stacks_of(command)
    row = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    assert len(row) == 2, "a head and the row of the one image"
    answering = {stack for stack in seen if "session.loop.Session.ask" in stack}
    for stacks, most in ((seen - answering, MOST), (answering, MOST + 1)):
        deepest = max(stacks, key=len)
        assert len(deepest) <= most, f"{len(deepest)} functions:\n" + "\n".join(deepest)
    written = re.search(r"## The way of one image\n(.*?)\n## ", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert written is not None
    listed = [tuple(block.split()) for block in re.findall(r"```\n(.*?)```", written[1], re.DOTALL)]
    assert len(listed) == 3
    for stack in listed:
        likest = max(seen, key=lambda each: len(set(each) & set(stack)))
        assert stack in seen, "the page lists a stack that is not walked; the likest is\n" + "\n".join(likest)
