"""Matplotlib figures of one size and style, with the legend outside the axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taps.errors import SettingsError
from taps.report.palette import FIXED, PALE

MARKERS = "os^Dv"  # where there are more methods than colours
MOST = 8  # lines in one picture
SIZE, DPI = (8.0, 5.0), 100  # 800 × 500 pixels


def pyplot(option: str = "--no-plots") -> Any:
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


@contextmanager
def figure(path: Path, title: str, x: str, y: str) -> Iterator[Any]:
    """Axes to draw on; the picture is written when the block ends."""
    plt = pyplot()
    shape, axes = plt.subplots(figsize=SIZE, dpi=DPI, layout="constrained")
    axes.set_title(title, fontsize=13)
    axes.set_xlabel(x, fontsize=12)
    axes.set_ylabel(y, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid(True, color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    try:
        yield axes
        handles, labels = axes.get_legend_handles_labels()
        if len(labels) > 1:
            columns = max(1, min(4, 84 // (6 + max(map(len, labels)))))  # what 800 pixels hold
            shape.legend(
                handles, labels, loc="outside lower center", ncols=columns, fontsize=11, frameon=False
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        shape.savefig(path)
    finally:
        plt.close(shape)


def shown(methods: Sequence[str]) -> list[str]:
    """The methods drawn as lines where there are too many: the fixed ones, then the others in order."""
    if len(methods) <= MOST:
        return list(methods)
    first = [method for method in methods if method in FIXED]
    kept = {*first, *[method for method in methods if method not in FIXED][: MOST - len(first)]}
    return [method for method in methods if method in kept]
