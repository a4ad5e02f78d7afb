"""Tables say what they show; the HTML needs no other file; the paper stands beside its own model only."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps.errors import SettingsError
from taps.evaluate.results import read_results
from taps.files import write_json
from taps.report.pages import write_report
from taps.report.published import is_papers_model, published, published_accuracy
from taps.report.table import Table, html_table, latex, markdown
from taps.report.tables import accuracy_table, detail_table, difference_table
from tests.made_up import made_up_folder


def test_accuracies_are_means_with_t_intervals(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path))
    table = accuracy_table(results)
    row = next(row for row in table.rows if row[0] == "taps")
    values = 100 * np.array([result.top1 for result in results.of("pets", "taps")])
    half = 4.30265 * values.std(ddof=1) / np.sqrt(3)
    assert row[1] == f"{values.mean():.2f} ± {half:.2f}"
    base = 100 * np.array([result.top1 for result in results.of("pets", "zero_shot")])
    assert row[2] == f"{(values - base).mean():+.2f}"
    assert table.columns == ("method", "pets", "to zero_shot", "asked %")


def test_means_stand_only_where_every_set_is_there(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), datasets=("pets", "dtd"))
    made_up_folder(tmp_path, methods=("tpt",), datasets=("pets",))
    table = accuracy_table(read_results(tmp_path))
    rows = {row[0]: row for row in table.rows}
    mean = table.columns.index("mean")
    assert rows["tpt"][mean] == ""
    assert rows["tpt"][table.columns.index("dtd")] == "–"
    cells = [float(rows["taps"][table.columns.index(d)].split()[0]) for d in ("pets", "dtd")]
    assert float(rows["taps"][mean]) == pytest.approx(sum(cells) / 2, abs=0.011)


def test_the_paper_stands_beside_its_own_model_and_sets_only(tmp_path: Path) -> None:
    ours = made_up_folder(tmp_path / "b16", datasets=("oxford_pets",), model="ViT-B-16")
    rows = {row[0]: row for row in accuracy_table(read_results(ours)).rows}
    assert rows["taps (paper)"][1] == "90.68"
    assert rows["zero_shot (paper)"][1] == "88.25"
    assert "view_ensemble (paper)" not in rows
    pocket = made_up_folder(tmp_path / "pocket", datasets=("oxford_pets",), model="pocket")
    assert not any("paper" in row[0] for row in accuracy_table(read_results(pocket)).rows)
    mine = made_up_folder(tmp_path / "mine", datasets=("my_photos",), model="ViT-B-16")
    assert not any("paper" in row[0] for row in accuracy_table(read_results(mine)).rows)


def test_published_numbers_and_their_averages() -> None:
    assert published_accuracy("source", "caltech101") == published_accuracy("maple", "caltech101") == 93.53
    assert published_accuracy("tpt_skip", "dtd") == 47.8
    assert published_accuracy("proda", "sun397") is None
    assert published_accuracy("taps", "imagenet_a") == 59.31
    assert is_papers_model("ViT-B-16", None)
    assert not is_papers_model("ViT-B-16", "laion2b")
    wrong = set()
    for name, table in published()["tables"].items():
        for method, average in table["printed_average"].items():
            known = [value for value in table["rows"][method] if value is not None]
            if abs(sum(known) / len(known) - average) > 0.03:
                wrong.add((name, method))
    assert wrong == {("table2", "proda"), ("table3", "tpt"), ("table3", "cocoop+tpt")}
    assert {method for _, method in wrong} <= published()["notes"].keys()


def test_notes_say_what_a_number_rests_on(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, n=60))
    assert any("60" in note and "Seeds: 1, 2, 3" in note for note in accuracy_table(results).notes)
    assert any("never filled on pets" in note for note in detail_table(results).notes)
    full = read_results(made_up_folder(tmp_path / "full", full=True))
    assert not any("never filled" in note for note in detail_table(full).notes)


def test_difference_table_has_everyone_but_the_baseline(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path), baseline="tpt")
    assert [row[1] for row in difference_table(results, "tpt").rows] == ["zero_shot", "view_ensemble", "taps"]


class Seen(HTMLParser):
    """Tags opened and closed, and where things are loaded from."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "link"):
            self.open.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_html_needs_no_other_file(tmp_path: Path) -> None:
    written = write_report(made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2)))
    page = Seen()
    page.feed((tmp_path / "report.html").read_text())
    assert page.open == []
    assert len(page.sources) == 7
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert {path.name for path in written} >= {"report.md", "report.tex", "report.html"}
    for link in re.findall(r"!\[.*?\]\((.*?)\)", (tmp_path / "report.md").read_text()):
        assert (tmp_path / link).is_file()


def test_a_partial_folder_gives_a_report(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2))
    (tmp_path / "runs/pets/taps/2/row.json").unlink()
    unfinished = {"dataset": "pets", "method": "taps", "seed": 2, "why": "time"}
    write_json(tmp_path / "unfinished.json", {"runs": [unfinished]})
    write_report(tmp_path, plots=False)
    text = (tmp_path / "report.md").read_text()
    assert "Unfinished: taps on pets, seed 2: time." in text


def test_without_matplotlib_there_are_tables_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1,))
    assert write_report(tmp_path, formats=["md"]) == [tmp_path / "report.md"]


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="pdf"):
        write_report(tmp_path, formats=["pdf"])


def test_cells_are_escaped_in_every_format() -> None:
    table = Table(
        "5 % & more",
        ("a_b", "n"),
        (("x|y <b>", "1 ± 2"), ("p#", "3")),
        ("50 % of {it}",),
        published=frozenset({1}),
    )
    assert "x\\|y <b>" in markdown(table)
    assert "| *p#* | *3* |" in markdown(table)
    text = latex(table)
    assert r"a\_b & n \\" in text
    assert r"x|y $<$b$>$ & 1 $\pm$ 2 \\" in text
    assert r"50 \% of \{it\}" in text
    assert text.count(r"\begin") == text.count(r"\end")
    assert "<td>x|y &lt;b&gt;</td>" in html_table(table)
