"""The real Label Studio on loopback: project, tasks, predictions, annotation, a learner that has learnt."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from taps.clip import Clip
from taps.serve.background import serving
from taps.serve.labelstudio import LabelStudio
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import png
from tests.serve.test_labelstudio import CONFIG

pytestmark = pytest.mark.slow
PROGRAM = os.environ.get("TAPS_LABEL_STUDIO", "")
TOKEN = "0123456789abcdef0123456789abcdef01234567"
PATIENCE = 300.0  # seconds


def until(found: Any, what: str) -> Any:
    """Ask again and again until there is an answer."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if (answer := found()) is not None:
                return answer
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    pytest.fail(f"{what} did not come")


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[httpx.Client]:
    if not PROGRAM:
        pytest.skip("TAPS_LABEL_STUDIO names no label-studio; run `make labelstudio`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path / "studio"),
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "SSRF_PROTECTION_ENABLED": "false", "ML_BLOCK_LOCAL_IP": "false", "COLLECT_ANALYTICS": "false",
    }  # fmt: skip
    command = [
        PROGRAM, "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port),
        "--host", f"http://127.0.0.1:{port}", "--username", "a@example.org", "--password", "longpassword1",
        "--user-token", TOKEN,
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        headers = {"Authorization": f"Token {TOKEN}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            until(lambda: client.get("/health").status_code == 200 or None, "Label Studio")
            yield client
        process.terminate()
        process.wait(30)


def fine(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, answer.text[:500]
    return answer.json() if answer.content else None


def test_a_project_gets_predictions_and_teaches(studio: httpx.Client, tiny: Clip, tmp_path: Path) -> None:
    here = LabelStudio(str(studio.base_url).rstrip("/"))
    with Service(Store(str(tmp_path / "store")), tiny) as service, serving(service, studio=here) as url:
        project = fine(studio.post("/api/projects", json={"title": "pets", "label_config": CONFIG}))["id"]
        for number in range(3):
            fine(
                studio.post(f"/api/projects/{project}/import", files={"file": (f"{number}.png", png(number))})
            )
        backend = {"project": project, "url": f"{url}/label-studio", "title": "taps"}
        fine(studio.post("/api/ml", json=backend))
        name = f"label-studio-{project}"
        assert name in service.owners  # it was set up
        tasks = fine(studio.get("/api/tasks", params={"project": project, "fields": "all"}))["tasks"]
        for task in tasks:  # looked at, as somebody does who opens it
            found = until(lambda task=task: shown(studio, task["id"]), "The prediction")
            assert found["result"][0]["value"]["choices"][0] in ("cat", "dog", "ship")
        choice = {"from_name": "kind", "to_name": "image", "type": "choices", "value": {"choices": ["ship"]}}
        first = tasks[0]["id"]
        fine(studio.post(f"/api/tasks/{first}/annotations/", json={"result": [choice]}))
        number = service.stream(name).id

        def learnt() -> str | None:
            rows = service.store.predictions(number)
            return next((row.answer for row in rows if row.name == f"task {first}" and row.answer), None)

        assert until(learnt, "The annotation") == "ship"
        assert service.owner(name).live.keeper.learner().answered == 1


def shown(studio: httpx.Client, task: int) -> Any:
    found = fine(studio.get(f"/api/tasks/{task}/"))["predictions"]
    return found[0] if found else None
