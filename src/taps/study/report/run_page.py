"""The page of `taps run`: counts, a table by class, questions, images to look at again."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from taps.errors import DataError, ImageError
from taps.files import write_text
from taps.streams.record import read_predictions
from taps.streams.sequence import Stream
from taps.study.report.charts import questions_of
from taps.study.report.document import Card, card, document, gallery, side_by_side, thumbnail
from taps.study.report.table import Table, html_table

PAGE = "report.html"
SHOWN = 24  # pictures in a gallery
Row = dict[str, str]


def write_page(folder: Path, stream: Stream, summary: dict[str, Any]) -> Path:
    """Write `report.html` into the folder of a run; `summary` comes from `summarise`."""
    rows = read_predictions(folder)
    unsure = sorted(rows, key=lambda row: float(row["probability"]))[:SHOWN]
    asked = [row for row in rows if row["asked"] == "1"]
    doubted = set(summary["learner"].get("head_look_again", []))
    again = [row for id, row in enumerate(rows) if id in doubted][:SHOWN]
    title = f"{summary['method']} on {stream.dataset.name}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        html_table(_counts(summary)),
        *(f"<p>{html.escape(note)}</p>" for note in summary["learner"].get("notes", [])),
        html_table(by_class(rows)),
        "<h2>When did it ask?</h2>",
        side_by_side([questions_of(rows)]),
        gallery(f"The last of {len(asked)} questions", _cards(asked[-SHOWN:], stream)),
        gallery("Answers to look at again", _cards(again, stream)),
        gallery("Least sure", _cards(unsure, stream)),
    ]
    write_text(folder / PAGE, document(title, parts))
    return folder / PAGE


def _counts(summary: dict[str, Any]) -> Table:
    cells = {
        "model": str(summary["model"]),
        "images": f"{summary['n']:,}",
        "could not be read": f"{summary['broken']:,}",
        summary["accuracy_of"]: "not known" if summary["top1"] is None else f"{summary['top1']:.1%}",
        **final_cell(summary),
        **({} if summary.get("delivered") is None else {"delivered": f"{summary['delivered']:.1%}"}),
        "asked": f"{summary['asked']:,} ({summary['rate']:.1%})",
        "answered": f"{summary['answered']:,}",
        "ms an image": f"{summary['ms_p50']:.0f}",
    }
    return Table("The run", tuple(cells), (tuple(cells.values()),))


def final_cell(summary: dict[str, Any]) -> dict[str, str]:
    """What is right in the end, where that is known."""
    final = summary.get("top1_final")
    return {} if final is None else {"in the end": f"{final:.1%}"}


def by_class(rows: Iterable[Row]) -> Table:
    """How many images were given each class, how sure, and how many were right where that is known."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["predicted"], []).append(row)
    made = []
    for name, own in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        known = [row for row in own if row["correct"] != ""]
        right = f"{sum(row['correct'] == '1' for row in known)} of {len(known)}" if known else ""
        sure = sum(float(row["probability"]) for row in own) / len(own)
        asked = sum(row["asked"] == "1" for row in own)
        made.append((name, f"{len(own):,}", f"{sure:.0%}", f"{asked:,}", right))
    columns = ("predicted class", "images", "mean probability", "asked", "right, where known")
    return Table("By class", columns, tuple(made))


def _cards(rows: Sequence[Row], stream: Stream) -> list[Card]:
    cards = []
    for row in rows:
        try:
            picture = thumbnail(stream.image(int(row["t"])))
        except (ImageError, DataError):
            picture = ""
        cards.append(card(picture, row, row["path"]))
    return cards
