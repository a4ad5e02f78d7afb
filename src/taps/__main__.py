"""`python -m taps` is `taps`."""

from taps.cli.start import run

if __name__ == "__main__":
    run()
