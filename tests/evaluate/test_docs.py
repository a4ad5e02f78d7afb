"""The examples on the pages are run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "[('taps', 20), ('zero_shot', 20)]\n"
    assert (tmp_path / "results" / "report.md").is_file()


def test_the_example_of_a_comparison_runs(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.with_name("compare.md")
    [code] = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {})
    columns, methods = capsys.readouterr().out.splitlines()
    assert columns == "('method', 'rank', 'caltech101-sample', 'to zero_shot', 'asked %')"
    assert methods == "['taps, 3 views', 'view_ensemble', 'zero_shot']"
    stored = json.loads((tmp_path / "results" / "leaderboard.json").read_text())
    assert len(stored["scores"]["top1"]["caltech101-sample"]["taps, 3 views"]["values"]) == 3
    for link in re.findall(r'href="(.*?)"', (tmp_path / "results" / "leaderboard.html").read_text()):
        assert (tmp_path / "results" / link).is_file()


def test_options_of_a_comparison_exist() -> None:
    from typer.main import get_command

    from taps.cli.compare import app

    known = {name for parameter in get_command(app).params for name in parameter.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE.with_name("compare.md").read_text())) <= known


def test_options_on_the_page_exist() -> None:
    from typer.main import get_command

    from taps.cli.eval import app

    known = {
        name for parameter in get_command(app).params for name in (*parameter.opts, *parameter.secondary_opts)
    }
    part = PAGE.read_text().split("## `taps eval`")[1].split("## `taps report`")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", part)) - {"--root"} <= known | {"--root"}
    assert "--root" in known
