"""The commands of docs/serve.md, run as they stand there, and what the pages say of the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import png

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "serve.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl (Debian: apt-get install curl)")
def test_the_curl_examples_run(url: str, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(png(1))
    # the page's stream, but asked about every image, so that there is a question to answer
    first = BLOCKS[0].replace('{"rate": 0.1}', '{"views": 2, "policy": "fixed", "tau0": 0.0}')
    said = []
    for block in [first, *BLOCKS[1:]]:
        for command in re.split(r"\n(?=curl )", block.strip()):
            done = subprocess.run(
                ["bash", "-ec", command.replace("curl -s", "curl -sS --fail-with-body")],
                cwd=tmp_path, env={"URL": url, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said.append(done.stdout)
    assert len(said) == 13
    assert json.loads(said[1])["query_id"] == 0
    assert (tmp_path / "question.jpg").read_bytes() == png(1)
    assert json.loads(said[4])["prediction"]["answer"] == "dog"
    assert (tmp_path / "predictions.csv").read_text().startswith("id,at,name")
    assert zipfile.is_zipfile(tmp_path / "labelled.zip")


def test_the_answer_shown_has_the_fields_there_are() -> None:
    from taps.serve.schemas import Answered

    shown = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert set(Answered.model_fields) == set(re.findall(r'"(\w+)":', shown[1])) - {"probability"}


def test_the_python_example_runs(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(png(1))
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    asking = found[1].replace('{"rate": 0.1}', '{"views": 2, "policy": "fixed", "tau0": 0.0}')
    names: dict[str, Any] = {}
    exec(compile(asking.replace("http://127.0.0.1:8000", url), "serve.md", "exec"), names)
    assert names["said"]["query_id"] == names["question"]["id"] == 0
