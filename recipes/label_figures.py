"""The picture of docs/label-efficiency.md."""

from __future__ import annotations

from pathlib import Path

from taps.study.report.svg import BLACK, BLUE, GREY, ORANGE


def draw(
    file: Path,
    percent: list[float],
    lines: dict[str, dict[str, list[float]]],
    at_5: dict[str, dict[str, float]],
) -> None:
    """Accuracy by share of labels, a panel for each group of sets; points for what was run at 5 % alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(lines), figsize=(9, 3.6), constrained_layout=True)
    for axis, (panel, curves) in zip(axes, lines.items(), strict=True):
        for (name, values), colour in zip(curves.items(), (BLUE, ORANGE, GREY), strict=True):
            axis.plot(percent, values, color=colour, marker="o" if name != "zero-shot" else None, label=name)
        for (name, value), mark in zip(at_5[panel].items(), "D", strict=True):
            axis.plot([5.0], [value], mark, color=BLACK, label=name)
        axis.set_xscale("log")
        axis.set_xticks(percent, [f"{value:g}" for value in percent])
        axis.minorticks_off()
        axis.set_xlabel("images answered, %")
        axis.set_title(panel)
    axes[0].set_ylabel("accuracy, %")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)
