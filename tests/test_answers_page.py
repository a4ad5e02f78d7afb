"""The example on the page about answers is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "answers.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "dict_keys(['ann', 'bob']) True\n"
