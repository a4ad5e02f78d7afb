"""Tables and pictures of an evaluation: Markdown, LaTeX, and one HTML file that needs no other."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from taps.errors import SettingsError
from taps.evaluate.results import BASELINE, Results, read_results
from taps.files import write_text
from taps.report.table import Table, html_table, latex, markdown
from taps.report.tables import accuracy_table, detail_table, difference_table

FORMATS = ("md", "tex", "html")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222 }
body { margin: 2rem auto; max-width: 1100px; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: 14px }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums }
tr.published { font-style: italic; color: #666 }
.note { font-size: 13px; color: #555; margin: .2rem 0 } .scroll { overflow-x: auto }
img { max-width: 100%; height: auto; margin: .5rem 0; border: 1px solid #eee }
"""


def write_report(
    out: Path, *, baseline: str = BASELINE, formats: Sequence[str] = FORMATS, plots: bool = True
) -> list[Path]:
    """Make a report of what is finished in a folder.

    Args:
        out: Folder of an evaluation.
        baseline: The method others are compared with.
        formats: Of "md", "tex" and "html".
        plots: Whether pictures are drawn; without matplotlib there are tables alone.

    Returns:
        The files written.
    """
    unknown = sorted({*formats} - {*FORMATS})
    if unknown or not formats:
        raise SettingsError(
            f"There is no format {', '.join(unknown) or '(none given)'}; use {', '.join(FORMATS)}."
        )
    results = read_results(out, baseline=baseline)
    tables = [accuracy_table(results, baseline), difference_table(results, baseline), detail_table(results)]
    tables = [table for table in tables if table.rows]
    pictures: dict[str, list[Path]] = {}
    if plots and find_spec("matplotlib") is not None:
        from taps.report.plots import draw_all

        pictures = draw_all(results, out / "plots")
    written = [path for found in pictures.values() for path in found]
    makers: dict[str, Any] = {"md": as_markdown, "tex": as_latex, "html": as_html}
    for kind in formats:
        path = out / f"report.{kind}"
        write_text(path, makers[kind](results, tables, pictures))
        written.append(path)
    return written


def heading(results: Results) -> str:
    model = results.model
    weights = f" ({model['pretrained']})" if model["pretrained"] else ""
    return f"Results of {model['name']}{weights}"


def as_markdown(results: Results, tables: Sequence[Table], pictures: dict[str, list[Path]]) -> str:
    parts = [f"# {heading(results)}\n", *(markdown(table) for table in tables)]
    parts += [f"- {line}" for line in results.missing()]
    for dataset, found in pictures.items():
        links = "\n".join(f"![{path.stem}]({path.relative_to(results.out).as_posix()})" for path in found)
        parts.append(f"## {dataset}\n\n{links}\n")
    return "\n".join(parts)


def as_latex(results: Results, tables: Sequence[Table], pictures: dict[str, list[Path]]) -> str:
    lines = [
        f"% {heading(results)}; needs \\usepackage{{booktabs}}",
        *(f"% {line}" for line in results.missing()),
    ]
    return "\n".join([*lines, *(latex(table) for table in tables)])


def as_html(results: Results, tables: Sequence[Table], pictures: dict[str, list[Path]]) -> str:
    title = html.escape(heading(results))
    body = [f"<h1>{title}</h1>", *(html_table(table) for table in tables)]
    body += [f"<p class=note>{html.escape(line)}</p>" for line in results.missing()]
    for dataset, found in pictures.items():
        body.append(f"<h2>{html.escape(dataset)}</h2>")
        for path in found:
            data = base64.b64encode(path.read_bytes()).decode()
            body.append(f'<img alt="{path.stem.replace("_", " ")}" src="data:image/png;base64,{data}">')
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )
