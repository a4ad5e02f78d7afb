"""Class texts from the command line: templates and sentences reach the learner, and stay with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taps.learner import Learner
from taps.streams.record import SPEC

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.json"
    file.write_text(json.dumps({"ant": ["six legs and/or wings"], "bee": ["it makes honey", "a bee"]}))
    return file


def test_a_run_keeps_its_sentences_when_the_file_is_gone(here: Call, zoo: Path, sentences: Path) -> None:
    words = ("--model", "tiny", "--method", "zero_shot", "--out", "out")
    assert (
        here("run", zoo, *words, "--limit", 3, "--texts", sentences, "--template", "a {}. | the {}.")[0] == 0
    )
    texts = json.loads(sentences.read_text())
    sentences.unlink()
    assert here("run", "--resume", "--out", "out", "--limit", 6)[0] == 0
    settings = Learner.load("out/state").settings
    assert settings.texts == texts  # type: ignore[attr-defined]
    assert settings.template == "a {}. | the {}."  # type: ignore[attr-defined]


def test_a_file_that_lacks_a_class_is_refused_before_a_folder_is_made(
    here: Call, zoo: Path, tmp_path: Path
) -> None:
    (tmp_path / "few.json").write_text('{"ant": ["six legs"]}')
    for command in (
        ("run", zoo, "--model", "tiny", "--out", "out"),
        ("predict", zoo, "--model", "tiny", "--out", "out"),
        ("label", zoo, "--model", "tiny", "--store", "out", "--no-browser"),
        ("eval", "--dataset", zoo, "--model", "tiny", "--method", "zero_shot", "--seeds", 1, "--out", "out"),
    ):
        code, _, said = here(*command, "--texts", "few.json")
        assert code
        assert "few.json lacks the class 'bee'" in said
        assert not (tmp_path / "out").exists()


def test_a_table_gives_sentences_to_methods_that_take_them(here: Call, zoo: Path, sentences: Path) -> None:
    words = ("--dataset", zoo, "--model", "tiny", "--method", "zero_shot,tpt", "--no-baselines", "--seeds", 1)
    code, _, said = here("eval", *words, "--set", "views=2", "--texts", sentences, "--out", "out")
    assert code == 0, said
    folders = [Path("out/runs/zoo", name, "1") for name in ("zero_shot", "tpt")]
    specs = [json.loads((folder / SPEC).read_text()) for folder in folders]
    assert [Path(spec["settings"].get("texts", "none")).name for spec in specs] == ["sentences.json", "none"]


def test_own_is_the_data_sets_template(here: Call, zoo: Path) -> None:
    assert here("run", zoo, "--model", "tiny", "--template", "own", "--limit", 2, "--out", "out")[0] == 0
    assert Learner.load("out/state").settings.template == "a photo of a {}."  # type: ignore[attr-defined]
