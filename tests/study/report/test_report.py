"""Tables say what they show; the HTML needs no other file; the paper stands beside its own model only."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from taps.cli.eval import app
from taps.errors import SettingsError
from taps.files import write_json
from taps.streams.record import COLUMNS
from taps.study.evaluate.measures import MEASURES
from taps.study.evaluate.results import read_results
from taps.study.report.pages import write_report
from taps.study.report.published import is_papers_model, published, published_accuracy
from taps.study.report.table import BEST, SECOND, Cell, Table, csv_table, html_table, latex, markdown
from taps.study.report.tables import detail_table, difference_table, score_table, settings_table
from tests.made_up import made_up_folder


def test_accuracies_are_means_with_t_intervals(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path))
    table = score_table(results)
    row = next(row for row in table.rows if row[0] == "taps")
    values = 100 * np.array([result.top1 for result in results.of("pets", "taps")])
    half = 4.30265 * values.std(ddof=1) / np.sqrt(3)
    assert row[1] == f"{values.mean():.2f} ± {half:.2f}"
    base = 100 * np.array([result.top1 for result in results.of("pets", "zero_shot")])
    assert row[2] == f"{(values - base).mean():+.2f}"
    assert table.columns == ("method", "pets", "to zero_shot", "asked %")


def test_questions_about_images_of_no_class_are_questions(tmp_path: Path) -> None:
    for path in made_up_folder(tmp_path, n=100).glob("runs/*/*/*/predictions.csv"):
        header, *rows = (line.split(",") for line in path.read_text().splitlines())
        for row in rows[::4]:
            row[header.index("outside")] = "1"
            for name in ("truth", "correct", "top5", "of_truth"):
                row[header.index(name)] = ""
        path.write_text("".join(f"{','.join(row)}\n" for row in (header, *rows)))
    results = read_results(tmp_path)
    taps = results.of("pets", "taps")
    lines = [(one.folder / "predictions.csv").read_text().splitlines()[1:] for one in taps]
    asked = [sum(line.split(",")[COLUMNS.index("asked")] == "1" for line in one) for one in lines]
    assert [round(100 * one.rate) for one in taps] == asked
    assert next(row for row in score_table(results).rows if row[0] == "taps")[-1] == f"{np.mean(asked):.1f}"
    detail = detail_table(results)
    row = dict(zip(detail.columns, next(row for row in detail.rows if row[1] == "taps"), strict=True))
    assert (row["asked"], row["asked %"]) == (f"{np.mean(asked):.0f}", f"{np.mean(asked):.2f}")
    [note] = score_table(results).notes
    assert note == "Images a run: 100, of which 25 are of no class. Seeds: 1, 2, 3."
    assert len(taps[0].run) == 75


def test_means_stand_only_where_every_set_is_there(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), datasets=("pets", "dtd"))
    made_up_folder(tmp_path, methods=("tpt",), datasets=("pets",))
    table = score_table(read_results(tmp_path))
    rows = {row[0]: row for row in table.rows}
    mean = table.columns.index("mean")
    assert rows["tpt"][mean] == "–"
    assert rows["tpt"][table.columns.index("dtd")] == "–"
    cells = [float(rows["taps"][table.columns.index(d)].split()[0]) for d in ("pets", "dtd")]
    assert float(rows["taps"][mean]) == pytest.approx(sum(cells) / 2, abs=0.011)


def test_the_paper_stands_beside_its_own_model_and_sets_only(tmp_path: Path) -> None:
    ours = made_up_folder(tmp_path / "b16", datasets=("oxford_pets",), model="ViT-B-16")
    rows = {row[0]: row for row in score_table(read_results(ours)).rows}
    assert rows["taps (paper)"][1] == "90.68"
    assert rows["zero_shot (paper)"][1] == "88.25"
    assert "view_ensemble (paper)" not in rows
    pocket = made_up_folder(tmp_path / "pocket", datasets=("oxford_pets",), model="pocket")
    assert not any("paper" in row[0] for row in score_table(read_results(pocket)).rows)
    mine = made_up_folder(tmp_path / "mine", datasets=("my_photos",), model="ViT-B-16")
    assert not any("paper" in row[0] for row in score_table(read_results(mine)).rows)


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
    assert any("60" in note and "Seeds: 1, 2, 3" in note for note in score_table(results).notes)
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
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_html_needs_no_other_file(tmp_path: Path) -> None:
    written = write_report(made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2)))
    page = Seen()
    page.feed((tmp_path / "report.html").read_text())
    assert page.open == []
    assert page.sources
    assert {source for source in page.sources if not source.startswith("data:image")} == {
        f"runs/pets/{method}/index.html" for method in ("zero_shot", "taps")
    }
    assert all((tmp_path / source).is_file() for source in page.sources if not source.startswith("data:"))
    assert {path.name for path in written} >= {"report.md", "report.tex", "report.html"}
    links = re.findall(r"!\[.*?\]\((.*?)\)", (tmp_path / "report.md").read_text())
    assert len(links) == 5
    assert all((tmp_path / link).is_file() for link in links)


def test_two_seeds_have_no_interval_and_a_sentence(tmp_path: Path) -> None:
    two = read_results(made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2)))
    assert score_table(two).title == "Top-1 accuracy, per cent: mean over seeds"
    for table in (score_table(two), difference_table(two)):
        assert not any("±" in cell for row in table.rows for cell in row)
    assert any("fewer than three seeds" in note for note in score_table(two).notes)
    three = read_results(made_up_folder(tmp_path / "three"))
    assert not any("fewer than three seeds" in note for note in score_table(three).notes)


def test_settings_and_views_are_on_the_page(tmp_path: Path) -> None:
    made_up_folder(
        tmp_path, methods=("zero_shot", "taps"), seeds=(1,), label={"taps": {"views": 7, "lr": 0.25}}
    )
    rows = {row[0]: row for row in settings_table(read_results(tmp_path)).rows}
    assert rows["taps"][1:3] == ("7", "lr=0.25")
    assert "weight_ce=" in rows["taps"][3]
    assert rows["zero_shot"][2] == ""
    write_report(tmp_path, formats=["html"], plots=False)
    assert "lr=0.25" in (tmp_path / "report.html").read_text()


def test_a_method_that_is_not_known_here_names_its_plugin(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "my_own"), seeds=(1,))
    notes = settings_table(read_results(tmp_path)).notes
    assert notes[-1] == "The defaults of my_own are those of a plugin; name it with --plugin."


def test_a_partial_folder_gives_a_report(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1, 2))
    (tmp_path / "runs/pets/taps/2/row.json").unlink()
    unfinished = {"dataset": "pets", "method": "taps", "seed": 2, "why": "time"}
    write_json(tmp_path / "unfinished.json", {"runs": [unfinished]})
    write_report(tmp_path, plots=False)
    text = (tmp_path / "report.md").read_text()
    assert "Unfinished: taps on pets, seed 2: time." in text


def test_a_method_that_failed_has_a_row_that_says_so(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "tpt"), datasets=("pets", "cars"), seeds=(1,))
    (tmp_path / "runs/cars/tpt/1/row.json").unlink()
    lost = [("taps", "pets"), ("taps", "cars"), ("tpt", "cars")]
    runs = [{"dataset": name, "method": method, "seed": 1, "why": "no prompts"} for method, name in lost]
    write_json(tmp_path / "unfinished.json", {"runs": runs})
    rows = {row[0]: row[1:] for row in score_table(read_results(tmp_path)).rows}
    assert rows["taps"][:3] == ("failed", "failed", "–")
    assert rows["tpt"][0] == "failed"  # cars, after the alphabet
    assert "failed" not in rows["zero_shot"]
    called = CliRunner().invoke(app, ["report", str(tmp_path), "--quiet", "--no-plots", "--format", "md"])
    assert called.exit_code == 1


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


MARKED = Table(
    "T",
    ("method", "pets"),
    (
        ("a", Cell("50.00 ± 1.25", value=50.0, half=1.25, place=BEST, link="runs/a/index.html")),
        ("b", Cell("40.00", value=40.0, place=SECOND)),
        ("c", "–"),
    ),
)


def test_the_best_is_bold_and_the_second_underlined() -> None:
    assert r"a & \textbf{50.00} $\pm$ 1.25 \\" in latex(MARKED)
    assert r"b & \underline{40.00} \\" in latex(MARKED)
    assert "| a | **50.00** ± 1.25 |" in markdown(MARKED)
    page = html_table(MARKED, sortable=True)
    assert '<td class="n" data-value="50"><a href="runs/a/index.html"><b>50.00</b> ± 1.25</a></td>' in page
    assert '<td class="n" data-value="40"><u>40.00</u></td>' in page


def test_a_csv_has_numbers_and_intervals() -> None:
    rows = list(csv.reader(io.StringIO(csv_table(MARKED))))
    assert rows == [["method", "pets", "pets ±"], ["a", "50", "1.25"], ["b", "40", ""], ["c", "–", ""]]


def test_wide_tables_span_the_page() -> None:
    wide = latex(Table("T", tuple("abcdefghij"), (tuple("0123456789"),)))
    assert r"\begin{table*}" in wide
    assert wide.count("{") == wide.count("}")


def test_marks_go_to_the_best_of_each_column_either_way(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, datasets=("pets", "dtd")))
    for measure in (MEASURES["top1"], MEASURES["ms_p50"]):
        table = score_table(results, measure)
        for column in (1, 2, 3):
            cells = [row[column] for row in table.rows if isinstance(row[column], Cell)]
            values = sorted((cell.value for cell in cells), reverse=measure.better == "higher")
            assert {cell.value for cell in cells if cell.place == BEST} == {values[0]}
            assert {cell.value for cell in cells if cell.place == SECOND} == {values[1]}


def test_of_two_equal_methods_none_is_best(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, methods=("zero_shot", "taps"), seeds=(1,)))
    for runs in results.results.values():
        runs[0].row["measures"]["ece"] = 0.1
    for measure, marked in ((MEASURES["ece"], []), (MEASURES["top1"], [BEST, SECOND])):
        cells = [row[1] for row in score_table(results, measure).rows]
        assert sorted(cell.place for cell in cells if isinstance(cell, Cell) and cell.place) == marked
