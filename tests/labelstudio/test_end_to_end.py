"""The real Label Studio on loopback: project, tasks, predictions, annotation, a learner that has learnt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from taps.model.clip import Clip
from taps.serve.labelstudio import LabelStudio
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.labelstudio.studio import PROGRAM, fine, make_project, running, shown, until
from tests.serve.conftest import png
from tests.serve.test_labelstudio import CONFIG

pytestmark = pytest.mark.slow


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[httpx.Client]:
    if not PROGRAM:
        pytest.skip("TAPS_LABEL_STUDIO names no label-studio; run `make labelstudio`")
    with running(tmp_path) as client:
        yield client


def test_a_project_gets_predictions_and_teaches(studio: httpx.Client, tiny: Clip, tmp_path: Path) -> None:
    here = LabelStudio(str(studio.base_url).rstrip("/"), fine(studio.post("/api/token/"))["token"])
    with Service(Store(str(tmp_path / "store")), tiny) as service, serving(service, studio=here) as url:
        _, secret = Tokens(service.store).create("studio", ("admin",))
        health = f"{url}/label-studio/health"
        until(lambda: httpx.get(health).status_code == 401 or None, "The need of a token")
        url = url.replace("//", f"//taps:{secret}@")  # the webhook is told nothing else
        project = make_project(studio, "pets", CONFIG, {f"{number}.png": png(number) for number in range(3)})
        fine(studio.post("/api/ml", json={"project": project, "url": f"{url}/label-studio", "title": "taps"}))
        name = f"label-studio-{project}"
        assert name in service.workers  # it was set up
        tasks = fine(studio.get("/api/tasks", params={"project": project, "fields": "all"}))["tasks"]
        for task in tasks:  # looked at, as somebody does who opens it
            found = until(lambda task=task: shown(studio, task["id"]), "The prediction")
            assert found["result"][0]["value"]["choices"][0] in ("cat", "dog", "ship")
        choice = {"from_name": "kind", "to_name": "image", "type": "choices", "value": {"choices": ["ship"]}}
        first = tasks[0]["id"]
        made = fine(studio.post(f"/api/tasks/{first}/annotations/", json={"result": [choice]}))

        def answers() -> dict[str, str | None]:
            rows = service.store.predictions(service.stream(name).id)
            return {row.name: row.answer for row in rows}

        assert until(lambda: answers()[f"task {first}"], "The annotation") == "ship"
        learner = service.worker(name).session.learner_log.learner()
        assert learner.summary()["answered"] == 1
        fine(studio.delete(f"/api/annotations/{made['id']}/"))
        until(lambda: answers()[f"task {first}"] is None or None, "The deletion")
        assert learner.summary()["answered"] == 0
