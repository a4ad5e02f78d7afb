"""Leases, labels nobody asked for, second looks, pictures: what the labelling page is made of."""

from __future__ import annotations

import csv
import io
from threading import Event, Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from taps import Learner
from taps.methods.plus import ZeroShotPlusSettings
from taps.model.clip import Clip
from taps.serve.leases import AWAY, Leases
from taps.serve.routes.questions import _budget
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from taps.streams.row import Row
from tests.serve.conftest import ASKING, CLASSES, beginning, client_of, png
from tests.serve.test_routes import S, ask, begin, send

ANNE, BERT = "anne-0001", "bert-0001"


def lease(http: TestClient, holder: str, count: int = 2, **more: object) -> list[int]:
    answer = http.post(f"{S}/queries/lease", json={"holder": holder, "count": count, **more})
    assert answer.status_code == 200, answer.text
    return [each["prediction"]["id"] for each in answer.json()]


def test_two_annotators_never_hold_the_same_question(http: TestClient) -> None:
    begin(http)
    waiting = ask(http, 5)
    anne, bert = lease(http, ANNE), lease(http, BERT)
    assert anne == waiting[:2]
    assert bert == waiting[2:4]
    assert lease(http, ANNE) == anne
    http.post(f"{S}/queries/{anne[0]}/label", json={"label": "cat"})
    assert lease(http, ANNE) == [anne[1], waiting[4]]
    assert lease(http, BERT, first=anne[1]) == bert  # another's is not given away
    assert lease(http, ANNE, 0) == []
    assert lease(http, BERT, first=anne[1]) == [anne[1], bert[0]]


def test_a_question_answered_while_another_annotator_takes_some_is_not_given_to_him(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading the open questions and holding some, another answers and takes his next."""
    begin(http)
    waiting = ask(http, 2)
    assert lease(http, BERT, 1) == waiting[:1]
    read, others = Store.predictions, []

    def answer_and_take() -> None:
        http.post(f"{S}/queries/{waiting[0]}/label", json={"label": "cat"})
        lease(http, BERT, 1)

    def read_slowly(store: Store, *given: Any, **named: Any) -> list[Row]:
        rows = read(store, *given, **named)
        if not others:
            others.append(Thread(target=answer_and_take))
            others[0].start()
            others[0].join(1.0)  # it may have to wait for this one
        return rows

    monkeypatch.setattr(Store, "predictions", read_slowly)
    assert waiting[0] not in lease(http, ANNE, 2)
    others[0].join()


def test_a_lease_ends_and_the_question_is_free() -> None:
    now = [0.0]
    leases = Leases(10.0, lambda: now[0])
    assert leases.take(1, ANNE, [4, 7], 2) == {4: 10.0, 7: 10.0}
    assert leases.take(1, BERT, [4, 7], 2) == {}
    assert leases.take(2, BERT, [4], 2) == {4: 10.0}  # another stream
    now[0] = 9.0
    leases.take(1, ANNE, [4, 7], 1)
    now[0] = 11.0
    assert leases.take(1, BERT, [4, 7], 2) == {7: 21.0}
    now[0] = 19.5
    assert leases.take(1, BERT, [4, 7], 2) == {7: 29.5, 4: 29.5}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]), st.sets(st.integers(0, 9)), st.integers(0, 4), st.integers(0, 6)
        )
    )
)
def test_no_question_is_ever_held_twice(steps: list[tuple[str, set[int], int, int]]) -> None:
    now = [0.0]
    leases, holds = Leases(10.0, lambda: now[0]), {}
    for holder, open, count, passed in steps:
        now[0] += passed
        taken = leases.take(1, holder, sorted(open), count)
        others = {
            id for who, held in holds.items() if who != holder for id, end in held.items() if end > now[0]
        }
        assert not others & taken.keys()
        assert set(taken) <= open
        assert len(taken) == min(count, len(open - others))
        holds = {who: {id: end for id, end in held.items() if id in open} for who, held in holds.items()}
        holds[holder] = taken


def test_a_page_that_is_gone_keeps_its_questions_for_a_moment() -> None:
    now = [0.0]
    leases = Leases(patience=60, clock=lambda: now[0])
    with leases.listening(1, "anne"):
        with leases.listening(1, "anne"):  # it connects again before the first connection is known to be lost
            leases.take(1, "anne", [5, 6], 2)
        now[0] = AWAY + 1
        assert leases.take(1, "bert", [5, 6], 2) == {}
    assert leases.take(1, "bert", [5, 6], 2) == {}
    now[0] += AWAY + 0.1
    assert set(leases.take(1, "bert", [5, 6], 2)) == {5, 6}


def test_a_question_says_why(http: TestClient, service: Service) -> None:
    service.create(beginning("sure", settings={"views": 2, "policy": "fixed", "tau0": 0.0, "rate": 0.2}), "x")
    service.create(
        beginning("close", method="zero_shot+", settings={"rate": 0.9, "acquisition": "margin"}), "x"
    )
    for stream in ("sure", "close"):
        for number in range(4):
            http.post(f"/v1/streams/{stream}/predict", content=png(number))
    sure, close = (
        http.post(f"/v1/streams/{stream}/queries/lease", json={"holder": ANNE}).json()[0]
        for stream in ("sure", "close")
    )
    assert sure["why"]["rule"] == "entropy"
    assert f"{sure['prediction']['entropy']:.2f}, and it asks above 0.00" in sure["why"]["text"]
    assert sure["why"]["budget"] == "4 questions for 4 images: 100.0%, of 20.0% allowed."
    first, second = close["prediction"]["top"][:2]
    assert first["label"] in close["why"]["text"]
    assert f"{second['probability']:.0%}" in close["why"]["text"]
    assert close["why"]["threshold"] is None


@pytest.mark.parametrize(
    ("policy", "budget", "says"),
    [
        ("paced", "soft", "1 of 3 questions are left."),
        ("paced", "hard", "1 of 3 questions are left."),
        ("paced", 8, "6 of 8 questions are left."),
        ("quantile", "soft", "2 questions for 4 images: 50.0%, of 11.0% allowed."),
    ],
)
def test_what_is_left_is_said_as_the_policy_spends_it(policy: str, budget: str | int, says: str) -> None:
    settings = ZeroShotPlusSettings(policy=policy, budget=budget, rate=0.11, expected=20)
    assert _budget(settings, {"spent": 2, "seen": 4, "questions": {"yes_no": 0}})[0] == says


def test_a_yes_or_no_is_part_of_a_question(http: TestClient, service: Service) -> None:
    settings = {
        "rate": 1.0,
        "budget": 20,
        "questions": "yes_no",
        "class_seconds": 10.0,
        "yes_no_seconds": 5.0,
    }
    service.create(beginning("pets", method="zero_shot+", settings=settings), "x")
    for number in range(6):
        http.post("/v1/streams/pets/predict", content=png(number))
    why = http.post("/v1/streams/pets/queries/lease", json={"holder": ANNE}).json()[0]["why"]
    assert why["asked"] > 1
    left = 20 - why["asked"] / 2
    assert why["spent"] == why["asked"] / 2
    assert why["budget"] == f"{left:g} of 20 questions are left. A yes or no counts as part of one."


def test_how_many_like_it_were_answered(http: TestClient, service: Service) -> None:
    service.create(beginning(settings={"views": 2, "policy": "fixed", "tau0": 0.0}), "x")
    said = [send(http, number) for number in range(8)]
    for each, label in zip(said[:6], ["cat", "cat", "dog", "dog", "ship", "ship"], strict=True):
        http.post(f"{S}/queries/{each['id']}/label", json={"label": label})
    for question in http.post(f"{S}/queries/lease", json={"holder": ANNE}).json():
        mine = question["prediction"]["label"]
        alike = [
            label
            for each, label in zip(said, ["cat", "cat", "dog", "dog", "ship", "ship"], strict=False)
            if each["label"] == mine
        ]
        assert (question["why"]["alike"], question["why"]["alike_right"]) == (len(alike), alike.count(mine))


def test_an_image_nobody_was_asked_about_is_corrected(http: TestClient, service: Service, tiny: Clip) -> None:
    begin(http, settings={**ASKING, "policy": "fixed", "tau0": 99.0})
    for number in range(5):
        send(http, number)
    assert http.post(f"{S}/queries/3/label", json={"label": "dog"}).status_code == 404
    changed = http.post(f"{S}/predictions/3/label", json={"label": "dog"}).json()
    assert (changed["prediction"]["state"], changed["prediction"]["asked"]) == ("corrected", False)
    stats = http.get(f"{S}/stats").json()
    assert (stats["asked"], stats["answered"], stats["corrected"], stats["learner"]["answered"]) == (
        0,
        0,
        1,
        1,
    )
    rows = list(csv.DictReader(io.StringIO(http.get(f"{S}/export?what=labels").text)))
    assert [(row["id"], row["answer"], row["asked"]) for row in rows] == [("3", "dog", "0")]
    plain = Learner(tiny, CLASSES, "taps", seed=1, **ASKING | {"policy": "fixed", "tau0": 0.0})
    for number in range(5):
        plain.predict_one(png(number))
    plain.learn_one(3, "dog")
    expected = plain.predict_one(png(5)).probs
    answer = {each["label"]: each["probability"] for each in send(http, 5)["top"]}
    assert [answer[name] for name in CLASSES] == pytest.approx(expected.tolist(), abs=0)
    undone = http.post(f"{S}/queries/3/undo").json()["prediction"]
    assert (undone["state"], undone["answer"]) == ("unqueried", None)
    assert http.get(f"{S}/queries").json() == []
    assert http.post(f"{S}/predictions/3/label", json={"label": "cat"}).json()["changed"]


def test_a_learner_that_keeps_no_images_says_so(http: TestClient) -> None:
    begin(http, settings={**ASKING, "policy": "fixed", "tau0": 99.0, "recent": 0})
    send(http, 0)
    refused = http.post(f"{S}/predictions/0/label", json={"label": "dog"})
    assert refused.status_code == 409
    assert "was not asked about" in refused.json()["detail"]


def test_corrections_survive_a_restart(http: TestClient, service: Service, tiny: Clip) -> None:
    begin(http, settings={**ASKING, "policy": "fixed", "tau0": 99.0})
    for number in range(3):
        send(http, number)
    http.post(f"{S}/predictions/1/label", json={"label": "ship"})
    expected = service.worker("pets").session.learner_log.learner().state_dict()["values"]
    service.stop()
    with Service(service.store, tiny) as again:
        for client in client_of(again):
            assert client.get(f"{S}/predictions/1").json()["answer"] == "ship"
            assert again.worker("pets").session.learner_log.learner().state_dict()["values"] == expected


def test_changes_are_told_once(http: TestClient, service: Service) -> None:
    begin(http, settings={**ASKING, "policy": "fixed", "tau0": 0.0})
    said = {each["id"]: each["label"] for each in (send(http, number) for number in range(8))}
    before = service.worker("pets").session.learner_log.learner().state_dict()["values"]
    assert http.get(f"{S}/changes").json() == {"looked": 8, "changed": []}
    assert service.worker("pets").session.learner_log.learner().state_dict()["values"] == before
    for id in range(4):
        http.post(f"{S}/queries/{id}/label", json={"label": "ship" if said[id] != "ship" else "dog"})
    found = http.get(f"{S}/changes").json()
    assert found["looked"] == 4
    learner = service.worker("pets").session.learner_log.learner()
    expected = {id: learner.repredict(id, png(id)).label for id in range(4, 8)}
    assert {each["id"]: each["now"] for each in found["changed"]} == {
        id: label for id, label in expected.items() if label != said[id]
    }
    assert http.get(f"{S}/changes").json()["changed"] == []


def test_a_head_predicts_again_without_the_images(
    http: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(http, method="zero_shot+", settings={"policy": "fixed", "tau0": 0.0, "acquisition": "entropy"})
    said = {each["id"]: each["label"] for each in (send(http, number) for number in range(8))}
    for id in range(4):
        http.post(f"{S}/queries/{id}/label", json={"label": "ship" if said[id] != "ship" else "dog"})

    def fail(*_: object) -> None:
        raise AssertionError("the model was used")

    monkeypatch.setattr(Learner, "predict_one", fail)
    found = http.get(f"{S}/changes").json()
    assert found["looked"] == 4
    now = service.send("pets", lambda session: session.repredict_kept(range(4, 8))).result()
    assert {each["id"]: each["now"] for each in found["changed"]} == {
        id: top[0][0] for id, top in now.items() if top[0][0] != said[id]
    }


def test_no_further_image_is_looked_at_while_somebody_waits(
    http: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(http, settings={**ASKING, "policy": "fixed", "tau0": 0.0})
    for number in range(8):
        send(http, number)
    begun, goes_on, over = Event(), Event(), Event()
    repredict = StreamSession.repredict

    def held_up(session: StreamSession, row: Row, data: bytes | None = None) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return repredict(session, row, data)

    monkeypatch.setattr(StreamSession, "repredict", held_up)
    found: list[Any] = []
    looking = Thread(target=lambda: found.append(http.get(f"{S}/changes").json()))
    looking.start()
    assert begun.wait(60)
    waiting = [service.send("pets", lambda session: over.wait(60)) for _ in range(2)]
    goes_on.set()
    looking.join()
    over.set()
    assert [each.result() for each in waiting] == [True, True]
    assert found[0]["looked"] == 1


def test_pictures_fit_and_are_jpeg(http: TestClient) -> None:
    begin(http)
    made = io.BytesIO()
    Image.new("RGB", (300, 100), (200, 30, 30)).save(made, "TIFF")
    id = http.post(f"{S}/predict", content=made.getvalue()).json()["id"]
    answer = http.get(f"{S}/predictions/{id}/picture?size=150")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert (image.format, image.size) == ("JPEG", (150, 50))
    assert http.get(f"{S}/predictions/{id}/picture?size=5000").status_code == 422
