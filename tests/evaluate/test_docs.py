"""The example on the page is run as it stands."""

from __future__ import annotations

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


def test_options_on_the_page_exist() -> None:
    from typer.main import get_command

    from taps.cli.eval import app

    known = {
        name for parameter in get_command(app).params for name in (*parameter.opts, *parameter.secondary_opts)
    }
    part = PAGE.read_text().split("## `taps eval`")[1].split("## `taps report`")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", part)) - {"--root"} <= known | {"--root"}
    assert "--root" in known
