"""What can be checked of deploy/ without deploying."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
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


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and what each is given, lines that go on joined."""
    text = re.sub(r"\\\n\s*", "", DOCKER)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_dockerfile_is_made_of_known_instructions() -> None:
    names = [name for name, _ in instructions()]
    assert names[0] == "FROM"
    known = "FROM ARG RUN WORKDIR COPY USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert set(names) <= set(known.split())
    given = dict(instructions())
    assert names.index("USER") < names.index("ENTRYPOINT")  # it does not run as root
    assert json.loads(given["ENTRYPOINT"]) == ["taps"]
    assert given["STOPSIGNAL"] == "SIGTERM"
    (program, flag, code) = json.loads(given["HEALTHCHECK"].partition("CMD ")[2])
    assert (program, flag) == ("python", "-c")
    compile(code, "healthcheck", "exec")
    port, command = given["EXPOSE"], json.loads(given["CMD"])
    assert f":{port}/healthz" in code
    assert command[command.index("--port") + 1] == port
    assert command[command.index("--store") + 1] == given["VOLUME"]


def test_the_health_check_tells_a_service_from_none(url: str) -> None:
    _, flag, code = json.loads(dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])
    here = code.replace("http://127.0.0.1:8000", url).replace("timeout=4", "timeout=300")
    assert url in here
    for looked, healthy in ((here, True), (here.replace("/healthz", "/nowhere"), False)):
        done = subprocess.run([sys.executable, flag, looked], capture_output=True)
        assert (done.returncode == 0) == healthy, done.stderr


def test_what_the_image_installs_is_there() -> None:
    """The extra that the pip line names, and a version of each of its packages in the constraints."""
    pips = [shlex.split(rest) for name, rest in instructions() if name == "RUN" and rest.startswith("pip")]
    for words in pips:
        assert words[words.index("-c") + 1] == "constraints.txt"  # torch, too, is the version that was tested
    words = pips[-1]
    pinned = (ROOT / words[words.index("-c") + 1]).read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^\.\[(.*)\]$", words[-1])
    wanted = [each for extra in extras.split(",") for each in project["optional-dependencies"][extra]]
    for requirement in [*project["dependencies"], *wanted]:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert name is not None
        pattern = rf"^{re.escape(name[0])}=="
        assert re.search(pattern, pinned, re.MULTILINE | re.IGNORECASE), requirement
    image = re.fullmatch(r"python:(\d+)\.(\d+)-slim", dict(instructions())["FROM"])
    assert image is not None
    assert project["requires-python"] == ">=3.11"
    assert (int(image[1]), int(image[2])) >= (3, 11)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "taps.service"
    unit.write_text(UNIT.replace("/usr/local/bin/taps", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "taps.service" in line]
    assert not said, said
