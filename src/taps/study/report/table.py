"""A table as Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from taps.files import csv_line

BEST, SECOND = 1, 2
WIDE = 8  # columns that fit into a page of a paper
LONG = 60  # letters: a cell of more is broken into lines


Row = tuple[str, ...]


class Cell(str):
    """Text in a table that stands for a number. Plain strings are cells too, without one.

    Attributes:
        value: The number, in the unit of the text: columns are sorted by it, and a CSV holds it.
        half: Half-width of its interval.
        place: `BEST` or `SECOND` of its column, or 0.
        link: Address of what it was made from.
    """

    value: float | None
    half: float | None
    place: int
    link: str

    def __new__(
        cls, text: str, *, value: float | None, half: float | None = None, place: int = 0, link: str = ""
    ) -> Cell:
        made = super().__new__(cls, text)
        made.value, made.half, made.place, made.link = value, half, place, link
        return made

    def placed(self, place: int) -> Cell:
        """The same, marked as the best or the second of its column."""
        place = place if place <= SECOND else 0
        return Cell(self, value=self.value, half=self.half, place=place, link=self.link)


def _set(cell: str, plain: Callable[[str], str], marks: Sequence[str]) -> str:
    """A cell's text with the mark of its place around the number; the interval after it has none."""
    place = cell.place if isinstance(cell, Cell) else 0
    number, plus, half = cell.partition(" ± ")
    marked = marks[place].format(plain(number)) if place else plain(number)
    return marked + plain(plus + half)


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        title: Says what the numbers are and their unit.
        columns: Headings.
        rows: As many cells as headings; those that stand for numbers are `Cell`.
        notes: Sentences below it.
        left: How many columns hold names rather than numbers.
        published: Rows that are other people's numbers, set in italics.
    """

    title: str
    columns: Row
    rows: tuple[Row, ...]
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
        shown = [
            _set(cell, lambda text: text.replace("|", "\\|"), ("", "**{}**", "<u>{}</u>")) for cell in row
        ]
        lines.append(_bar([f"*{cell}*" if cell and index in table.published else cell for cell in shown]))
    lines += ["", *(f"{note}  " for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def _bar(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "−": "$-$",
    "<": "$<$",
    ">": "$>$",
}


def tex(text: str) -> str:
    """Text with everything special to LaTeX escaped.

    >>> tex("5 % ± x_1, -3.2 of pacs-1")
    '5 \\\\% $\\\\pm$ x\\\\_1, $-$3.2 of pacs-1'
    """
    escaped = "".join(LATEX.get(character, character) for character in text)
    return re.sub(r"(?<![\w$])-(?=\d)", "$-$", escaped)  # a minus, not a hyphen


def latex(table: Table) -> str:
    """A floating table with booktabs' rules, best in bold, second underlined; a wide one spans the page."""
    spec = "l" * table.left + "r" * (len(table.columns) - table.left)
    wide = len(table.columns) > WIDE
    place = "table*" if wide else "table"
    lines = [
        rf"\begin{{{place}}}",
        r"\centering",
        rf"\caption{{{tex(table.title)}}}",
        *([r"\resizebox{\textwidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
        " & ".join(map(tex, table.columns)) + r" \\",
        r"\midrule",
    ]
    for index, row in enumerate(table.rows):
        cells = [_set(cell, tex, ("", r"\textbf{{{}}}", r"\underline{{{}}}")) for cell in row]
        cells = [rf"\emph{{{cell}}}" if index in table.published else cell for cell in cells]
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if wide else "")]
    lines += [rf"\par\smallskip\footnotesize {tex(note)}" for note in table.notes]
    return "\n".join([*lines, rf"\end{{{place}}}"]) + "\n"


def html_table(table: Table, *, sortable: bool = False) -> str:
    """A table element with its caption, notes after it; `sortable` by a click on a heading."""

    def cells(row: Row, tag: str) -> str:
        return "".join(_html_cell(cell, tag, number=i >= table.left) for i, cell in enumerate(row))

    body = "\n".join(
        f"<tr{' class=published' if i in table.published else ''}>{cells(row, 'td')}</tr>"
        for i, row in enumerate(table.rows)
    )
    notes = "".join(f"<p class=note>{html.escape(note)}</p>\n" for note in table.notes)
    kind = " class=sortable" if sortable else ""
    caption, head = html.escape(table.title), cells(table.columns, "th")
    return (
        f"<div class=scroll tabindex=0><table{kind}><caption>{caption}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n{notes}"
    )


def _html_cell(cell: str, tag: str, *, number: bool) -> str:
    text = _set(cell, html.escape, ("", "<b>{}</b>", "<u>{}</u>"))
    sorted_by = ""
    if isinstance(cell, Cell):
        text = f'<a href="{html.escape(cell.link)}">{text}</a>' if cell.link else text
        sorted_by = "" if cell.value is None else f' data-value="{cell.value:.9g}"'
    kind = ' class="n"' if number else ' class="long"' if len(cell) > LONG else ""
    return f"<{tag}{kind}{sorted_by}>{text}</{tag}>"


def csv_table(table: Table) -> str:
    """The numbers behind the cells, and half-widths of intervals in columns of their own."""
    columns = []
    for head, *cells in zip(table.columns, *table.rows, strict=True):
        columns.append([head, *(_number(cell, "value") or str(cell) for cell in cells)])
        halves = [_number(cell, "half") for cell in cells]
        if any(halves):
            columns.append([f"{head} ±", *halves])
    return "".join(map(csv_line, zip(*columns, strict=True)))


def _number(cell: str, name: str) -> str:
    number = getattr(cell, name, None)
    return "" if number is None else f"{number:.9g}"
