"""Matplotlib, where it is installed."""

from __future__ import annotations

from typing import Any

from taps.errors import SettingsError


def pyplot(option: str) -> Any:
    """Matplotlib drawing into files.

    Args:
        option: What leaves pictures out, for the error.

    Raises:
        SettingsError: Matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise SettingsError(
            f"Pictures need the extra 'plot': pip install 'taps-vlm[plot]', or leave them out ({option})."
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
