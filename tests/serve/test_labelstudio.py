"""Label Studio's requests, as it sends them, against a small server that plays its file storage."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from taps.cli import main
from taps.serve.errors import ForbiddenError, UnusableError
from taps.serve.labelstudio import LabelStudio, read_config
from taps.serve.options import Limits
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import client_of, once, png

CONFIG = """<View>
  <Image name="image" value="$photo"/>
  <Choices name="kind" toName="image">
    <Choice value="cat"/><Choice value="dog"/><Choice value="ship"/></Choices>
</View>"""
L = "/label-studio"
SETUP = {
    "project": "3.1731700000", "schema": CONFIG, "hostname": "http://localhost:8080",
    "access_token": "secret", "extra_params": None,
}  # fmt: skip

SETUP_PROJECT = {"id": 3, "label_config": CONFIG}


class Files(BaseHTTPRequestHandler):
    """/data/upload/3/N.png is picture N, for those who have the token, /open/N.png for all.

    /away leads elsewhere.
    """

    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/")
            self.end_headers()
            return
        fine = self.path.startswith("/open/") or self.headers["Authorization"] in (
            "Token secret",
            "Bearer lent",
        )
        self.send_response(200 if fine else 401)
        self.end_headers()
        if fine:
            self.wfile.write(png(int(self.path.rpartition("/")[2].removesuffix(".png"))))

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fine = (self.path, sent) == ("/api/token/refresh/", {"refresh": "a.long.one"})
        self.send_response(200 if fine else 401)
        self.end_headers()
        self.wfile.write(b'{"access": "lent"}')
        self.seen.append("exchanged")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def studio() -> Iterator[LabelStudio]:
    Files.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield LabelStudio(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.fixture
def http(service: Service, studio: LabelStudio) -> Iterator[TestClient]:
    yield from client_of(service, studio=studio)


def task(id: int, photo: str | None = None) -> dict[str, object]:
    return {"id": id, "data": {"photo": photo or f"/data/upload/3/{id}.png"}}


def predict(http: TestClient, *tasks: dict[str, object]) -> list[dict]:
    body = {
        "tasks": list(tasks), "project": "3.1731700000", "label_config": CONFIG,
        "params": {"login": None, "password": None, "context": None},
    }  # fmt: skip
    answer = http.post(f"{L}/predict", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def annotated(
    id: int, label: str, action: str = "ANNOTATION_CREATED", number: int = 9, skipped: bool = False
) -> dict[str, object]:
    value = {"from_name": "kind", "to_name": "image", "type": "choices", "value": {"choices": [label]}}
    return {
        "action": action, "project": SETUP_PROJECT, "task": task(id),
        "annotation": {"id": number, "result": [value], "was_cancelled": skipped},
    }  # fmt: skip


def told(http: TestClient, body: dict[str, object]) -> object:
    """Send a webhook, and wait until what it says is done."""
    answer = http.post(f"{L}/webhook", json=body)
    assert answer.status_code == 202
    http.app.state.taps.studio.in_order.submit(bool).result(60)  # type: ignore[attr-defined]
    return answer.json()


def test_a_project_is_predicted_and_teaches(http: TestClient, service: Service) -> None:
    assert http.get(f"{L}/health").json()["status"] == "UP"
    assert http.post(f"{L}/setup", json=SETUP).json() == {"model_version": "label-studio-3"}
    first, second = predict(http, task(1), task(2))
    assert first["result"][0]["from_name"] == "kind"
    assert first["result"][0]["value"]["choices"][0] in ("cat", "dog", "ship")
    assert 1 / 3 <= first["score"] <= 1
    told(http, annotated(1, "ship"))
    told(http, annotated(5, "dog"))  # never predicted before
    answers = {
        row["name"]: row["answer"] for row in http.get("/v1/streams/label-studio-3/predictions").json()
    }
    assert answers == {"task 1": "ship", "task 2": None, "task 5": "dog"}
    told(http, annotated(1, "cat", "ANNOTATION_UPDATED"))
    assert http.get("/v1/streams/label-studio-3/predictions/0").json()["answer"] == "cat"
    assert service.worker("label-studio-3").session.learner_log.learner().summary()["answered"] == 2
    (again,) = predict(http, task(2))
    assert again["score"] != second["score"]  # what was learnt counts for tasks seen before
    assert service.worker("label-studio-3").session.learner_log.learner().summary()["seen"] == 3
    assert http.post(f"{L}/webhook", json={"action": "PROJECT_UPDATED"}).json() == {"status": "ignored"}


def test_a_deleted_annotation_is_forgotten(http: TestClient, service: Service) -> None:
    def send(body: dict[str, object]) -> str | None:
        assert told(http, body) == {"status": "taken"}
        return http.get("/v1/streams/label-studio-3/predictions/0").json()["answer"]

    deleted = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 9}], "project": SETUP_PROJECT}
    http.post(f"{L}/setup", json=SETUP)
    _, before = predict(http, task(1), task(2))
    assert send(annotated(1, "ship")) == "ship"
    assert predict(http, task(2)) != [before]
    assert send(deleted) is None
    assert predict(http, task(2)) == [before]
    assert service.worker("label-studio-3").session.learner_log.learner().summary()["answered"] == 0
    send(annotated(1, "ship"))
    assert send(annotated(1, "cat", number=10)) == "cat"
    assert send(deleted) == "cat"  # another annotation has taken its place
    assert send(annotated(1, "cat", "ANNOTATION_UPDATED", number=10, skipped=True)) is None


def test_two_requests_begin_a_project_at_the_same_moment(
    http: TestClient, studio: LabelStudio, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds that the stream, and then the new class, is not there."""
    more = CONFIG.replace("</Choices>", '<Choice value="bird"/></Choices>')
    for config, name in ((CONFIG, "create"), (more, "send")):
        other = partial(studio.project, service, Limits(), "3", config)
        with monkeypatch.context() as patch:
            real = getattr(Service, name)
            patch.setattr(Service, name, once(real, other, before=name == "create"))
            assert studio.project(service, Limits(), "3", config).name == "label-studio-3"
    summary = service.worker("label-studio-3").session.learner_log.learner().classes
    assert summary == ("cat", "dog", "ship", "bird")


def test_webhooks_count_in_the_order_in_which_they_came(
    http: TestClient, studio: LabelStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.post(f"{L}/setup", json=SETUP)
    first, second, fetch = threading.Event(), threading.Event(), LabelStudio.fetch

    def slow_first(self: LabelStudio, *given: Any) -> bytes:
        if first.is_set():
            second.set()
        first.set()
        second.wait(1.0)  # which may have to wait for this one
        return fetch(self, *given)

    monkeypatch.setattr(LabelStudio, "fetch", slow_first)
    sent = threading.Thread(target=http.post, args=(f"{L}/webhook",), kwargs={"json": annotated(1, "cat")})
    sent.start()
    assert first.wait(60)
    told(http, annotated(1, "dog", "ANNOTATION_UPDATED"))
    sent.join()
    assert http.get("/v1/streams/label-studio-3/predictions/0").json()["answer"] == "dog"


def test_an_annotation_replaced_while_it_is_deleted_stays(
    http: TestClient, studio: LabelStudio, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.post(f"{L}/setup", json=SETUP)
    told(http, annotated(1, "cat"))
    by_another = annotated(1, "dog", number=10)
    learn = partial(studio.projects["label-studio-3"].learn, by_another["task"], by_another["annotation"])
    monkeypatch.setattr(Store, "predictions", once(Store.predictions, learn))
    studio.projects["label-studio-3"].forget(9)
    assert http.get("/v1/streams/label-studio-3/predictions/0").json()["answer"] == "dog"


def test_images_come_from_there_and_nowhere_else(http: TestClient, studio: LabelStudio) -> None:
    http.post(f"{L}/setup", json=SETUP)
    for address in ("http://127.0.0.1:9/x.png", "file:///etc/passwd", "//elsewhere/1.png", "/away"):
        assert predict(http, task(1, address)) == [{"result": [], "score": 0.0}]
    with pytest.raises(ForbiddenError, match="alone"):
        studio.fetch("http://169.254.169.254/latest", Limits())
    other = LabelStudio("http://127.0.0.1:9", "secret", hosts=(studio.url.removeprefix("http://"),))
    assert other.fetch(f"{studio.url}/open/1.png", Limits()) == png(1)
    with pytest.raises(UnusableError, match="status 401"):  # allowed, and not given the token
        other.fetch(f"{studio.url}/1.png", Limits())
    assert Files.seen[-2:] == [None, None]
    with pytest.raises(ForbiddenError, match=r"not from '127\.0\.0\.1:8'; --image-hosts"):
        other.fetch("http://127.0.0.1:8/1.png", Limits())


@pytest.mark.parametrize("token", ["secret", "a.long.one"])
def test_a_label_studio_that_does_not_answer(
    http: TestClient, studio: LabelStudio, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The request goes on without the image, and the log says which annotation was not learnt."""
    http.post(f"{L}/setup", json=SETUP)
    studio.url, studio.token = "http://127.0.0.1:9", token
    assert predict(http, task(1), task(2, "http://[1.png")) == [{"result": [], "score": 0.0}] * 2
    told(http, annotated(1, "ship"))
    assert "Annotation 9 was not learned: " in caplog.text
    with pytest.raises(UnusableError, match=r"could not be (fetched|asked)"):
        studio.fetch("/data/upload/3/1.png", Limits())


def test_a_personal_access_token_is_exchanged(studio: LabelStudio) -> None:
    studio.token = "a.long.one"
    for _ in range(2):
        assert studio.fetch("/data/upload/3/1.png", Limits()) == png(1)
    assert Files.seen == ["exchanged", "Bearer lent", "Bearer lent"]
    studio.token, studio._lent = "an.old.one", ("", 0.0)
    with pytest.raises(UnusableError, match="does not take the access token; give LABEL_STUDIO_API_KEY"):
        studio.fetch("/data/upload/3/1.png", Limits())


@pytest.mark.parametrize("hosts", ["a.example.org, 10.0.0.5:9000", "https://a.example.org"])
def test_the_command_names_other_hosts(hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LabelStudio] = []

    class Server:
        def __init__(self, *_: object, studio: LabelStudio, **__: object) -> None:
            made.append(studio)

        def run(self) -> None:
            pass

    monkeypatch.setattr("taps.serve.run.make_server", Server)
    monkeypatch.setattr("taps.serve.telemetry.set_up_logs", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    words = ["serve", "--model", "tiny", "--processes", "0", "--store", str(tmp_path)]
    words += ["--label-studio", "http://localhost:8080"]
    monkeypatch.setattr("sys.argv", ["taps", *words, "--image-hosts", hosts])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert bool(ended.value.code) == ("/" in hosts)
    assert [each.hosts for each in made] == ([] if "/" in hosts else [("a.example.org", "10.0.0.5:9000")])


def test_tokens_count_here_too(http: TestClient) -> None:
    tokens = http.app.state.taps.tokens  # type: ignore[attr-defined]
    _, secret = tokens.create("studio", ("admin",))
    _, weak = tokens.create("annotator", ("label",))
    assert http.get(f"{L}/health").status_code == 401
    assert http.get(f"{L}/health", auth=("taps", weak)).status_code == 403
    assert http.get(f"{L}/health", auth=("taps", secret)).status_code == 200
    broken = {"Authorization": "Basic " + base64.b64encode(b"\xff").decode()}
    assert http.get(f"{L}/health", headers=broken).status_code == 401


@pytest.mark.parametrize("text", ["<View/>", "<View", '<!DOCTYPE x [<!ENTITY a "b">]><View/>', ""])
def test_configurations_that_make_no_sense(text: str) -> None:
    with pytest.raises(UnusableError):
        read_config(text)
