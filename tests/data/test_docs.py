"""The examples in docs/data.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taps.data import named_sets

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_example_runs(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "docs/data.md", "exec"), {})
    assert capsys.readouterr().out


def test_the_table_says_what_the_package_knows() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \| `([^`]+)`", PAGE, re.MULTILINE)
    known = [(s.id, f"{s.classes:,}", f"{s.images:,}", s.roots[0]) for s in named_sets().values()]
    assert rows == known
