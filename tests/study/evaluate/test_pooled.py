"""Two blocks in every table, one template and richer texts: never mixed, and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taps.cli.eval import app
from taps.errors import SettingsError
from taps.study.evaluate.pooled import ONE, RICHER, block_of, learned_beside_texts, pool, split_rows
from taps.study.report.compare import leaderboard
from taps.study.report.pages import write_report
from tests.made_up import made_up_folder

runner = CliRunner()
TEXTS = {"template": "imagenet80"}


@pytest.mark.parametrize(
    ("method", "settings", "block"),
    [
        ("zero_shot", {}, ONE),
        ("zero_shot", {"template": "a sketch of a {}."}, ONE),
        ("zero_shot", {"template": ["a sketch of a {}."]}, ONE),
        ("zero_shot", {"template": "a sketch of a {}. | a photo of a {}."}, RICHER),
        ("tda", {"template": "imagenet7"}, RICHER),
        ("tda", {"texts": "cupl.json"}, RICHER),
        ("tpt", {"template": "imagenet80"}, ONE),
        ("taps+", {"template": "imagenet80"}, ONE),
        ("view_ensemble+", {"template": "imagenet80"}, RICHER),
        ("view_ensemble", {"template": "imagenet80", "prompts": "coop"}, ONE),
        ("of_a_plugin", {"texts": {"cat": ["it purrs"]}}, RICHER),
    ],
)
def test_block_of(method: str, settings: dict[str, object], block: str) -> None:
    assert block_of(method, settings) == block


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """The same methods with one template and with 80; a learned context among the latter."""
    one = made_up_folder(tmp_path / "one", methods=("zero_shot", "view_ensemble"), seeds=(1, 2), n=40)
    label = dict.fromkeys(("zero_shot", "view_ensemble", "tpt"), TEXTS)
    methods = ("zero_shot", "view_ensemble", "tpt")
    return [one, made_up_folder(tmp_path / "two", methods=methods, seeds=(1, 2), n=40, label=label)]


def test_a_leaderboard_has_two_tables(folders: list[Path]) -> None:
    board = leaderboard(folders)
    assert board.richer is not None
    assert [row[0] for row in sorted(board.table.rows)] == ["tpt", "view_ensemble", "zero_shot"]
    assert [row[0] for row in sorted(board.richer.table.rows)] == ["view_ensemble", "zero_shot"]
    assert board.markdown().count("; one template**") == board.markdown().count("; richer texts**") == 1
    pages = [{*each.results.pages.values()} for each in board.blocks]
    assert not pages[0] & pages[1]
    assert leaderboard(folders, baseline="tpt").richer is not None  # the other block has its own baseline
    with pytest.raises(SettingsError, match="'tda' has no results"):
        leaderboard(folders, baseline="tda")


def test_one_block_is_as_it_was(folders: list[Path]) -> None:
    board = leaderboard(folders[:1])
    assert board.richer is None
    assert ONE not in board.markdown()


def test_the_page_has_both_blocks(folders: list[Path], tmp_path: Path) -> None:
    options = ["compare", *map(str, folders), "--out", str(tmp_path / "page")]
    shown = runner.invoke(app, options, catch_exceptions=False)
    assert shown.exit_code == 0
    stored = json.loads((tmp_path / "page/leaderboard.json").read_text())
    assert "tpt" not in stored["richer_texts"]["methods"]
    assert (tmp_path / "page/runs/pets/zero_shot~texts/index.html").is_file()
    page = (tmp_path / "page/leaderboard.html").read_text()
    assert page.index("one template") < page.index("richer texts")


def test_a_report_has_a_table_for_each(folders: list[Path]) -> None:
    (path,) = write_report(folders[1], formats=["md"], plots=False)
    text = path.read_text()
    assert text.count("; one template**") == 3  # scores, what it took, settings
    assert text.count("; richer texts**") == 4  # and differences to zero-shot


def test_gains_are_within_a_block() -> None:
    rows = [
        {
            "dataset": "pets",
            "method": name,
            "seed": 1,
            "top1": top1,
            "measures": {"top1": top1},
            "n": 9,
            "texts": block,
        }
        for name, top1, block in (("zero_shot", 0.5, RICHER), ("tda", 0.6, RICHER), ("tpt", 0.7, ONE))
    ]
    gains = {each.method: each.gain for each in pool(rows)}
    assert gains == {"zero_shot": None, "tda": pytest.approx(0.1), "tpt": None}
    assert [*split_rows(rows)] == [ONE, RICHER]


def test_an_evaluation_tells_who_takes_no_texts(pictures: Path, tmp_path: Path) -> None:
    options = ["eval", "--dataset", str(pictures), "--model", "tiny", "--seeds", "1", "--limit", "4"]
    options += ["--set", "views=2", "--method", "zero_shot,tpt", "--no-baselines", "--template", "imagenet7"]
    shown = runner.invoke(app, [*options, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert shown.exit_code == 0
    one, richer = shown.output.split("one template:")[1].split("richer texts:")
    assert "tpt" in one
    assert "zero_shot" not in one
    assert "zero_shot" in richer
    assert "Without the texts given: tpt. A learned context" in " ".join(richer.split())
    assert learned_beside_texts(["zero_shot", "tda"]) == ""
