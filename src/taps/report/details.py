"""A closer look at a method on a data set: classes, confusions, its most confident mistakes with images."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from taps.data import Dataset
from taps.errors import TapsError
from taps.evaluate.jobs import StreamSpec
from taps.evaluate.measures import MEASURES
from taps.evaluate.results import Result, Results
from taps.files import write_text
from taps.report.charts import over_stream_of, questions_of, reliability_of
from taps.report.document import charts, document
from taps.report.gallery import Card, gallery, thumbnail
from taps.report.rows import bars
from taps.report.scores import interval, number, values_of
from taps.report.table import Cell, Table, html_table
from taps.report.tables import settings_table
from taps.session.record import read_predictions

MISTAKES = 12
PAIRS = 15  # confusions listed
SQUARE = 24  # classes that a matrix is drawn of
BARS = 30
Row = dict[str, str]


def write_looks(results: Results, out: Path) -> None:
    """Write the page of every method on every data set, below the folder of the page that links to them."""
    for (dataset, method), address in results.pages.items():
        title = f"{method} on {dataset}"
        heading = f"<h1>{html.escape(title)}</h1>"
        page = out / address
        page.parent.mkdir(parents=True, exist_ok=True)
        write_text(page, document(title, [heading, *closer_look(results, dataset, method)]))


def closer_look(results: Results, dataset: str, method: str) -> list[str]:
    """The parts of a page about the runs of a method on a data set."""
    runs = results.of(dataset, method)
    rows = [row for result in runs for row in read_rows(result)]
    first = runs[0]
    asked = questions_of(read_rows(first), f"When it asked · seed {first.seed}") if first.rate else ""
    pictures = [over_stream_of(runs), reliability_of(runs, "Reliability"), asked, _buffer(first)]
    return [
        html_table(by_seed(runs)),
        html_table(settings_table(results.only([method], [dataset]))),
        charts(picture for picture in pictures if picture),
        gallery("Most confident mistakes", _mistakes(rows, runs[0])),
        html_table(class_table(rows), sortable=True),
        html_table(confusion_table(rows)),
        confusion_matrix(rows),
    ]


def read_rows(result: Result) -> list[Row]:
    """The predictions of images that are of some class, as many as every run has."""
    read = read_predictions(result.folder)
    rows = [row | {"path": row.get("path") or row.get("key", "")} for row in read]
    kept = set(result.run.keys)
    return [row for row in rows[: result.whole] if row["label"] and row["path"] in kept]


def by_seed(runs: Sequence[Result]) -> Table:
    """Every measure of every run, and its mean."""
    columns = ("measure", *(f"seed {result.seed}" for result in runs), *(["mean"] if len(runs) > 1 else []))
    rows = []
    for measure in MEASURES.values():
        values = values_of(runs, measure)
        if not values or measure.of:
            continue
        cells = [number(measure, value) for value in values]
        mean = [number(measure, *interval(values))] if len(runs) > 1 else []
        rows.append((f"{measure.heading}", *cells, *mean))
    return Table("Measures of each run", columns, tuple(rows))


def class_table(rows: Sequence[Row]) -> Table:
    """How many images of each class were right, and what the others were taken for; the worst first."""
    seen = Counter(row["label"] for row in rows)
    right = Counter(row["label"] for row in rows if row["correct"] == "1")
    taken: dict[str, Counter[str]] = {name: Counter() for name in seen}
    for row in rows:
        if row["correct"] == "0":
            taken[row["label"]][row["predicted"]] += 1
    made = []
    for name in sorted(seen, key=lambda name: (right[name] / seen[name], name)):
        share = 100 * right[name] / seen[name]
        other = [f"{wrong} ({count})" for wrong, count in taken[name].most_common(2)]
        count = Cell(f"{seen[name]:,}", value=seen[name])
        made.append((name, ", ".join(other), count, Cell(f"{share:.1f}", value=share)))
    return Table(
        "By class, over all seeds",
        ("class", "most often taken for", "images", "right %"),
        tuple(made),
        left=2,
    )


def confusion_table(rows: Sequence[Row]) -> Table:
    """The most frequent confusions."""
    seen = Counter(row["label"] for row in rows)
    wrong = Counter((row["label"], row["predicted"]) for row in rows if row["correct"] == "0")
    made = [
        (label, predicted, Cell(f"{count:,}", value=count), f"{100 * count / seen[label]:.0f}")
        for (label, predicted), count in wrong.most_common(PAIRS)
    ]
    return Table(
        "Most frequent confusions", ("class", "taken for", "times", "% of the class"), tuple(made), left=2
    )


def confusion_matrix(rows: Sequence[Row]) -> str:
    """Classes by predicted classes, each cell shaded by its share of the row; nothing for many classes."""
    names = sorted({row["label"] for row in rows} | {row["predicted"] for row in rows})
    if not 1 < len(names) <= SQUARE:
        return ""
    counts = Counter((row["label"], row["predicted"]) for row in rows)
    seen = Counter(row["label"] for row in rows)
    head = "".join(f'<th title="{html.escape(name)}">{i}</th>' for i, name in enumerate(names, 1))
    body = []
    for i, name in enumerate(names, 1):
        shares = [(other, counts[name, other], counts[name, other] / max(seen[name], 1)) for other in names]
        cells = [
            f'<td class={"on" if name == other else "off"} style="--p:{share:.2f}">{count or ""}</td>'
            for other, count, share in shares
        ]
        body.append(f"<tr><th>{html.escape(name)} · {i}</th>{''.join(cells)}</tr>")
    caption = "Confusion: a row a class, a column what it was taken for"
    return (
        f"<div class=scroll tabindex=0><table class=confusion><caption>{caption}</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _mistakes(rows: Sequence[Row], result: Result) -> list[Card]:
    """The wrong predictions of highest probability, an image once, with pictures where the data is there."""
    wrong = sorted((row for row in rows if row["correct"] == "0"), key=lambda row: -float(row["probability"]))
    first = {row["path"]: row for row in reversed(wrong)}
    worst = sorted(first.values(), key=lambda row: -float(row["probability"]))[:MISTAKES]
    stream = StreamSpec(**result.spec["stream"])
    return [
        (
            picture_of(stream, row["path"]),
            f"<span class=wrong>{html.escape(row['predicted'])}</span> {float(row['probability']):.0%}<br>"
            f"<b>{html.escape(row['label'])}</b><br><small>{html.escape(row['path'])}</small>",
        )
        for row in worst
    ]


@lru_cache(maxsize=4096)
def picture_of(stream: StreamSpec, path: str) -> str:
    """An image as a small picture; "" where the data set is not there any more."""
    try:
        dataset, places = _images(stream)
        return thumbnail(dataset.image(places[path]))
    except (TapsError, OSError, KeyError):
        return ""


@lru_cache(maxsize=2)
def _images(stream: StreamSpec) -> tuple[Dataset, dict[str, int]]:
    dataset = stream.load()
    return dataset, {sample.key: index for index, sample in enumerate(dataset.samples)}


def _buffer(result: Result) -> str:
    """How many labelled images of each class the memory holds at the end."""
    counts = Counter(result.row["buffer_classes"]).most_common(BARS)
    return bars(counts, title=f"Labelled images kept · seed {result.seed}") if counts else ""
