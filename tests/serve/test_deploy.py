"""What can be checked of deploy/ without deploying."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taps.cli.main import app

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "taps.service").read_text()
DOCKER = (ROOT / "deploy" / "Dockerfile").read_text()


def commands() -> list[list[str]]:
    start = re.search(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)
    run = re.search(r"^CMD (\[.*\])$", DOCKER, re.MULTILINE)
    assert start is not None
    assert run is not None
    return [shlex.split(start[1]), json.loads(run[1])]


@pytest.mark.parametrize("command", commands())
def test_the_options_exist(command: list[str]) -> None:
    """With --workers 2 added the command line is read to its end and refused for that alone."""
    result = CliRunner().invoke(app, [*command, "--workers", "2"])
    assert "--workers must be 1" in str(result.exception), result.output


def test_what_is_copied_into_the_image_is_there() -> None:
    for line in re.findall(r"^COPY (.*) \S+$", DOCKER, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists(), name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "taps.service"
    unit.write_text(UNIT.replace("/usr/local/bin/taps", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "taps.service" in line]
    assert not said, said
