"""`taps simulate`: where the paper's two propositions hold and where they fail."""

from __future__ import annotations

import csv
import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from taps.errors import SettingsError

if TYPE_CHECKING:
    from taps.theory.study import Study

app = typer.Typer()

# table: (title, {column: (heading, how to write it)})
TABLES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "balance": (
        "Proposition 1: the buffer after it is full. lowest f: of the most even buffer of this size",
        {
            "classes": ("K", "d"),
            "buffer": ("L", "d"),
            "classes_drawn": ("classes", "s"),
            "losses": ("losses", "s"),
            "f_when_full": ("f when full", ".1f"),
            "f_lowest": ("lowest f", ".1f"),
            "share_reaching_lowest": ("reach it", "%"),
            "samples_median": ("after (median)", ".0f"),
            "samples_95": ("(95 %)", ".0f"),
            "share_reaching_2": ("reach f ≤ 2", "%"),
            "rises_per_1000": ("rises from f > 0 per 1,000", ".1f"),
            "rises_from_0_per_1000": ("from 0", ".1f"),
            "f_highest_after": ("highest f later", ".1f"),
            "class_excess_after": ("max n − L/K later", ".2f"),
            "bound_needs": ("labels before the proof's bound < 5 %", ",d"),
        },
    ),
    "datasets": (
        "Proposition 1 on the paper's sets: all classes equally likely, its buffer, labels for the given rate",
        {
            "dataset": ("set", "s"),
            "classes": ("K", "d"),
            "labelled": ("labels", ",d"),
            "buffer": ("L", "d"),
            "f_lowest": ("lowest f", ".1f"),
            "f_at_end": ("f at end", ".1f"),
            "share_reaching_lowest": ("reach lowest", "%"),
            "share_reaching_2": ("reach f ≤ 2", "%"),
        },
    ),
    "convergence": (
        "Proposition 2, normal entropies: switch at α (Algorithm 1) and at 1.5 α (the paper's appendix)",
        {
            "samples": ("N", ",d"),
            "printed_rate": ("R_N", ".2%"),
            "expected": ("first order", ".2%"),
            "printed_off_by_a_fifth": ("off by ≥ α/5", "%"),
            "printed_strict": ("time strict", "%"),
            "appendix_rate": ("1.5 α: R_N", ".2%"),
            "appendix_off_by_a_fifth": ("off by ≥ α/5", "%"),
            "appendix_strict": ("time strict", "%"),
        },
    ),
    "shapes": (
        "Proposition 2, other entropies: what is asked about",
        {
            "entropies": ("entropies", "s"),
            "policy": ("policy", "s"),
            "rate": ("asked", ".2%"),
            "low_95": ("95 % of", ".2%"),
            "high_95": ("streams", ".2%"),
            "rate_last_fifth": ("last fifth", ".2%"),
            "share_strict": ("time strict", "%"),
        },
    ),
    "warmup": (
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
    "first_question": (
        "The first sample that Algorithm 1 can ask about at all: (n−1)/√n > z",
        {
            "rate": ("α", ".1%"),
            "z": ("z", ".3f"),
            "first_sample": ("n", "d"),
            "z_high": ("z high", ".3f"),
            "first_strict": ("n", "d"),
        },
    ),
}


class What(str, Enum):
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
    from taps.theory import study as studies
    from taps.theory.figures import draw_figures, require_matplotlib

    if out is not None:
        _make_folder(out)
        if figures:
            require_matplotlib()
    run = {What.BALANCE: studies.study_balance, What.RATE: studies.study_rate, What.ALL: studies.study_all}[
        what
    ]
    study = run(streams, length, seed, rate)
    written = []
    if out is not None:
        written = _write(study, out)
        if figures:
            written += draw_figures(study, out)
    if as_json:
        print(json.dumps(_as_dict(study), indent=2, ensure_ascii=False))
        return
    _print_tables(study, written)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{out} cannot be written to ({error.strerror}); choose another --out.") from None


def _as_dict(study: Study) -> dict[str, Any]:
    return {"settings": study.settings, "tables": study.tables}


def _write(study: Study, out: Path) -> list[Path]:
    written = [out / "simulate.json"]
    written[0].write_text(json.dumps(_as_dict(study), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, rows in study.tables.items():
        written.append(out / f"{name}.csv")
        with written[-1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return written


def _print_tables(study: Study, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for name, rows in study.tables.items():
        title, columns = TABLES[name]
        shown = {column: look for column, look in columns.items() if column in rows[0]}
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for heading, look in shown.values():
            table.add_column(heading, justify="left" if look == "s" else "right")
        for row in rows:
            table.add_row(*(_written(row[column], look) for column, (_, look) in shown.items()))
        console.print(table)
        console.print()
    for path in written:
        console.print(f"wrote {path}", highlight=False)


def _written(value: Any, look: str) -> str:
    if value is None:
        return "–"
    if look.endswith("%"):
        return f"{100 * value:{look[:-1] or '.0'}f} %"
    return f"{value:{look}}"
