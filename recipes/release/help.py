"""Write what `taps --help` prints at once, from the commands themselves.

python recipes/release/help.py
"""

from __future__ import annotations

from typer.testing import CliRunner

from taps.cli import main, start


def shown() -> str:
    """The help as typer makes it, for a terminal of 80 columns."""
    env = {"COLUMNS": str(start.COLUMNS)}
    return CliRunner().invoke(main.app, ["--help"], prog_name="taps", env=env).output


if __name__ == "__main__":
    start.HELP.write_text(shown(), encoding="utf-8")
