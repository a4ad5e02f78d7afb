"""What the command prints before anything is imported is what it prints otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest
from release.help import shown

import taps
from taps.cli import start


def test_the_stored_help_is_that_of_the_commands() -> None:
    """Where it is not: python recipes/release/help.py."""
    assert start.HELP.read_text(encoding="utf-8") == shown()


@pytest.mark.parametrize(
    ("words", "columns", "begins"),
    [
        (["/usr/bin/taps", "--version"], "", f"taps {taps.__version__}"),
        (["/usr/bin/taps", "--help"], "80", "Usage: taps"),
        (["/usr/bin/taps", "--help"], "200", "Usage: taps"),
        (["/usr/bin/taps", "--help"], "60", None),  # typer wraps it
        (["taps/__main__.py", "--help"], "80", None),  # its usage is `python -m taps`
        (["/usr/bin/taps", "run", "--help"], "80", None),
        (["/usr/bin/taps"], "80", None),
    ],
)
def test_what_is_said_at_once(
    words: list[str], columns: str, begins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = start.at_once(words)
    assert (said and said.startswith(begins or "")) if begins else said is None


def test_it_imports_neither_typer_nor_torch() -> None:
    code = "import sys; sys.argv = ['taps', '--help']; from taps.cli.start import run; run(); "
    code += "sys.exit(any(name in sys.modules for name in ('typer', 'torch', 'numpy', 'rich')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == start.HELP.read_text(encoding="utf-8")
