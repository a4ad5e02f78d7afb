"""The examples on the pages are run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "measuring.md"


def test_the_python_examples_run(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(compile(code, str(PAGE), "exec"), names)
    evaluated, columns, methods = capsys.readouterr().out.splitlines()
    assert evaluated == "[('taps', 20), ('zero_shot', 20)]"
    assert (tmp_path / "results" / "results.json").is_file()
    assert columns == "('method', 'caltech101-sample', 'to zero_shot', 'asked %')"
    assert methods == "['taps, 3 views', 'view_ensemble', 'zero_shot']"
    stored = json.loads((tmp_path / "leaderboard" / "leaderboard.json").read_text())
    assert len(stored["scores"]["top1"]["caltech101-sample"]["taps, 3 views"]["values"]) == 3
    for link in re.findall(r'href="(.*?)"', (tmp_path / "leaderboard" / "leaderboard.html").read_text()):
        assert (tmp_path / "leaderboard" / link).is_file()


def test_options_on_the_page_exist() -> None:
    from taps.cli.main import load_command

    known = {
        name
        for parameter in load_command("eval").params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    part = PAGE.read_text().split("## `taps eval`")[1].split("\n## ")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", part)) <= known | {"--help", "--help-all"}
    assert "--root" in known
