"""The figures of `simulate.py`, 800 pixels wide. matplotlib is imported when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from balance import lowest_imbalance
from rate import SHAPES, expected_rate_under_switch
from study import Study
from study_rate import POLICIES, WINDOW

from taps.study.report.svg import BLUE, GREEN, GREY, ORANGE, PALE, RED

LABELS = {"switch 1.5 α": "switch at 1.5 α", f"quantile {WINDOW}": f"quantile of the last {WINDOW}"}
MARKS = dict(zip(POLICIES, (("o", BLUE), ("s", ORANGE), ("|", GREY), ("D", GREEN), ("x", RED)), strict=True))


def draw_figures(study: Study, folder: Path) -> list[Path]:
    """Draws what the study has curves and tables for; returns the files written."""
    drawn = {}
    if study.balance_curves is not None:
        drawn["theory-balance.png"] = _balance(study)
        drawn["theory-datasets.png"] = _datasets(study)
    if study.rate_curves is not None:
        drawn["theory-rate.png"] = _rate(study)
        drawn["theory-shapes.png"] = _shapes(study)
    for name, figure in drawn.items():
        figure.savefig(folder / name)
    return [folder / name for name in drawn]


def _figure(height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(8, height), dpi=100, layout="constrained")


def _balance(study: Study) -> Any:
    assert study.balance_curves is not None
    figure = _figure(5.6)
    figure.suptitle(
        "Imbalance f of a full buffer under Algorithm 2 (median and 5–95 % of streams)", fontsize=12
    )
    for axes, (setting, (low, median, high)) in zip(
        figure.subplots(2, 2).flat, study.balance_curves, strict=True
    ):
        samples = range(len(median))
        axes.fill_between(samples, low, high, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(samples, median, color=BLUE, label="f")
        lowest = lowest_imbalance(setting.classes, setting.capacity) / setting.classes
        axes.axhline(2, color=ORANGE, linestyle=":", label="f = 2, claimed")
        axes.axhline(lowest, color=GREY, linestyle="--", label=f"lowest possible: {lowest:g}")
        axes.set_title(
            f"{setting.classes} classes, buffer {setting.capacity}, {setting.classes_drawn}", fontsize=10
        )
        axes.set_ylim(bottom=-0.03 * high.max())
        axes.set_xlim(0, len(median) - 1)
        axes.legend(fontsize=8, loc="upper right")
    figure.supxlabel("labelled samples since the buffer was full", fontsize=10)
    figure.supylabel("f (samples)", fontsize=10)
    return figure


def _datasets(study: Study) -> Any:
    rows = study.tables["datasets"][::-1]
    figure = _figure(4.8)
    axes = figure.subplots()
    axes.axvline(2, color=ORANGE, linestyle=":", label="f = 2, claimed")
    filled = [(place, row) for place, row in enumerate(rows) if row["f_at_end"] is not None]
    places = [place for place, _ in filled]
    axes.plot(
        [row["f_lowest"] for _, row in filled], places, "|", color=GREY, markersize=14, markeredgewidth=2
    )
    axes.lines[-1].set_label("lowest possible")
    axes.plot([row["f_at_end"] for _, row in filled], places, "o", color=BLUE, label="median of the streams")
    for place, row in enumerate(rows):
        if row["f_at_end"] is None:
            axes.text(4, place, "buffer never full", va="center", fontsize=9, color=RED)
    names = [f"{row['dataset']}  ({row['labelled']:,} labels, {row['classes']} classes)" for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=9)
    axes.set_xlim(left=0)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(axis="y", color=PALE)
    axes.set_xlabel("imbalance f when the budget is spent (samples)")
    rate = study.settings["rate"]
    figure.suptitle(
        f"Labelling {100 * rate:g} % of the paper's sets, all classes equally likely", fontsize=12
    )
    axes.legend(fontsize=9, loc="upper right")
    return figure


def _rate(study: Study) -> Any:
    assert study.rate_curves is not None
    from matplotlib.ticker import FuncFormatter

    rate = study.settings["rate"]
    at, curves = study.rate_curves
    figure = _figure(4.4)
    axes = figure.subplots()
    for name, color in zip(curves, (BLUE, ORANGE, GREEN), strict=True):
        low, _, high, mean = 100 * curves[name]
        axes.plot(at, mean, color=color, label=LABELS.get(name, name))
        if color == BLUE:
            axes.fill_between(
                at, low, high, color=color, alpha=0.15, linewidth=0, label="5–95 % of its streams"
            )
    expected = [100 * expected_rate_under_switch(rate, int(n)) for n in at]
    axes.plot(at, expected, color=BLUE, linestyle=":", label="α − √(2α(1−α)/πN)")
    axes.axhline(100 * rate, color=GREY, linestyle="--", linewidth=1, label="α")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(at[0], at[-1])
    axes.set_ylim(0, 180 * rate)
    axes.set_xlabel("samples seen, N")
    axes.set_ylabel("asked about so far, $R_N$ (%)")
    axes.set_title("Normal entropies: mean query rate of the streams", fontsize=12)
    axes.legend(fontsize=9, ncols=2)
    return figure


def _shapes(study: Study) -> Any:
    rate, length = study.settings["rate"], study.settings["length"]
    figure = _figure(5.4)
    axes = figure.subplots()
    shapes = list(SHAPES)[::-1]
    for name, (mark, color) in MARKS.items():
        rows = [row for row in study.tables["shapes"] if row["policy"] == name]
        places = [shapes.index(row["entropies"]) for row in rows]
        axes.plot(
            [100 * row["rate"] for row in rows],
            places,
            mark,
            color=color,
            label=LABELS.get(name, name),
            markersize=13 if mark == "|" else 7,
            markeredgewidth=2 if mark in "|x" else 1,
            fillstyle="none" if mark == "s" else "full",
        )
    axes.axvline(100 * rate, color=GREY, linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(shapes)), shapes)
    axes.grid(axis="y", color=PALE, zorder=0)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"asked about after {length:,} samples (%); dashed: what was meant, α")
    axes.set_title("Query rate by the shape of the entropies", fontsize=12)
    axes.legend(fontsize=9, loc="upper right")
    return figure
