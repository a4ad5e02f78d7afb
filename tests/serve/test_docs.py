"""The commands of docs/serve.md, run as they stand there, and what the pages say of the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.serve.conftest import png

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "serve.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
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


def test_the_rules_are_those_of_the_code() -> None:
    from taps.adapt.ledger import PENDING
    from taps.serve import keeper, owner, store

    assert PENDING == 1000
    assert "the newest 1,000 of a stream" in PAGE
    assert store.RETENTION == 7 * 86400
    assert "for 7 days more" in PAGE
    assert store.RECENT == 100
    assert "the newest 100 of each stream" in PAGE
    assert (keeper.EVERY, keeper.WORTH, keeper.AT_MOST, keeper.SETTLE) == (20, 200, 200, 60.0)
    assert (
        "after 20 events or more, as often as costs 0.5 % of the time, after 200 events at the latest" in PAGE
    )
    assert owner.IDLE == 600
    assert "after 10 minutes" in PAGE
