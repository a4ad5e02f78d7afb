"""docs/reading.md: every module that a run of `taps` enters stands on it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import taps
from taps.model.clip import Clip, load_clip
from taps.model.prompts.maple import Maple

PACKAGE = Path(taps.__file__).parent
PAGE = (Path(__file__).resolve().parent.parent / "docs" / "reading.md").read_text(encoding="utf-8")
RINGS = [re.findall(r"^\| `([\w/]+\.py)` \|", part, re.MULTILINE) for part in PAGE.split("\n## ")[1:3]]
NAMED = set(re.findall(r"`([\w/]+\.py)`", PAGE))


def run_taps(clip: Clip) -> None:
    prompts = Maple().initial(clip, torch.Generator().manual_seed(1))
    settings: dict[str, Any] = {"rate": 0.5, "warmup": 2, "tau0": 0.1, "views": 8, "buffer": 2}
    learner = taps.Learner(clip, ["cat", "dog"], "taps", prompts=prompts, **settings)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (40, 40, 3), dtype=np.uint8) for _ in range(8)]
    assert len(list(taps.stream(learner, images, lambda query: "cat"))) == len(images)
    assert learner.answered > 2


def test_every_module_that_a_run_enters_is_on_the_page() -> None:
    clip = load_clip("tiny")
    run_taps(clip)  # what is imported on the way is imported now
    entered = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and frame.f_code.co_name != "<module>" and file.is_relative_to(PACKAGE):
            entered.add(file.relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        run_taps(clip)
    finally:
        sys.setprofile(None)
    assert "learning/step.py" in entered
    assert entered <= NAMED


def test_what_is_on_the_page_exists() -> None:
    assert [name for name in NAMED if not (PACKAGE / name).is_file()] == []


def test_the_paper_is_read_in_few_modules() -> None:
    first, second = RINGS
    assert first[0] == "methods/taps.py"
    assert len(first) <= 25
    assert not set(first) & set(second)
