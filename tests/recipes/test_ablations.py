"""Ablations run what they say, and say when they cannot show anything."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from ablate import (
    ABLATIONS,
    ablation_text,
    cannot_show,
    draw_ablation,
    find_ablation,
    variants,
)

from taps.errors import SettingsError
from taps.files import read_json, write_json
from taps.methods.registry import method_settings
from taps.study.evaluate.results import Results, read_results
from tests.made_up import made_up_folder


def made_up(
    out: Path, name: str, *, n: int = 100, full: set[str] | None = None, answered: int = 5
) -> Results:
    """Results of an ablation; `full` names the variants whose buffer filled."""
    labels = list(ABLATIONS[name].variants)
    made_up_folder(out, methods=("zero_shot", *labels), seeds=(1, 2), n=n)
    for path in out.glob("runs/*/*/*/row.json"):
        row = read_json(path)
        row |= {"buffer_full": row["method"] in (full or ()), "answered": answered, "buffer_fill": answered}
        write_json(path, row)
    return read_results(out)


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_variant_is_a_setting_of_taps(name: str) -> None:
    made = variants(name, {}, shipped_source=True)
    assert len(made) >= 2
    settings = [method_settings(method, own) for _, method, own in made]
    assert all(a != b for i, a in enumerate(settings) for b in settings[:i])


def test_the_papers_values() -> None:
    assert [own["rate"] for own in ABLATIONS["rate"].variants.values()] == [0.01, 0.05, 0.10]
    assert [own["buffer"] for own in ABLATIONS["buffer"].variants.values()] == [25, 50, 100, 150]
    alphas = [own["weight_ce"] for own in ABLATIONS["alpha"].variants.values()]
    assert (min(alphas), max(alphas)) == (0.1, 10.0)


@pytest.mark.parametrize("name", ["eviction", "buffer"])
def test_a_buffer_that_never_filled_is_said(tmp_path: Path, name: str) -> None:
    [sentence] = cannot_show(name, made_up(tmp_path, name))
    assert "never filled (5 labels at most)" in sentence
    assert sentence in ablation_text(name, read_results(tmp_path))


def test_a_buffer_that_filled_is_not(tmp_path: Path) -> None:
    assert cannot_show("eviction", made_up(tmp_path, "eviction", full={"random", "class-balanced"})) == []


def test_sizes_that_never_filled_must_be_alike(tmp_path: Path) -> None:
    [sentence] = cannot_show("buffer", made_up(tmp_path, "buffer", full={"buffer 25", "buffer 50"}))
    assert "buffer 100, buffer 150" in sentence


def test_no_question_asked_is_said(tmp_path: Path) -> None:
    [sentence] = cannot_show("alpha", made_up(tmp_path, "alpha", answered=0))
    assert "no question was asked" in sentence


def test_the_text_keeps_the_order_of_the_variants(tmp_path: Path) -> None:
    text = ablation_text("buffer", made_up(tmp_path, "buffer"))
    rows = [
        line.split("|")[1].strip() for line in text.splitlines() if line.startswith(("| buffer", "| zero"))
    ]
    assert rows[:5] == ["zero_shot", "buffer 25", "buffer 50", "buffer 100", "buffer 150"]


def test_the_figure(tmp_path: Path) -> None:
    draw_ablation("alpha", made_up(tmp_path, "alpha"), tmp_path / "alpha.svg")
    text = (tmp_path / "alpha.svg").read_text()
    ElementTree.fromstring(text)
    assert all(f">{label} (asked" in text for label in ABLATIONS["alpha"].variants)


def test_bad_requests_are_sentences() -> None:
    with pytest.raises(SettingsError, match="no ablation 'size'"):
        find_ablation("size")
    with pytest.raises(SettingsError, match="varies rate itself"):
        variants("rate", {"rate": 0.2})
    assert variants("rate", {"rate": None})
    with pytest.raises(SettingsError, match="needs --source"):
        variants("alignment", {"source": None})
