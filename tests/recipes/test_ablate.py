"""`recipes/ablate.py` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from ablate import app
from typer.testing import CliRunner

from taps.errors import SettingsError

runner = CliRunner()


def call(name: str, zoo: Path, out: Path, *more: str) -> list[str]:
    fast = ["--model", "tiny", "--seeds", "1", "--set", "views=3", "--set", "tau0=0.0"]
    return [name, "--data", str(zoo), *fast, "--out", str(out), *more]


def test_a_blind_ablation_says_so(zoo: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, call("eviction", zoo, tmp_path), catch_exceptions=False)
    assert result.exit_code == 0
    assert "cannot show anything" in result.output
    assert (tmp_path / "eviction.svg").is_file()
    assert "![eviction](eviction.svg)" in (tmp_path / "eviction.md").read_text()


def test_a_seeing_one_does_not(zoo: Path, tmp_path: Path) -> None:
    options = call("eviction", zoo, tmp_path, "--buffer", "2", "--no-plots")
    result = runner.invoke(app, options, catch_exceptions=False)
    assert "cannot show anything" not in result.output
    for variant in ("zero_shot", "random", "class-balanced"):
        assert f"| {variant} |" in result.output


def test_mistakes_are_sentences(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="varies buffer itself"):
        runner.invoke(app, call("buffer", zoo, tmp_path, "--buffer", "5"), catch_exceptions=False)
    with pytest.raises(SettingsError, match="no ablation"):
        runner.invoke(app, call("colour", zoo, tmp_path), catch_exceptions=False)
    with pytest.raises(SettingsError, match="needs --source"):
        runner.invoke(app, call("alignment", zoo, tmp_path), catch_exceptions=False)
    assert not list(tmp_path.iterdir())
