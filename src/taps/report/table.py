"""A table as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        title: Says what the numbers are and their unit.
        columns: Headings.
        rows: Cells; as many as headings.
        notes: Sentences below it.
        left: How many columns hold names rather than numbers.
        published: Rows that are other people's numbers, set in italics.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    left: int = 1
    published: frozenset[int] = frozenset()


def markdown(table: Table) -> str:
    """GitHub's tables.

    >>> print(markdown(Table("T", ("a", "b"), (("x", "1"),))))
    **T**
    <BLANKLINE>
    | a | b |
    |:--|--:|
    | x | 1 |
    <BLANKLINE>
    """
    align = [":--" if i < table.left else "--:" for i in range(len(table.columns))]
    lines = [f"**{table.title}**", "", _bar(table.columns), "|" + "|".join(align) + "|"]
    for index, row in enumerate(table.rows):
        shown = [f"*{cell}*" if cell and index in table.published else cell for cell in row]
        lines.append(_bar([cell.replace("|", "\\|") for cell in shown]))
    lines += ["", *(f"{note}  " for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def _bar(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "<": "$<$",
    ">": "$>$",
    "·": r"$\cdot$",
}


def tex(text: str) -> str:
    """Text with everything special to LaTeX escaped.

    >>> tex("5 % ± x_1")
    '5 \\\\% $\\\\pm$ x\\\\_1'
    """
    return "".join(LATEX.get(character, character) for character in text)


def latex(table: Table) -> str:
    """A floating table with booktabs' rules."""
    spec = "l" * table.left + "r" * (len(table.columns) - table.left)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(table.title)}}}",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
        " & ".join(map(tex, table.columns)) + r" \\",
        r"\midrule",
    ]
    for index, row in enumerate(table.rows):
        cells = [rf"\emph{{{tex(cell)}}}" if index in table.published else tex(cell) for cell in row]
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip {tex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def html_table(table: Table) -> str:
    """A table element with its caption, notes after it."""

    def cells(row: tuple[str, ...], tag: str) -> str:
        kinds = ["" if i < table.left else ' class="n"' for i in range(len(row))]
        return "".join(
            f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True)
        )

    body = "\n".join(
        f"<tr{' class=published' if i in table.published else ''}>{cells(row, 'td')}</tr>"
        for i, row in enumerate(table.rows)
    )
    notes = "".join(f"<p class=note>{html.escape(note)}</p>\n" for note in table.notes)
    return (
        f"<div class=scroll><table><caption>{html.escape(table.title)}</caption>\n<thead><tr>"
        f"{cells(table.columns, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n{notes}"
    )
