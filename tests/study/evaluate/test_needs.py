"""What a run lacks is found before it begins, by the same words that a run itself would fail for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from taps.errors import TapsError
from taps.learner import Learner
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats
from taps.study.evaluate.jobs import Job, open_dataset
from taps.study.evaluate.needs import lacking, sentences
from taps.study.training.stats import collect_stats

VIEWS = {"views": 4}


@pytest.fixture
def files(tmp_path: Path, tiny: Clip, maple_prompts: Prompts, make_job: Callable[..., Job]) -> Path:
    """Prompts, and statistics of two blocks, of all blocks, and of classes."""
    maple_prompts.save_pretrained(tmp_path / "prompts")
    images = open_dataset(make_job().stream)
    for name, layers, per_class in (("plain", (0, 1), False), ("classes", (0, 1, 2, 3), True)):
        made = collect_stats(tiny, maple_prompts, images, layers=layers, per_class=per_class)
        made.save(tmp_path / name, torch.float32)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "source", "command"),
    [
        ({"weight_coarse": 1.0}, None, "taps stats"),
        ({"weight_coarse": 1.0}, "plain", None),
        ({"weight_coarse": 1.0, "align": "paper"}, "plain", "--layers all"),
        ({"weight_coarse": 1.0, "align": "paper"}, "classes", None),
        ({"weight_fine": 1.0}, "plain", "--per-class"),
        ({"weight_fine": 1.0, "align_labelled": "whole"}, "plain", None),
        ({"weight_fine": 1.0}, "classes", None),
        ({"weight_fine": 1.0}, "nowhere", "taps stats"),
        ({}, None, None),
    ],
)
def test_what_is_lacking_is_what_a_learner_refuses(
    tiny: Clip,
    files: Path,
    make_job: Callable[..., Job],
    settings: dict[str, object],
    source: str | None,
    command: str | None,
) -> None:
    given = {**VIEWS, "prompts": str(files / "prompts"), **settings}
    given |= {"source": str(files / source)} if source else {}
    job = make_job(settings=given)
    said = sentences(lacking([job, job]))
    if command is None:
        assert said == []
        Learner(tiny, open_dataset(job.stream).classes, "taps", **given)
        return
    [sentence] = said
    assert command in sentence
    with pytest.raises(TapsError):
        Learner(tiny, open_dataset(job.stream).classes, "taps", **given)


def test_missing_prompts_are_said(make_job: Callable[..., Job]) -> None:
    [sentence] = sentences(lacking([make_job("coop"), make_job("coop", seed=2), make_job("zero_shot")]))
    assert "taps train coop" in sentence


def test_statistics_of_other_classes_are_said(
    files: Path, make_job: Callable[..., Job], tmp_path: Path
) -> None:
    held = SourceStats.load(files / "classes")
    renamed = SourceStats(**{**vars(held), "classes": ("else", *held.classes[1:])})
    renamed.save(tmp_path / "other")
    job = make_job(settings={**VIEWS, "weight_fine": 1.0, "source": str(tmp_path / "other")})
    [sentence] = sentences(lacking([job]))
    assert "lack 1 of" in sentence
