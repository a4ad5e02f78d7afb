"""docs/models.md: examples run, names in tables exist."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from taps.model.clip.config import pretrained

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_examples_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "models.md", "exec"), {})
    said = capsys.readouterr().out
    assert "torch.Size([2, 512])" in said
    assert "torch.Size([1, 64])" in said


def test_every_architecture_is_in_the_table() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([^|]*) \|", PAGE.split("## What loads")[1], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w*-]+)`", row)]
    patterns = [*named, "ViT-?-*"]  # the first rows name where their series begin and end
    assert not [name for name in pretrained() if not any(fnmatch(name, each) for each in patterns)]
    plain = [name for name in named if "*" not in name and not name.startswith(("-", "siglip"))]
    assert not [name for name in plain if name not in pretrained() and name != "CLIPModel"]
