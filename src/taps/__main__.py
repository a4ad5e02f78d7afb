"""`python -m taps` is `taps`."""

from taps.cli.main import run

if __name__ == "__main__":
    run()
