"""The report of an evaluation: Markdown, LaTeX, and one HTML file that needs no other."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taps.errors import SettingsError
from taps.evaluate.jobs import slug
from taps.evaluate.measures import MEASURES, Measure, find_measures
from taps.evaluate.results import Results, read_results
from taps.files import write_text
from taps.report.charts import against_labels, asked_share, over_stream, reliability_of_all, trade_off
from taps.report.details import closer_look, write_looks
from taps.report.document import charts, document
from taps.report.scores import score_table
from taps.report.svg import standalone
from taps.report.table import Table, html_table, latex, markdown
from taps.report.tables import corruption_table, detail_table, difference_table, settings_table

FORMATS = ("md", "tex", "html")
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
        formats: Of "md", "tex" and "html".
        measures: Names from `taps.evaluate.measures`, or "all".
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
    against = baseline or results.methods[0]
    pictures = draw(results, against) if plots else {}
    written = write_pictures(pictures, out) if "md" in formats else []
    makers: dict[str, Any] = {"md": as_markdown, "tex": as_latex, "html": as_html}
    for kind in formats:
        path = out / f"report.{kind}"
        write_text(path, makers[kind](results, tables(results, against, wanted), pictures))
        written.append(path)
    return written


def tables(results: Results, baseline: str, measures: Sequence[Measure]) -> list[Table]:
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
        score_table(results, MEASURES["top1"], baseline, linked=True),
        difference_table(results, baseline),
        detail_table(results, measures),
        corruption_table(results),
        settings_table(results),
    ]
    return [table for table in found if table.rows]


def draw(results: Results, baseline: str) -> Pictures:
    """Every picture that the results allow."""
    drawn: Pictures = {}
    for dataset in results.datasets:
        part = results.only(results.methods_of(dataset), [dataset])
        found = {
            "accuracy_over_stream": over_stream(part, dataset, baseline),
            "accuracy_against_labels": against_labels(part, dataset, baseline),
            "asked": asked_share(part, dataset),
            "accuracy_against_time": [trade_off(part, MEASURES["ms_p50"], title="Accuracy against time")],
            "reliability": reliability_of_all(part, [dataset]),
        }
        drawn[dataset] = {name: kept for name, parts in found.items() if (kept := [p for p in parts if p])}
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
    """The page, and those about each method on each data set that its cells link to."""
    write_looks(results, results.out)
    body = [f"<h1>{html.escape(heading(results))}</h1>"]
    body += [html_table(table, sortable=True) for table in made]
    body += [f"<p class=note>{html.escape(line)}</p>" for line in results.missing()]
    for dataset, found in pictures.items():
        body.append(f"<h2>{html.escape(dataset)}</h2>")
        body.append(charts(part for parts in found.values() if len(parts) == 1 for part in parts))
        body += [_many(name, parts) for name, parts in found.items() if len(parts) > 1]
        best = max(results.methods_of(dataset), key=lambda m: sum(r.top1 for r in results.of(dataset, m)))
        inside = "\n".join(part for part in closer_look(results, dataset, best) if part)
        body.append(
            f"<details><summary>{html.escape(best)} on {html.escape(dataset)}</summary>{inside}</details>"
        )
    return document(heading(results), body)


def _many(name: str, parts: Sequence[str]) -> str:
    return f"<h3>{name.replace('_', ' ').capitalize()}, by method</h3>{charts(parts, small=True)}"
