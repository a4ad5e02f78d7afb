"""`python -m taps.cli` is the command `taps`."""

from taps.cli.main import run

run()
