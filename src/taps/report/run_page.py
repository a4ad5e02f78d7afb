"""One page about a run over a folder: counts, a table by class, questions, images to look at again."""

from __future__ import annotations

import csv
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from taps.errors import DataError, ImageError
from taps.files import write_text
from taps.report.demo import thumbnail
from taps.report.pages import STYLE
from taps.report.palette import BLUE, FAINT, RED
from taps.report.svg import Dots, Line, chart, on_chart
from taps.report.table import Table, html_table
from taps.stream.record import PREDICTIONS
from taps.stream.stream import Stream

PAGE = "report.html"
SHOWN = 24  # pictures in a gallery
MORE_STYLE = """
svg text { fill: #555; font-size: 12px } .grid { stroke: #ddd }
.legend span { margin-right: 18px }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 6px }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)); gap: 12px }
figure { margin: 0; font-size: 13px; overflow-wrap: anywhere } figure img { max-height: 96px; border: 0 }
"""
Row = dict[str, str]


def write_page(folder: Path, stream: Stream, summary: dict[str, Any]) -> Path:
    """Write `report.html` into the folder of a run.

    Args:
        folder: Of the run.
        stream: Its images, for the pictures.
        summary: What `summarise` made of it.
    """
    with (folder / PREDICTIONS).open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = list(csv.DictReader(file))
    unsure = sorted(rows, key=lambda row: float(row["probability"]))[:SHOWN]
    asked = [row for row in rows if row["asked"] == "1"]
    doubted = set(summary["learner"].get("head_look_again", []))
    seen = [row for row in rows if row["entropy"]]
    again = [row for id, row in enumerate(seen) if id in doubted][:SHOWN]
    parts = [
        f"<h1>{html.escape(str(summary['method']))} on {html.escape(folder.name)}</h1>",
        html_table(_counts(summary)),
        *(f"<p>{html.escape(note)}</p>" for note in summary["learner"].get("notes", [])),
        html_table(by_class(rows)),
        "<h2>When did it ask?</h2>",
        _entropies(rows),
        _gallery(f"The last of {len(asked)} questions", asked[-SHOWN:], stream),
        _gallery("Answers to look at again", again, stream),
        _gallery("Least sure", unsure, stream),
    ]
    title = html.escape(f"TAPS: {folder.name}")
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}{MORE_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )
    write_text(folder / PAGE, page)
    return folder / PAGE


def _counts(summary: dict[str, Any]) -> Table:
    accuracy = "not known" if summary["top1"] is None else f"{summary['top1']:.1%}"
    names = (
        "model",
        "images",
        "could not be read",
        summary["accuracy_of"],
        "asked",
        "answered",
        "ms an image",
    )
    cells = (
        str(summary["model"]),
        f"{summary['n']:,}",
        f"{summary['broken']:,}",
        accuracy,
        f"{summary['asked']:,} ({summary['rate']:.1%})",
        f"{summary['answered']:,}",
        f"{summary['ms_p50']:.0f}",
    )
    return Table("The run", names, (cells,))


def by_class(rows: Iterable[Row]) -> Table:
    """How many images were given each class, how sure, and how many were right where that is known."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["predicted"]:
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


def _entropies(rows: Sequence[Row]) -> str:
    points = [row for row in rows if row["entropy"]]
    scores = on_chart([float(row["score"]) for row in points])
    points = [row | {"score": str(score)} for row, score in zip(points, scores, strict=True)]
    asked = [row for row in points if row["asked"] == "1"]
    quiet = [row for row in points if row["asked"] != "1"]

    def dots(name: str, some: Sequence[Row], colour: str) -> Dots:
        return Dots(name, [float(row["t"]) for row in some], [float(row["score"]) for row in some], colour)

    line = Line(
        "threshold",
        [float(row["t"]) for row in points],
        [float(row["threshold"]) for row in points],
        BLUE,
    )
    marks: list[Line | Dots] = [dots("not asked", quiet, FAINT), dots("asked", asked, RED), line]
    return chart(marks, x_title="images seen", y_title="score")


def _gallery(title: str, rows: Sequence[Row], stream: Stream) -> str:
    if not rows:
        return ""
    figures = []
    for row in rows:
        try:
            picture = f'<img src="{thumbnail(stream.image(int(row["t"])))}" alt="">'
        except (ImageError, DataError):
            picture = ""
        answer = f" → <b>{html.escape(row['label'])}</b>" if row["label"] else ""
        figures.append(
            f"<figure>{picture}<figcaption>{html.escape(row['predicted'])} "
            f"{float(row['probability']):.0%}{answer}<br><small>{html.escape(row['path'])}</small>"
            "</figcaption></figure>"
        )
    return f"<h2>{html.escape(title)}</h2><div class=gallery>{''.join(figures)}</div>"
