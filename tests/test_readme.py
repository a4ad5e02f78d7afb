"""The README's example runs as it stands, with whichever model is there."""

import hashlib
import json
import math
import re
from pathlib import Path

import pytest

import taps
from taps.cli.demo import IMAGES, RATE

README = Path(__file__).parent.parent / "README.md"


def example() -> str:
    return re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]


def test_example_is_ten_lines_and_runs(tmp_path, monkeypatch, capsys):
    code = example()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(printed) == 20
    assert {predicted for _, predicted, _ in printed} <= set(names["images"].classes)
    answers = [answer for *_, answer in printed if answer != "None"]
    assert len(answers) == names["learner"].answered
    assert set(answers) <= set(names["images"].classes)
    again = taps.Learner.load(tmp_path / "my-learner")
    assert again.seen == names["learner"].seen == 20
    assert again.asked == names["learner"].asked
    assert names["learner"].answered > 0
    assert len(set(names["images"].labels)) > 5  # a stream, not one class


@pytest.mark.parametrize("target", re.findall(r"\]\((docs/[^)#]+)", README.read_text()))
def test_linked_pages_exist(target):
    assert (README.parent / target).is_file(), f"README links to {target}, which is not there"


FIGURES = README.parent / "docs" / "figures"
MEASURED = json.loads((FIGURES / "demo.json").read_text())


def test_the_demos_pictures_are_those_of_its_figures() -> None:
    assert MEASURED["sha256"].keys() == {"readme.webp", "demo.webp"}
    for name, digest in MEASURED["sha256"].items():
        assert hashlib.sha256((FIGURES / name).read_bytes()).hexdigest() == digest, f"{name}: make it again"
    assert (MEASURED["images"], MEASURED["asked"]) == (IMAGES, math.ceil(RATE * IMAGES))


@pytest.mark.parametrize(
    ("page", "digits"), [("README.md", 0), ("docs/index.md", 0), ("docs/tutorial.md", 1)]
)
def test_what_the_docs_say_of_the_demo_was_measured(page: str, digits: int) -> None:
    """In the text of the picture, or the paragraph before it."""
    text = (README.parent / page).read_text()
    said = next(each for each in text.split("\n\n") if str(MEASURED["images"]) in each)
    numbers = re.findall(r"\d+(?:\.\d+)?", said.split("](")[0])
    for figure in (MEASURED["images"], MEASURED["asked"]):
        assert str(figure) in numbers
    for accuracy in MEASURED["accuracy"].values():
        assert f"{accuracy:.{digits}f}" in numbers
