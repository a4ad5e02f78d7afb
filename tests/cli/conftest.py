"""Commands in this process, and images that several of them are tried on."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from taps.cli import main


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


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """A command without waiting for torch to be imported again: its exit code, what it said, its errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*args: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["taps", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main.run()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call
