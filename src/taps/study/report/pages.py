"""The report of an evaluation as Markdown, LaTeX and HTML, and a page for each method on each data set."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from taps.data import Dataset
from taps.disk import claim
from taps.errors import SettingsError, TapsError
from taps.files import write_text
from taps.streams.record import read_predictions
from taps.study.evaluate.evaluate import is_evaluation
from taps.study.evaluate.jobs import StreamSpec, slug
from taps.study.evaluate.measures import MEASURES, Measure, find_measures
from taps.study.evaluate.results import Result, Results, read_results
from taps.study.report import charts, tables
from taps.study.report.document import Card, card, document, gallery, side_by_side, thumbnail
from taps.study.report.svg import standalone
from taps.study.report.table import Cell, Table, html_table, latex, markdown

FORMATS = ("md", "tex", "html")
MISTAKES = 12
PAIRS = 15  # confusions listed
SQUARE = 24  # classes that a matrix is drawn of
BARS = 30
Row = dict[str, str]
Pictures = dict[str, dict[str, list[str]]]
"""Data set → name of a picture → its parts."""


def write_report(
    out: Path,
    *,
    baseline: str | None = None,
    formats: Sequence[str] = FORMATS,
    measures: Sequence[str] = ("all",),
    plots: bool = True,
) -> list[Path]:
    """Make a report of what is finished in a folder.

    Args:
        out: Folder of an evaluation.
        baseline: The method others are compared with; zero-shot, or else the first, unless given.
        formats: Some of `FORMATS`.
        measures: Names from `taps.study.evaluate.measures`, or "all".
        plots: Whether pictures are drawn.

    Returns:
        The files written.
    """
    unknown = sorted({*formats} - {*FORMATS})
    if unknown or not formats:
        raise SettingsError(
            f"Unknown format {', '.join(unknown) or '(none given)'}; use {', '.join(FORMATS)}."
        )
    wanted = find_measures(measures)
    results = read_results(out, baseline=baseline)
    claim(out, is_evaluation)
    against = baseline or results.methods[0]
    pictures = draw(results, against) if plots else {}
    written = write_pictures(pictures, out) if "md" in formats else []
    made = all_tables(results, against, wanted)
    makers = {"md": as_markdown, "tex": as_latex, "html": as_html}
    for kind in formats:
        path = out / f"report.{kind}"
        write_text(path, makers[kind](results, made, pictures))
        written.append(path)
    if "html" in formats:
        write_details(results, out)
    return written


def all_tables(results: Results, baseline: str, measures: Sequence[Measure]) -> list[Table]:
    """All tables; each once for every kind of class texts, where there are several."""
    parts = results.by_texts()
    if len(parts) < 2:
        return tables_of(results, baseline, measures)
    return [
        replace(table, title=f"{table.title}; {block}")
        for block, part in parts.items()
        for table in tables_of(part, baseline if baseline in part.methods else part.methods[0], measures)
    ]


def tables_of(results: Results, baseline: str, measures: Sequence[Measure]) -> list[Table]:
    found = [
        tables.score_table(results, MEASURES["top1"], baseline, linked=True),
        tables.difference_table(results, baseline),
        tables.detail_table(results, measures),
        tables.settings_table(results),
    ]
    return [table for table in found if table.rows]


def draw(results: Results, baseline: str) -> Pictures:
    """Every picture that the results allow."""
    drawn: Pictures = {}
    for dataset in results.datasets:
        part = results.only(results.methods_of(dataset), [dataset])
        time = charts.trade_off(part, MEASURES["ms_p50"], title="Accuracy against time")
        found = {
            "accuracy_over_stream": charts.over_stream(part, dataset, baseline),
            "accuracy_against_labels": charts.against_labels(part, dataset, baseline),
            "asked": charts.asked_share(part, dataset),
            "accuracy_against_time": [time] if time else [],
            "reliability": charts.reliability_of_all(part, [dataset]),
        }
        drawn[dataset] = {name: parts for name, parts in found.items() if parts}
    return drawn


def write_pictures(pictures: Pictures, out: Path) -> list[Path]:
    """The pictures as files: plots/<data set>/<name>.svg."""
    written = []
    for dataset, found in pictures.items():
        for name, parts in found.items():
            path = out / "plots" / slug(dataset) / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, standalone(parts))
            written.append(path)
    return written


def heading(results: Results) -> str:
    model = results.model
    weights = f" ({model['pretrained']})" if model["pretrained"] else ""
    return f"Results of {model['name']}{weights}"


def as_markdown(results: Results, made: Sequence[Table], pictures: Pictures) -> str:
    parts = [f"# {heading(results)}\n", *(markdown(table) for table in made)]
    parts += [f"- {line}" for line in results.missing()]
    for dataset, found in pictures.items():
        links = "\n".join(f"![{name.replace('_', ' ')}](plots/{slug(dataset)}/{name}.svg)" for name in found)
        parts.append(f"## {dataset}\n\n{links}\n")
    return "\n".join(parts)


def as_latex(results: Results, made: Sequence[Table], pictures: Pictures) -> str:
    lines = [
        f"% {heading(results)}; needs \\usepackage{{booktabs}}, and graphicx for wide tables",
        *(f"% {line}" for line in results.missing()),
    ]
    return "\n".join([*lines, *(latex(table) for table in made)])


def as_html(results: Results, made: Sequence[Table], pictures: Pictures) -> str:
    body = [f"<h1>{html.escape(heading(results))}</h1>"]
    body += [html_table(table, sortable=True) for table in made]
    body += [f"<p class=note>{html.escape(line)}</p>" for line in results.missing()]
    for dataset, found in pictures.items():
        body.append(f"<h2>{html.escape(dataset)}</h2>")
        body.append(side_by_side(part for parts in found.values() if len(parts) == 1 for part in parts))
        for name, parts in found.items():
            if len(parts) > 1:
                title = f"<h3>{name.replace('_', ' ').capitalize()}, by method</h3>"
                body.append(title + side_by_side(parts, small=True))
        best = max(results.methods_of(dataset), key=lambda m: sum(r.top1 for r in results.of(dataset, m)))
        inside = "\n".join(part for part in details(results, dataset, best) if part)
        body.append(
            f"<details><summary>{html.escape(best)} on {html.escape(dataset)}</summary>{inside}</details>"
        )
    return document(heading(results), body)


def write_details(results: Results, out: Path) -> None:
    """Write the page of every method on every data set, below the folder of the page that links to them."""
    for (dataset, method), address in results.pages.items():
        title = f"{method} on {dataset}"
        heading = f"<h1>{html.escape(title)}</h1>"
        page = out / address
        page.parent.mkdir(parents=True, exist_ok=True)
        write_text(page, document(title, [heading, *details(results, dataset, method)]))


def details(results: Results, dataset: str, method: str) -> list[str]:
    """The parts of a page about the runs of a method on a data set."""
    runs = results.of(dataset, method)
    rows = [row for result in runs for row in read_rows(result)]
    first = runs[0]
    asked = charts.questions_of(read_rows(first), f"When it asked · seed {first.seed}") if first.rate else ""
    kept = Counter(first.row["buffer_classes"]).most_common(BARS)
    buffer = charts.bars(kept, title=f"Labelled images kept · seed {first.seed}") if kept else ""
    pictures = [charts.over_stream_of(runs), charts.reliability_of(runs, "Reliability"), asked, buffer]
    return [
        html_table(by_seed(runs)),
        html_table(tables.settings_table(results.only([method], [dataset]))),
        side_by_side(pictures),
        gallery("Most confident mistakes", _mistakes(rows, first)),
        html_table(class_table(rows), sortable=True),
        html_table(confusion_table(rows)),
        confusion_matrix(rows),
    ]


def read_rows(result: Result) -> list[Row]:
    """The predictions of images that are of some class, as many as every run has."""
    read = read_predictions(result.folder)
    rows = [row | {"path": row.get("path") or row.get("key", "")} for row in read]
    kept = set(result.run.paths)
    return [row for row in rows[: result.whole] if row["truth"] and row["path"] in kept]


def by_seed(runs: Sequence[Result]) -> Table:
    """Every measure of every run, and its mean."""
    columns = ("measure", *(f"seed {result.seed}" for result in runs), *(["mean"] if len(runs) > 1 else []))
    rows = []
    for measure in MEASURES.values():
        values = tables.values_of(runs, measure)
        if not values or measure.of:
            continue
        cells = [tables.number(measure, value) for value in values]
        mean = [tables.number(measure, *tables.interval(values))] if len(runs) > 1 else []
        rows.append((measure.heading, *cells, *mean))
    return Table("Measures of each run", columns, tuple(rows))


def class_table(rows: Sequence[Row]) -> Table:
    """How many images of each class were right, and what the others were taken for; the worst first."""
    seen = Counter(row["truth"] for row in rows)
    right = Counter(row["truth"] for row in rows if row["correct"] == "1")
    taken: dict[str, Counter[str]] = {name: Counter() for name in seen}
    for row in rows:
        if row["correct"] == "0":
            taken[row["truth"]][row["predicted"]] += 1
    made = []
    for name in sorted(seen, key=lambda name: (right[name] / seen[name], name)):
        share = 100 * right[name] / seen[name]
        other = [f"{wrong} ({count})" for wrong, count in taken[name].most_common(2)]
        count = Cell(f"{seen[name]:,}", value=seen[name])
        made.append((name, ", ".join(other), count, Cell(f"{share:.1f}", value=share)))
    columns = ("class", "most often taken for", "images", "right %")
    return Table("By class, over all seeds", columns, tuple(made), left=2)


def confusion_table(rows: Sequence[Row]) -> Table:
    """The most frequent confusions."""
    seen = Counter(row["truth"] for row in rows)
    wrong = Counter((row["truth"], row["predicted"]) for row in rows if row["correct"] == "0")
    made = [
        (label, predicted, Cell(f"{count:,}", value=count), f"{100 * count / seen[label]:.0f}")
        for (label, predicted), count in wrong.most_common(PAIRS)
    ]
    columns = ("class", "taken for", "times", "% of the class")
    return Table("Most frequent confusions", columns, tuple(made), left=2)


def confusion_matrix(rows: Sequence[Row]) -> str:
    """Classes by predicted classes, each cell shaded by its share of the row; nothing for many classes."""
    names = sorted({row["truth"] for row in rows} | {row["predicted"] for row in rows})
    if not 1 < len(names) <= SQUARE:
        return ""
    counts = Counter((row["truth"], row["predicted"]) for row in rows)
    seen = Counter(row["truth"] for row in rows)
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
    """The wrong predictions of highest probability, each image once, with its picture where it is known."""
    wrong = sorted((row for row in rows if row["correct"] == "0"), key=lambda row: -float(row["probability"]))
    first = {row["path"]: row for row in reversed(wrong)}
    worst = sorted(first.values(), key=lambda row: -float(row["probability"]))[:MISTAKES]
    stream = StreamSpec(**result.spec["stream"])
    return [card(picture_of(stream, row["path"]), row, row["path"]) for row in worst]


@lru_cache(maxsize=4096)
def picture_of(stream: StreamSpec, path: str) -> str:
    """An image as a small picture; "" where the data set is gone."""
    try:
        dataset, places = _images(stream)
        return thumbnail(dataset.image(places[path]))
    except (TapsError, OSError, KeyError):
        return ""


@lru_cache(maxsize=2)
def _images(stream: StreamSpec) -> tuple[Dataset, dict[str, int]]:
    dataset = stream.load()
    return dataset, {sample.path: index for index, sample in enumerate(dataset.samples)}
