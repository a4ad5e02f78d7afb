"""`taps ablate` from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from taps.cli.ablate import app
from taps.errors import SettingsError

runner = CliRunner()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "zoo"
    rng = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (root / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


def call(name: str, pictures: Path, out: Path, *more: str) -> list[str]:
    fast = ["--model", "tiny", "--seeds", "1", "--set", "views=3", "--set", "tau0=0.0"]
    return [name, "--data", str(pictures), *fast, "--out", str(out), *more]


def test_a_blind_ablation_says_so(pictures: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, call("eviction", pictures, tmp_path), catch_exceptions=False)
    assert result.exit_code == 0
    assert "cannot show anything" in result.output
    assert (tmp_path / "eviction.svg").is_file()
    assert "![eviction](eviction.svg)" in (tmp_path / "eviction.md").read_text()


def test_a_seeing_one_does_not(pictures: Path, tmp_path: Path) -> None:
    options = call("eviction", pictures, tmp_path, "--buffer", "2", "--no-plots")
    result = runner.invoke(app, options, catch_exceptions=False)
    assert "cannot show anything" not in result.output
    for variant in ("zero_shot", "random", "class-balanced"):
        assert f"| {variant} |" in result.output


def test_mistakes_are_sentences(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="varies buffer itself"):
        runner.invoke(app, call("buffer", pictures, tmp_path, "--buffer", "5"), catch_exceptions=False)
    with pytest.raises(SettingsError, match="no ablation"):
        runner.invoke(app, call("colour", pictures, tmp_path), catch_exceptions=False)
    with pytest.raises(SettingsError, match="needs --source"):
        runner.invoke(app, call("alignment", pictures, tmp_path), catch_exceptions=False)
    assert not list(tmp_path.iterdir())
