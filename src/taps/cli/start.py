"""Where the command begins: `taps --help` and `--version` wait for no import of typer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import taps

HELP = Path(__file__).with_name("help.txt")  # `python recipes/release/help.py` writes it
COLUMNS = 80  # it is wrapped for; in a narrower terminal typer wraps it


def run() -> None:
    """Entry point of the command `taps`."""
    text = at_once(sys.argv)
    if text is not None:
        print(text)
        return
    from taps.cli.main import run as run_command

    run_command()


def at_once(words: list[str]) -> str | None:
    """What is printed without any other module; None where a command has to be read."""
    if words[1:] == ["--version"]:
        return f"taps {taps.__version__}"
    if words[1:] == ["--help"] and Path(words[0]).name == "taps" and _columns() >= COLUMNS:
        return HELP.read_text(encoding="utf-8").rstrip("\n")
    return None


def _columns() -> int:
    """As `shutil.get_terminal_size`, whose import takes longer than the rest."""
    given = os.environ.get("COLUMNS", "")
    try:
        return int(given) if given.isdecimal() and int(given) else os.get_terminal_size(1).columns
    except OSError:  # no terminal
        return COLUMNS
