"""Images that several commands are tried on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of four noisy pictures each."""
    root = tmp_path_factory.mktemp("data") / "zoo"
    rng = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (root / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root
