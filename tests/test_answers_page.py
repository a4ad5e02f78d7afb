"""The example on the page about answers is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "answers.md"


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        exec(compile(code, str(PAGE), "exec"), known)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "dict_keys(['ann', 'bob']) True"
    assert re.fullmatch(r"\{'class': \d, 'yes_no': \d\} [1-9][\d.]*", second)
