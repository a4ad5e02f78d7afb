"""The examples of docs/integrations.md run, from top to bottom, on a folder of two kinds of pictures."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from taps.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_run(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for kind, name in (("ant", "cat"), ("bee", "dog")):
        (tmp_path / "photos" / name).symlink_to(pictures / kind)
    words = "taps run photos --model tiny --annotator none --rate 0.5 --set views=4 --out runs/photos"
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert not ended.value.code
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example.replace('"pocket"', '"tiny"'), "docs/integrations.md", "exec"), names)
    said = capsys.readouterr().out
    assert "<Choice value=" in said
    assert "0 labelled" in said
