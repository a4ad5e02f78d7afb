"""`taps paper`: each part runs what the paper compares, and published numbers stand beside ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from taps.cli.paper import app
from taps.errors import SettingsError
from taps.files import read_json, write_json
from taps.methods.registry import method_settings
from taps.model.clip import load_clip
from taps.study.evaluate.evaluate import evaluate_jobs
from taps.study.evaluate.needs import lacking
from taps.study.evaluate.results import read_results
from taps.study.paper.page import PAGE, beside, cannot_show, draw, propositions, write_page
from taps.study.paper.parts import PARTS, SHIFTED, find_parts
from taps.study.paper.plan import ALIGNED, PaperOptions, Plan, make_plan, with_statistics
from tests.made_up import made_up_folder

SMALL = PaperOptions(seeds=(1,), limit=2, views=2)


@pytest.mark.parametrize("name", PARTS)
def test_the_rows_of_a_part_differ(name: str) -> None:
    entries = PARTS[name].entries
    aligned = ALIGNED if PARTS[name].kind == SHIFTED else {}
    given = [(method, {**(aligned if method == "taps" else {}), **own}) for _, method, own in entries]
    made = [(method, str(method_settings(method, own))) for method, own in given]
    assert len({*made}) == len(made) == len({*PARTS[name].labels}) >= 2


def test_the_papers_values() -> None:
    own = {name: [dict(each) for *_, each in PARTS[name].entries] for name in PARTS}
    assert own["figure2a"] == [{"rate": 0.01}, {}, {"rate": 0.1}]  # TAPS as it is asks about 5 %
    assert own["buffer"] == [{"buffer": 25}, {"buffer": 50}, {"buffer": 100}, {}]
    alphas = [each.get("weight_ce", 1.0) for each in own["coefficient"]]
    assert alphas == [0.1, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert {"align_labelled": "whole"} in own["figure2d"]


def test_parts_by_name() -> None:
    assert find_parts(["figure2d", "table1"]) == ("table1", "figure2d")
    with pytest.raises(SettingsError, match="figure9"):
        find_parts(["figure9"])


def test_alignment_has_the_statistics_it_needs_from_the_bundled_images(tmp_path: Path) -> None:
    names = ("table3", "figure2d")
    assert lacking(make_plan(SMALL, names, None).jobs)  # what is shipped holds no classes and not all blocks
    source = with_statistics(SMALL, names, load_clip("pocket", device="cpu"), tmp_path)
    plan = make_plan(SMALL, names, source)
    assert lacking(plan.jobs) == []
    fine = [job for job in plan.jobs if job.title == "taps"]
    assert all(job.settings["weight_fine"] == job.settings["weight_coarse"] == 1 for job in fine)


def test_a_part_is_run_and_its_page_shows_the_published_numbers(tmp_path: Path) -> None:
    plan = make_plan(SMALL, ("table1",), None)
    outcome = evaluate_jobs(plan.jobs, tmp_path, lengths=plan.lengths)
    assert outcome.unfinished == []
    text = write_page(tmp_path, plan, "The paper").read_text()
    for shown in ("tpt_skip", "sign-digits-sample", "not the paper", "71.77"):  # TPT's four, on average
        assert shown in text


def test_published_and_ours_and_their_difference(tmp_path: Path) -> None:
    sets = PARTS["table1"].sets[:2]
    made_up_folder(tmp_path, methods=("zero_shot", "tpt"), datasets=sets, n=40)
    lost = {"dataset": "dtd", "method": "tpt_skip", "seed": 1, "why": "a fault"}
    write_json(tmp_path / "unfinished.json", {"runs": [lost]})
    results = read_results(tmp_path)
    rows = {row[:2]: row[2:] for row in beside("table1", results, list(sets)).rows}
    ours = 100 * np.mean([result.top1 for result in results.of("dtd", "tpt")])
    assert rows["dtd", "tpt"][0] == "47.75"
    assert rows["dtd", "tpt"][1].startswith(f"{ours:.2f} ± ")
    assert rows["dtd", "tpt"][2] == f"{ours - 47.75:+.2f}"
    assert rows["dtd", "tpt_skip"][1] == "failed"
    gains = [
        100 * (one.top1 - two.top1)
        for one, two in zip(results.of("dtd", "tpt"), results.of("dtd", "zero_shot"), strict=True)
    ]
    assert rows["dtd", "tpt"][4].startswith(f"{np.mean(gains):+.2f} ± ")


def test_an_ablation_draws_the_mean_and_every_set_and_says_where_it_is_blind(tmp_path: Path) -> None:
    part, sets = PARTS["figure2c"], ["pets", "cars"]
    made_up_folder(tmp_path, methods=("zero_shot", *part.labels), datasets=tuple(sets), n=40)
    for path in tmp_path.glob("runs/*/*/*/row.json"):
        full = "cars" in str(path)
        row = read_json(path) | {"buffer_full": full, "answered": 5, "buffer_fill": 5}
        write_json(path, row)
    results = read_results(tmp_path)
    picture = draw(part, results, sets)
    assert picture.count("<polyline") == 2
    assert picture.count("<circle") == len(part.labels)
    [sentence] = cannot_show(part, results, sets)
    assert sentence.startswith("pets: the buffer never filled (5 labels at most)")


def test_what_is_missing_is_listed_before_anything_runs(tmp_path: Path) -> None:
    given = ["table3", "--model", "tiny", "--root", str(tmp_path), "--out", str(tmp_path / "out"), "--check"]
    said = CliRunner().invoke(app, given, catch_exceptions=False).output
    assert said.count("missing") >= 4
    assert "imagenet_sketch" in said
    assert not list((tmp_path / "out").rglob("*.csv"))
    again = CliRunner().invoke(app, given[:-1], catch_exceptions=False)
    assert again.exit_code == 1
    assert "no set" in (tmp_path / "out" / PAGE).read_text()
    for looked_for in ("weights", "prompts maple", "statistics"):
        assert looked_for in said


def test_propositions_are_shown_where_they_were_simulated(tmp_path: Path) -> None:
    assert propositions(tmp_path) == []
    (tmp_path / "theory").mkdir()
    write_json(
        tmp_path / "theory" / "simulate.json", {"tables": {"shapes": [{"shape": "normal", "rate": 0.05}]}}
    )
    write_page(tmp_path, Plan([], {}, {}, []), "The paper")
    assert "normal" in (tmp_path / PAGE).read_text()
