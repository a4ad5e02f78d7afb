"""What is believed of every image, predictions that are accepted, and questions on request, over HTTP."""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from taps.asking.question import class_seconds
from taps.data import load_dataset
from taps.learner import alike
from taps.model.clip import Clip
from taps.serve import folder
from taps.serve.errors import StoreDownError
from taps.serve.folder import Folder, pool_settings
from taps.serve.records import StreamConfig
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from taps.streams.predict import load_learner
from taps.streams.sequence import make_stream

SETTINGS = pool_settings(4, 24)


class Running:
    """A folder that is labelled, and its page's client."""

    def __init__(self, service: Service, made: Folder, url: str) -> None:
        self.service, self.made, self.url = service, made, url
        base = f"{url}/v1/streams/photos"
        self.http = httpx.Client(base_url=base, trust_env=False, timeout=300)

    def answer(self) -> int:
        """Answer all open questions truly; how many there were."""
        found = self.http.get("/queries").json()
        for query in found:
            self.label(query)
        return len(found)

    def label(self, query: dict[str, Any]) -> None:
        answer = {"label": query["name"].split("/")[0]}
        self.http.post(f"/predictions/{query['id']}/label", json=answer).raise_for_status()

    def finish(self) -> None:
        while self.made.ask():
            self.answer()


def folder_of(service: Service, pictures: Path) -> Folder:
    dataset = load_dataset(str(pictures))
    stream = make_stream(dataset, 0)
    made = Folder(service, "photos", dataset, stream.order, stream.path)
    beginning = StreamConfig("photos", list(dataset.classes), "zero_shot+", SETTINGS, 0, None, 0.0)
    made.begin(beginning, given=False, questions=4)
    return made


@pytest.fixture
def running(pictures: Path, tiny: Clip, tmp_path: Path) -> Iterator[Running]:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = folder_of(service, pictures)
        with serving(service) as url:
            made.feed(lambda done: None)
            running = Running(service, made, url)
            with running.http:
                yield running


def fail(*_: object, **__: object) -> None:
    raise StoreDownError("The disk is full.", retry_after=1)


def test_a_store_that_is_down_is_told_at_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "predictions", fail)
    assert running.http.get("/review").status_code == 503


def test_a_known_answer_is_asked_about_although_the_store_failed_meanwhile(
    pictures: Path, tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = [fail, folder.ask_known]
    monkeypatch.setattr(folder, "ask_known", lambda session, **given: acts.pop(0)(session, **given))
    monkeypatch.setattr(folder, "RETRY_SECONDS", 0.01)
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = folder_of(service, pictures)
        made.want(0)
        made.known = {made.name(3): "ant"}
        made.feed(lambda done: None)
        assert [belief.row.name for belief in made.beliefs() if belief.row.asked] == [made.name(3)]


def test_the_least_sure_come_first_and_a_correction_changes_what_is_believed(running: Running) -> None:
    running.finish()
    found = running.http.get("/review").json()
    assert len(found) == 24
    probabilities = [each["probability"] for each in found]
    assert probabilities == sorted(probabilities)
    assert sum(each["by"] == "person" for each in found) == 4
    assert {each["probability"] for each in found if each["by"] == "person"} == {1.0}
    wrong = next(each for each in found if each["by"] == "model")
    running.label(wrong)
    (now,) = [each for each in running.http.get("/review").json() if each["id"] == wrong["id"]]
    assert (now["by"], now["label"]) == ("person", wrong["name"].split("/")[0])


def test_accepted_predictions_are_in_the_table_until_they_are_believed_no_more(
    running: Running, tmp_path: Path
) -> None:
    running.finish()
    found = [each for each in running.http.get("/review").json() if each["by"] == "model"]
    label = found[-1]["label"]
    ids = [each["id"] for each in found if each["label"] == label]
    body = {"label": label, "above": 0.3, "ids": ids}
    assert running.http.post("/accept", json=body).json() == {"accepted": len(ids)}
    other = next(each["id"] for each in running.http.get("/review").json() if each["by"] == "person")
    refused = running.http.post("/accept", json=body | {"ids": [*ids, other]})
    assert refused.status_code == 409
    assert f"1 of these images are no longer predicted as '{label}'" in refused.json()["detail"]
    now = {each["id"]: each for each in running.http.get("/review").json()}
    assert {id for id, each in now.items() if each["accepted_by"]} == set(ids)
    running.made.write(tmp_path)
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines()))
    accepted = {row["path"]: row["accepted_above"] for row in rows if row["accepted_by"]}
    assert accepted == {now[id]["name"]: "0.3000" for id in ids}
    running.label(now[ids[0]])  # what a person says counts for more
    again = {each["id"]: each for each in running.http.get("/review").json()}
    assert again[ids[0]]["accepted_by"] is None


def test_acceptance_is_in_the_log_and_changes_no_learner(running: Running) -> None:
    running.finish()
    log = running.service.worker("photos").session.learner_log
    state = lambda: running.service.send("photos", lambda s: log.learner().state_dict()["values"]).result()  # noqa: E731
    before, found = state(), running.http.get("/review").json()[0]
    running.http.post("/accept", json={"label": found["label"], "above": 0, "ids": [found["id"]]})
    log.drop()
    assert state() == before
    assert running.service.store.events(log.stream.id, kind="accepted")[0].value["ids"] == [found["id"]]


def test_images_alike_are_the_nearest_that_are_predicted_as_the_same(running: Running) -> None:
    running.finish()
    log = running.service.worker("photos").session.learner_log
    queries = log.learner().executor.learners._of(log.stream.id).desk.queries
    kept = {id: item.feature.double().numpy() for id, item in {**queries.pending, **queries.recent}.items()}
    now = {each["id"]: each["label"] for each in running.http.get("/review").json()}
    centre = sum(kept.values()) / len(kept)
    sizes = set()
    for id in kept:
        likeness = {}
        for other in kept.keys() - {id}:
            one, two = kept[id] - centre, kept[other] - centre
            likeness[other] = float(one @ two / math.sqrt((one @ one) * (two @ two)))
        same = [other for other in likeness if now[other] == now[id] and likeness[other] >= alike.ALIKE]
        wanted = [id, *sorted(same, key=likeness.__getitem__, reverse=True)[:11]]
        question = class_seconds(3)
        pays = question + len(wanted) < question * len(wanted)
        found = running.http.get(f"/predictions/{id}/alike").json()
        assert found["ids"] == (wanted if pays else [id])
        sizes.add(len(found["ids"]))
    assert len(sizes) > 1


def test_labelled_images_are_in_no_group_and_unknown_ones_are_refused(running: Running) -> None:
    running.finish()
    done = [each["id"] for each in running.http.get("/review").json() if each["by"] == "person"]
    groups = [running.http.get(f"/predictions/{id}/alike").json()["ids"] for id in range(24)]
    assert [groups[id] for id in done] == [[id] for id in done]
    assert not {each for id, ids in enumerate(groups) if id not in done for each in ids} & set(done)
    assert running.http.get("/predictions/99/alike").status_code == 404


def test_more_questions_come_on_request(running: Running) -> None:
    running.finish()
    status = running.http.get("/folder").json()
    assert (status["answered"], status["wanted"], status["images"]) == (4, 4, 24)
    assert running.http.post("/folder/questions", json={"questions": 3}).json()["wanted"] == 7
    running.finish()
    assert running.http.get("/folder").json()["answered"] == 7
    assert running.http.post("/folder/questions", json={"questions": 0}).status_code == 422


def test_a_stream_without_a_folder_says_so(running: Running) -> None:
    running.service.folders.clear()
    assert running.http.get("/folder").status_code == 404
    assert len(running.http.get("/review").json()) == 24


def test_a_question_shows_what_the_model_says_by_now(running: Running) -> None:
    (first, *_) = running.http.post("/queries/lease", json={"holder": "page-0001", "count": 3}).json()
    others = [each for each in running.http.get("/queries").json() if each["id"] != first["prediction"]["id"]]
    for query in others:
        running.label(query)
    (now, *_) = running.http.post("/queries/lease", json={"holder": "page-0001", "count": 1}).json()
    assert now["prediction"]["id"] == first["prediction"]["id"]
    id, log = now["prediction"]["id"], running.service.worker("photos").session.learner_log
    likeliest = float(log.learner().repredict_kept([id])[id].max())
    assert now["prediction"]["top"][0]["probability"] == pytest.approx(likeliest)
    assert now["prediction"]["top"] != first["prediction"]["top"]


def test_the_result_is_taken_home(running: Running, tmp_path: Path) -> None:
    running.finish()
    found = {each["name"]: each for each in running.http.get("/review").json()}
    rows = list(csv.DictReader(running.http.get("/result").text.splitlines()))
    assert {row["path"]: row["final"] for row in rows} == {
        name: each["label"] for name, each in found.items()
    }
    packed = running.http.get("/result", params={"format": "zip"})
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        names = sorted(archive.namelist())
        wanted = [f"{e['label']}/{e['id']:06d}-{name.split('/')[1]}" for name, e in found.items()]
        assert names == sorted(wanted)
        first = wanted[0]
        assert archive.read(first) == running.made.dataset.source.read(next(iter(found)))
    saved = running.http.get("/result", params={"format": "learner"})
    with zipfile.ZipFile(io.BytesIO(saved.content)) as archive:
        archive.extractall(tmp_path / "unpacked")
    (tmp_path / "learner.zip").write_bytes(saved.content)
    for place in ("learner.zip", "unpacked", "unpacked/learner"):
        learner = load_learner(tmp_path / place)
        assert (learner.answered, learner.seen) == (4, 24)
    assert not list(running.service.store.files.glob("export-*"))


def test_the_export_says_why_an_image_was_asked_about(running: Running) -> None:
    """One drawn at random has no score of its own on record; no cell holds the mark that stands for it."""
    while running.made.ask():
        running.answer()
    act = partial(StreamSession.ask_next, who="test", drawn=True)
    asked = running.service.send("photos", act).result()
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(running.http.get("/export").text))}
    drawn = rows[str(asked.row.id)]
    assert (drawn["why"], drawn["score"]) == ("random", "")
    assert {row["why"] for row in rows.values()} >= {"", "score", "random"}
    assert not any(row["score"] and float(row["score"]) > 1 for row in rows.values())
