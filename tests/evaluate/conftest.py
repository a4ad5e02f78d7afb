"""Small folders of pictures and jobs on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from taps.evaluate.jobs import Job, ModelSpec, StreamSpec


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of eight noisy pictures each."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for name in ("ant", "bee", "cat"):
        (root / name).mkdir()
        for i in range(8):
            Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


@pytest.fixture
def make_job(pictures: Path) -> Callable[..., Job]:
    """A run of the tiny model on the pictures; every image is asked about unless said otherwise."""

    def make(method: str = "taps", seed: int = 1, root: Path = pictures, **changes: Any) -> Job:
        asks = {"views": 4, "policy": "fixed", "tau0": 0.0, "buffer": 5} if method == "taps" else {}
        settings = changes.pop("settings", asks)
        return Job(
            StreamSpec(str(root), name="pictures"), ModelSpec("tiny"), method, seed, settings, **changes
        )

    return make
