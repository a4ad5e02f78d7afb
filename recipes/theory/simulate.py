"""Where the paper's two propositions hold and where they fail.

python recipes/theory/simulate.py all --streams 2000 --length 5000 --seed 0 --out theory
"""

from __future__ import annotations

import csv
import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from figures import draw_figures
from rich.console import Console
from rich.table import Column
from study import Study, study_all, study_balance, study_rate

from taps.cli.main import run
from taps.cli.options import new_app
from taps.cli.terminal import show_json, show_table
from taps.disk import make_folder
from taps.errors import SettingsError
from taps.files import write_json

app = new_app()

Columns = dict[str, tuple[str, str]]

SETTING: Columns = {
    "classes": ("K", "d"),
    "buffer": ("L", "d"),
    "classes_drawn": ("classes", "s"),
    "losses": ("losses", "s"),
}

# (table, title, {column: (heading, how to write it)})
VIEWS: tuple[tuple[str, str, Columns], ...] = (
    (
        "balance",
        "Proposition 1: labelled samples from a full buffer to the most even one",
        {
            **SETTING,
            "f_when_full": ("f full", ".1f"),
            "f_lowest": ("lowest", ".1f"),
            "share_reaching_lowest": ("reach it", "%"),
            "samples_median": ("median", ",.0f"),
            "samples_95": ("95 %", ",.0f"),
            "bound_needs": ("by proof", ",d"),
        },
    ),
    (
        "balance",
        "Proposition 1: is f ≤ 2 reached, does f rise (per 1,000 samples), what follows",
        {
            **SETTING,
            "share_reaching_2": ("f ≤ 2", "%"),
            "rises_per_1000": ("rises", ".1f"),
            "rises_from_0_per_1000": ("from 0", ".1f"),
            "f_highest_after": ("max f after", ".1f"),
            "class_excess_after": ("max n − L/K", ".2f"),
        },
    ),
    (
        "datasets",
        "Proposition 1 on the paper's sets: classes equally likely, α of the images labelled",
        {
            "dataset": ("set", "s"),
            "classes": ("K", "d"),
            "labelled": ("labels", ",d"),
            "buffer": ("L", "d"),
            "f_lowest": ("lowest f", ".1f"),
            "f_at_end": ("at end", ".1f"),
            "share_reaching_lowest": ("reach it", "%"),
            "share_reaching_2": ("reach f ≤ 2", "%"),
        },
    ),
    (
        "convergence",
        "Proposition 2, normal entropies: switch at α (Algorithm 1), at 1.5 α (appendix)",
        {
            "samples": ("N", ",d"),
            "printed_rate": ("R_N", ".2%"),
            "expected": ("first order", ".2%"),
            "printed_off_by_a_fifth": ("±α/5 off", "%"),
            "printed_strict": ("strict", "%"),
            "appendix_rate": ("1.5 α", ".2%"),
            "appendix_off_by_a_fifth": ("±α/5 off", "%"),
            "appendix_strict": ("strict", "%"),
        },
    ),
    ("rate", "Proposition 2, other entropies: asked about in the whole stream", {}),
    ("rate_last_fifth", "Proposition 2, other entropies: asked about in its last fifth", {}),
    (
        "limits",
        "Algorithm 1 in the limit: samples above its two thresholds, and the rate that follows",
        {
            "entropies": ("entropies", "s"),
            "share_above": ("above", ".2%"),
            "share_above_strict": ("above strict", ".2%"),
            "limit": ("limit, switch at α", ".2%"),
            "limit_appendix": ("at 1.5 α", ".2%"),
        },
    ),
    (
        "warmup",
        "A τ0 that does not fit: normal entropies, Algorithm 1",
        {
            "share_above_tau0": ("above τ0", "%"),
            "asked_in_warmup": ("asked in first 29", ".1f"),
            "rate_100": ("R_100", ".1%"),
            "rate_1000": ("R_1000", ".2%"),
            "rate_end": ("R at end", ".2%"),
            "samples_until_below_rate": ("below α at sample", ",.0f"),
        },
    ),
    (
        "first_question",
        "First sample n that Algorithm 1 can ask about: (n−1)/√n > z",
        {
            "rate": ("α", ".1%"),
            "z": ("z", ".3f"),
            "first_sample": ("n", "d"),
            "z_high": ("z while strict", ".3f"),
            "first_strict": ("n", "d"),
        },
    ),
)


class What(StrEnum):
    """Which proposition."""

    BALANCE = "balance"
    RATE = "rate"
    ALL = "all"


@app.command()
def simulate(
    what: What = typer.Argument(
        What.ALL, help="Proposition 1 (balance), Proposition 2 (rate) or both (all)."
    ),
    streams: int = typer.Option(2000, help="Streams for the main case; the others get a fixed share of it."),
    length: int = typer.Option(5000, help="Samples of each stream (for balance: labelled ones, at most)."),
    rate: float = typer.Option(0.05, help="Query rate α."),
    seed: int = typer.Option(0, help="The same seed gives the same numbers."),
    out: Path | None = typer.Option(
        None, help="Folder for simulate.json, a CSV for each table and the figures."
    ),
    figures: bool = typer.Option(True, help="Draw the figures into --out (needs matplotlib)."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Simulate the paper's two propositions: class balance of the buffer, and the query rate.

    Thousands of streams at once, no model and no images; less than a minute with the defaults.
    """
    if out is not None:
        make_folder(out)
        if figures and not importlib.util.find_spec("matplotlib"):
            raise SettingsError("Figures need matplotlib: pip install matplotlib, or give --no-figures.")
    measure = {What.BALANCE: study_balance, What.RATE: study_rate, What.ALL: study_all}[what]
    study = measure(streams, length, seed, rate)
    written = []
    if out is not None:
        written = _write(study, out)
        if figures:
            written += draw_figures(study, out)
    if as_json:
        show_json(_as_dict(study))
        return
    _print_tables(study, written)


def _as_dict(study: Study) -> dict[str, Any]:
    return {"settings": study.settings, "tables": study.tables}


def _write(study: Study, out: Path) -> list[Path]:
    written = [out / "simulate.json"]
    write_json(written[0], _as_dict(study))
    for name, rows in study.tables.items():
        written.append(out / f"{name}.csv")
        with written[-1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return written


def _print_tables(study: Study, written: list[Path]) -> None:
    console = Console()
    tables = {**study.tables, **_by_policy(study.tables.get("shapes", []))}
    for name, title, columns in VIEWS:
        if name not in tables:
            continue
        rows = tables[name]
        columns = columns or {"entropies": ("entropies", "s"), **{p: (p, ".2%") for p in list(rows[0])[1:]}}
        shown = {column: look for column, look in columns.items() if column in rows[0]}
        heads = [
            Column(heading, justify="left" if look == "s" else "right", no_wrap=look == "s")
            for heading, look in shown.values()
        ]
        cells = [[_written(row[column], look) for column, (_, look) in shown.items()] for row in rows]
        console.print(title, style="bold", highlight=False)
        show_table(heads, cells, console=console)
        console.print()
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _by_policy(shapes: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """One row for each shape, one column for each policy; the whole is in the file."""
    tables = {}
    for measure in ("rate", "rate_last_fifth") if shapes else ():
        rows: dict[str, dict[str, Any]] = {}
        for row in shapes:
            rows.setdefault(row["entropies"], {"entropies": row["entropies"]})[row["policy"]] = row[measure]
        tables[measure] = list(rows.values())
    return tables


def _written(value: Any, look: str) -> str:
    if value is None:
        return "–"
    if look.endswith("%"):
        return f"{100 * value:{look[:-1] or '.0'}f} %"
    return f"{value:{look}}"


if __name__ == "__main__":
    run(app)
