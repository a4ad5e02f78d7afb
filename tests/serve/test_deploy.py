"""What can be checked of deploy/ without deploying."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from taps.cli.main import app
from taps.serve.tokens import Tokens
from tests.serve.conftest import png
from tests.serve.patient import LONG
from tests.serve.postgres import Server

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy" / "taps.service").read_text()
DOCKER = (ROOT / "deploy" / "Dockerfile").read_text()


COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
CLUSTER = {
    each["kind"]: each for each in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
}
POD = CLUSTER["StatefulSet"]["spec"]["template"]["spec"]


def commands() -> list[list[str]]:
    start = re.search(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)
    run = re.search(r"^CMD (\[.*\])$", DOCKER, re.MULTILINE)
    assert start is not None
    assert run is not None
    return [
        shlex.split(start[1]),
        json.loads(run[1]),
        COMPOSE["taps"]["command"],
        POD["containers"][0]["args"],
    ]


@pytest.mark.parametrize("command", commands())
def test_the_options_exist(command: list[str]) -> None:
    """With --processes -1 added the command line is read to its end and refused for that alone."""
    result = CliRunner().invoke(app, [*command, "--processes", "-1"])
    assert "--processes is -1" in str(result.exception), result.output


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and what each is given, lines that go on joined."""
    text = re.sub(r"\\\n\s*", "", DOCKER)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_the_health_check_tells_a_service_from_none(url: str) -> None:
    _, flag, code = json.loads(dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])
    here = code.replace("http://127.0.0.1:8000", url).replace("timeout=4", "timeout=300")
    assert url in here
    for looked, healthy in ((here, True), (here.replace("/healthz", "/nowhere"), False)):
        done = subprocess.run([sys.executable, flag, looked], capture_output=True)
        assert (done.returncode == 0) == healthy, done.stderr


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="there is no systemd-analyze (Debian: apt-get install systemd)",
)
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "taps.service"
    unit.write_text(UNIT.replace("/usr/local/bin/taps", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "taps.service" in line]
    assert not said, said


def test_the_files_of_the_compose_file_are_there_and_one_service_has_the_ports() -> None:
    """What is mounted from this folder exists; the service itself is reached through the proxy alone."""
    for service in COMPOSE.values():
        for mount in service["volumes"]:
            if mount.startswith("./"):
                assert (ROOT / "deploy" / mount.split(":")[0]).is_file(), mount
    assert [name for name, service in COMPOSE.items() if "ports" in service] == ["proxy"]
    assert COMPOSE["proxy"]["depends_on"] == {"taps": {"condition": "service_healthy"}}


def test_the_cluster_starts_one_service_on_one_store() -> None:
    stateful, (container,), (first,) = (
        CLUSTER["StatefulSet"]["spec"],
        POD["containers"],
        POD["initContainers"],
    )
    assert stateful["replicas"] == 1
    (claim,) = stateful["volumeClaimTemplates"]
    store = {"name": claim["metadata"]["name"], "mountPath": "/store"}
    assert store in container["volumeMounts"]
    assert store in first["volumeMounts"]
    paths = {name: container[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    assert paths == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert POD["securityContext"]["runAsUser"] == int(re.findall(r"--uid (\d+)", DOCKER)[0])


def test_the_cluster_s_first_start_makes_one_token(tmp_path: Path, on_path: dict[str, str]) -> None:
    (line,) = [each["command"][2] for each in POD["initContainers"]]
    for wanted in (1, 0):
        said = shell(line.replace("/store", str(tmp_path / "store")), on_path)
        assert said.count("taps_") == wanted, said


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `taps` is this one, whatever is installed."""
    program = tmp_path / "bin" / "taps"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m taps "$@"\n')
    program.chmod(0o755)
    return os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def shell(line: str, env: dict[str, str]) -> str:
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def served(command: list[str], env: dict[str, str], log: Path) -> Iterator[str]:
    """A service started by a command; its URL. Told to stop, it must end well."""
    with log.open("wb") as out:
        process = subprocess.Popen(["taps", *command], env=env, stdout=out, stderr=out)
    try:
        until(lambda: "Serving at" in log.read_text() or process.poll() is not None)
        (url,) = re.findall(r"Serving at (\S+)", log.read_text())
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0, log.read_text()


def until(there: Any) -> None:
    end = time.monotonic() + LONG
    while not there():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_compose_file_s_commands_serve_and_back_up_a_store_on_postgresql(
    postgres_server: Server, tmp_path: Path, on_path: dict[str, str]
) -> None:
    """The image's own commands, with this machine's database, folder and port in place of the containers'."""
    database, files = postgres_server.url(), str(tmp_path / "files")
    here = {"postgresql://taps@db/taps": database, "/store": files, "pocket": "tiny", "8000": "0"}
    here |= {"0.0.0.0": "127.0.0.1", COMPOSE["taps"]["command"][-1]: "localhost"}
    command = [here.get(word, word) for word in COMPOSE["taps"]["command"]]
    token = shell(f"taps token create '{database}' --files {files} --role admin", on_path).split()[-1]
    headers = {"Authorization": f"Bearer {token}"}
    with served([*command, "--processes", "1"], on_path, tmp_path / "log") as url:
        begin = {"name": "pets", "classes": ["cat", "dog"], "method": "zero_shot", "settings": {}}
        with httpx.Client(base_url=url, headers=headers, timeout=LONG) as client:
            assert client.post("/v1/streams", json=begin).is_success
            assert client.post("/v1/streams/pets/predict", files={"image": png(0)}).is_success
        kept = tmp_path / "backups"
        for year in (2001, 2002, 2003):
            (kept / f"{year}-01-01T000000Z").mkdir(parents=True)
        (kept / "2004-01-01T000000Z.part").mkdir()
        _, script, *arguments = COMPOSE["backup"]["entrypoint"]
        here["/backups"] = str(kept)
        words = [str(ROOT / "deploy" / script.strip("/")), *(here.get(word, word) for word in arguments)]
        copy = Path(shell(shlex.join(words), on_path | {"KEEP": "2"}).splitlines()[-1])
    assert sorted(path.name for path in kept.iterdir()) == ["2003-01-01T000000Z", copy.name]
    with closing(sqlite3.connect(copy / "store.sqlite")) as tables:
        assert tables.execute("SELECT count(*) FROM predictions").fetchone() == (1,)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="there is no caddy (Debian: apt-get install caddy)")
def test_behind_the_proxy_all_is_encrypted_and_the_service_knows(
    url: str, service: Any, tmp_path: Path
) -> None:
    """The proxy's own file on another port; it makes a certificate of its own for localhost."""
    port = free_port()
    options = "{\n skip_install_trust\n auto_https disable_redirects\n admin off\n}\n"
    (tmp_path / "Caddyfile").write_text(options + (ROOT / "deploy" / "Caddyfile").read_text())
    env = os.environ | {
        "TAPS_HOST": f"localhost:{port}", "TAPS_UPSTREAM": url.removeprefix("http://"), "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path),
    }  # fmt: skip
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        authority = tmp_path / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        until(authority.is_file)
        trusted = ssl.create_default_context(cafile=authority)
        until(lambda: answers(port, trusted))
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted, timeout=LONG) as client:
            assert client.get("/healthz").headers["Strict-Transport-Security"]
            secret = {"Authorization": f"Bearer {Tokens(service.store).create('tester', ('label',))[1]}"}
            until(lambda: client.get("/v1/session", headers=secret).is_success)  # it is known within a second
            signed = client.post("/v1/session", headers=secret)
            assert "secure" in signed.headers["Set-Cookie"].lower()
    finally:
        process.terminate()
        process.wait()


def answers(port: int, trusted: ssl.SSLContext) -> bool:
    try:
        return httpx.get(f"https://localhost:{port}/healthz", verify=trusted, timeout=LONG).is_success
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def test_the_dashboard_asks_for_metrics_that_there_are(http: TestClient) -> None:
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    asked = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    http.post("/v1/streams", json={"name": "pets", "classes": ["cat", "dog"], "method": "zero_shot"})
    there = http.get("/metrics").text
    given = {line.partition("{")[0].partition(" ")[0] for line in there.splitlines() if line[0] != "#"}
    wanted = set(re.findall(r"\btaps_\w+", asked))
    assert wanted <= given, wanted - given
    for name in ("taps_up", "taps_queue", "taps_events", "taps_open_questions", "taps_troubled"):
        assert name in wanted, name


def test_no_two_panels_of_the_dashboard_overlap() -> None:
    panels = json.loads((ROOT / "deploy" / "grafana.json").read_text())["panels"]
    places = [panel["gridPos"] for panel in panels]
    spans = [(range(p["x"], p["x"] + p["w"]), range(p["y"], p["y"] + p["h"])) for p in places]
    cells = [cell for span in spans for cell in itertools.product(*span)]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
