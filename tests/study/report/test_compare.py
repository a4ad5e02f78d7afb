"""The leaderboard: its table, its files, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from taps.errors import DataError, SettingsError
from taps.study.evaluate.results import read_results
from taps.study.report.compare import leaderboard, write_leaderboard
from tests.made_up import made_up_folder

SETS = ("pets", "dtd", "food", "cars", "sun", "birds", "signs", "flowers")
METHODS = ("zero_shot", "view_ensemble", "taps")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_folder(tmp_path_factory.mktemp("board"), methods=METHODS, datasets=SETS, n=120)


def test_the_table_is_the_mean_over_seeds_best_first(folder: Path) -> None:
    board = leaderboard([folder])
    results = read_results(folder)
    means = {
        m: [100 * np.mean([r.top1 for r in results.of(d, m)]) for d in results.datasets] for m in METHODS
    }
    assert [row[0] for row in board.table.rows] == sorted(METHODS, key=lambda m: -np.mean(means[m]))
    assert board.table.columns == ("method", "mean", *results.datasets, "to zero_shot", "asked %")
    for row in board.table.rows:
        assert [float(cell.split()[0]) for cell in row[2:10]] == pytest.approx(means[row[0]], abs=0.0051)
        assert float(row[1]) == pytest.approx(np.mean(means[row[0]]), abs=0.0051)


def test_lower_is_better_where_it_is(folder: Path) -> None:
    board = leaderboard([folder], "ms_p50")
    assert [row[0] for row in board.table.rows] == ["zero_shot", "view_ensemble", "taps"]


def test_files_agree_and_every_cell_has_a_page(folder: Path) -> None:
    board = leaderboard([folder])
    write_leaderboard(board, folder)
    page = (folder / "leaderboard.html").read_text()
    links = set(re.findall(r'href="(.*?)"', page))
    assert links == {f"runs/{d}/{m}/index.html" for d in SETS for m in METHODS}
    assert all((folder / link).is_file() for link in links)
    assert not re.search(r"(src|href)=\"https?:", page)
    rows = list(csv.DictReader((folder / "leaderboard.csv").read_text().splitlines()))
    scores = json.loads((folder / "leaderboard.json").read_text())["scores"]
    times = [cell for cells in scores["ms_p50"].values() for cell in cells.values()]
    assert {cell["half"] for cell in times} == {None}, "a median has no t-interval"
    stored = scores["top1"]
    for row in rows:
        for dataset in SETS:
            assert float(row[dataset]) == pytest.approx(100 * stored[dataset][row["method"]]["score"])
            assert float(row[f"{dataset} ±"]) == pytest.approx(100 * stored[dataset][row["method"]]["half"])
    text = (folder / "leaderboard.tex").read_text()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"\textbf{" in text
    assert r"\underline{" in text


def test_folders_are_put_together_where_they_can_be(tmp_path: Path) -> None:
    one = made_up_folder(tmp_path / "one", methods=("zero_shot", "taps"), datasets=("pets", "dtd"), n=40)
    two = made_up_folder(tmp_path / "two", methods=("tpt",), datasets=("pets", "dtd"), n=40)
    board = leaderboard([one, two])
    assert {row[0] for row in board.table.rows} == {"zero_shot", "taps", "tpt"}
    assert {cell.link for row in board.table.rows if row[0] == "tpt" for cell in row[2:4]} == {
        f"runs/{dataset}/tpt/index.html" for dataset in ("pets", "dtd")
    }
    with pytest.raises(DataError, match="same seed"):
        leaderboard([one, made_up_folder(tmp_path / "again", methods=("taps",), n=40)])
    other = made_up_folder(tmp_path / "other", methods=("tpt",), n=40, model="ViT-B-16")
    with pytest.raises(DataError, match="different models"):
        leaderboard([one, other])


def test_names_that_differ_in_a_slash_have_pages_of_their_own(tmp_path: Path) -> None:
    one = made_up_folder(tmp_path / "one", methods=("zero_shot",), datasets=("a/b",), seeds=(1,), n=20)
    two = made_up_folder(tmp_path / "two", methods=("zero_shot",), datasets=("a-b",), seeds=(1,), n=20)
    board = leaderboard([one, two])
    write_leaderboard(board, tmp_path / "board")
    cells = dict(zip(board.table.columns, board.table.rows[0], strict=True))
    for name in ("a/b", "a-b"):
        assert f"<h1>zero_shot on {name}</h1>" in (tmp_path / "board" / unquote(cells[name].link)).read_text()


def test_other_images_are_refused(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot", "taps"), n=20)
    path = tmp_path / "runs/pets/taps/1/predictions.csv"
    path.write_text(path.read_text().replace("/3.jpg", "/99.jpg"))
    with pytest.raises(DataError, match="same images"):
        leaderboard([tmp_path])


def test_without_zero_shot_the_first_method_is_the_baseline(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("tpt", "taps"), seeds=(1,), n=20)
    assert leaderboard([tmp_path]).baseline == "tpt"


def test_measures_that_are_not_there_are_sentences(tmp_path: Path) -> None:
    made_up_folder(tmp_path, methods=("zero_shot",), seeds=(1,), n=20)
    with pytest.raises(SettingsError, match="Unknown measure 'speed'"):
        leaderboard([tmp_path], "speed")
    with pytest.raises(DataError, match="No run has the measure 'auroc_max'"):
        leaderboard([tmp_path], "auroc_max")
