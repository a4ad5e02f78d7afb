"""The real Label Studio on loopback, with a profile that is thrown away, and a project in it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PROGRAM = os.environ.get("TAPS_LABEL_STUDIO", "")
USER, PASSWORD = "a@example.org", "longpassword1"
TOKEN = "0123456789abcdef0123456789abcdef01234567"
PATIENCE = 300.0  # seconds


@contextmanager
def running(folder: Path) -> Iterator[httpx.Client]:
    """Label Studio with its data in a folder; a client that is signed in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "LABEL_STUDIO_BASE_DATA_DIR": str(folder / "studio"),
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "SSRF_PROTECTION_ENABLED": "false", "ML_BLOCK_LOCAL_IP": "false", "COLLECT_ANALYTICS": "false",
    }  # fmt: skip
    command = [
        PROGRAM, "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port),
        "--host", f"http://127.0.0.1:{port}", "--username", USER, "--password", PASSWORD,
        "--user-token", TOKEN,
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        headers = {"Authorization": f"Token {TOKEN}"}
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False
            ) as client:
                until(lambda: client.get("/health").status_code == 200 or None, "Label Studio")
                yield client
        finally:
            process.terminate()
            process.wait(30)


def until(found: Callable[[], Any], what: str) -> Any:
    """Ask again and again until there is an answer."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if (answer := found()) is not None:
                return answer
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise TimeoutError(f"{what} did not come")


def fine(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, answer.text[:500]
    return answer.json() if answer.content else None


def make_project(studio: httpx.Client, title: str, config: str, images: Mapping[str, bytes]) -> int:
    """A project with images that are uploaded; its number."""
    project = fine(studio.post("/api/projects", json={"title": title, "label_config": config}))["id"]
    for name, data in images.items():
        fine(studio.post(f"/api/projects/{project}/import", files={"file": (name, data)}))
    return int(project)


def shown(studio: httpx.Client, task: int) -> Any:
    """The prediction that somebody sees who opens a task; None while there is none."""
    found = fine(studio.get(f"/api/tasks/{task}/"))["predictions"]
    return found[0] if found else None
