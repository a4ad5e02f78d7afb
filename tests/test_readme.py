"""The README's example runs as it stands, with whichever model is there."""

import re
from pathlib import Path

import pytest

import taps

README = Path(__file__).parent.parent / "README.md"


def example() -> str:
    return re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]


def test_example_is_ten_lines_and_runs(tmp_path, monkeypatch):
    code = example()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    again = taps.Learner.load(tmp_path / "my-learner")
    assert again.seen == names["learner"].seen == 20
    assert again.asked == names["learner"].asked
    assert names["learner"].answered > 0
    assert len(set(names["images"].labels)) > 5  # a stream, not one class


@pytest.mark.parametrize("target", re.findall(r"\]\((docs/[^)#]+)", README.read_text()))
def test_linked_pages_exist(target):
    assert (README.parent / target).is_file(), f"README links to {target}, which is not there"
