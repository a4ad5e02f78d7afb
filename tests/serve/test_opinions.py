"""Several annotators: questions asked twice, known answers, agreement, and what people disagree about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from taps.model.clip import Clip
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.test_review import folder_of

Person = Callable[[str], httpx.Client]


def lease(http: httpx.Client) -> list[dict[str, Any]]:
    found = http.post("/queries/lease", json={"holder": "somebody", "count": 20})
    return list(found.raise_for_status().json())


def put(http: httpx.Client, question: dict[str, Any], label: str) -> None:
    what = "opinion" if question["second"] else "label"
    id = question["prediction"]["id"]
    http.post(f"/predictions/{id}/{what}", json={"label": label}).raise_for_status()


def true(question: dict[str, Any]) -> str:
    return str(question["prediction"]["name"].split("/")[0])


@pytest.fixture
def service(tmp_path: Path, tiny: Clip) -> Any:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        yield service


@pytest.fixture
def person(service: Service, pictures: Path) -> Any:
    """Makes clients of people with names; one known answer, and every question is asked twice."""
    made = folder_of(service, pictures)
    made.known = {made.name(3): made.name(3).split("/")[0]}
    made.feed(lambda done: None)
    tokens = Tokens(service.store)
    secrets = {name: tokens.create(name, ("label", "admin"))[1] for name in ("Ann", "Ben")}
    with serving(service) as url, ExitStack() as held:

        def client(name: str) -> httpx.Client:
            headers = {"Authorization": f"Bearer {secrets[name]}"}
            base = f"{url}/v1/streams/photos"
            return held.enter_context(
                httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=300)
            )

        yield client


def test_a_second_person_is_asked_without_being_told_and_nothing_is_learned_twice(
    service: Service, person: Person
) -> None:
    ann, ben = person("Ann"), person("Ben")
    ann.put("/twice", json={"share": 1.0}).raise_for_status()
    mine = lease(ann)
    assert not any(question["second"] for question in mine)
    for question in mine:
        put(ann, question, true(question))
    assert [question for question in lease(ann) if question["second"]] == []  # not one's own
    labels = ann.get("/stats").json()["learner"]["head_labels"]
    again = [question for question in lease(ben) if question["second"]]
    assert {q["prediction"]["id"] for q in again} == {q["prediction"]["id"] for q in mine}
    assert all(q["prediction"]["answer"] is None and q["prediction"]["state"] == "open" for q in again)
    for question in again:
        put(ben, question, true(question))
    assert ben.get("/stats").json()["learner"]["head_labels"] == labels
    assert [question for question in lease(ben) if question["second"]] == []
    found = ann.get("/agreement").json()
    assert (found["images"], found["open"]) == (len(mine), [])


def test_a_disagreement_is_open_until_somebody_settles_it(service: Service, person: Person) -> None:
    ann, ben = person("Ann"), person("Ben")
    ann.put("/twice", json={"share": 1.0})
    for question in lease(ann):
        put(ann, question, true(question))
    first, *others = [question for question in lease(ben) if question["second"]]
    classes = ann.get("/stats").json()["learner"]["classes"]
    wrong = next(name for name in classes if name != true(first))
    put(ben, first, wrong)
    for question in others:
        put(ben, question, true(question))
    found = ann.get("/agreement").json()
    (open,) = found["open"]
    assert open["prediction"]["id"] == first["prediction"]["id"]
    assert {open["said"]["Ann"], open["said"]["Ben"]} == {true(first), wrong}
    assert found["alpha"] < 1
    assert found["low"] <= found["alpha"] <= found["high"]
    before = found["alpha"]
    ann.post(f"/predictions/{first['prediction']['id']}/label", json={"label": wrong}).raise_for_status()
    found = ann.get("/agreement").json()
    assert found["open"] == []
    assert found["alpha"] == before  # what they said at first


def test_an_opinion_is_taken_back_and_the_answer_stays(service: Service, person: Person) -> None:
    ann, ben = person("Ann"), person("Ben")
    ann.put("/twice", json={"share": 1.0})
    for question in lease(ann):
        put(ann, question, true(question))
    first = next(question for question in lease(ben) if question["second"])
    put(ben, first, true(first))
    id = first["prediction"]["id"]
    ben.delete(f"/predictions/{id}/opinion").raise_for_status()
    assert ben.get(f"/predictions/{id}").json()["answer"] == true(first)
    assert id in {question["prediction"]["id"] for question in lease(ben) if question["second"]}
    assert ann.get("/agreement").json()["images"] == 0


def test_nobody_is_asked_twice_unless_that_is_wanted(service: Service, person: Person) -> None:
    ann, ben = person("Ann"), person("Ben")
    for question in lease(ann):
        put(ann, question, true(question))
    assert not any(question["second"] for question in lease(ben))


def test_known_answers_tell_who_is_right(service: Service, person: Person) -> None:
    ann = person("Ann")
    classes = ann.get("/stats").json()["learner"]["classes"]
    ann.put("/twice", json={"share": 0.0})
    questions = lease(ann)
    for question in questions:
        put(ann, question, next(name for name in classes if name != true(question)))
    found = ann.get("/agreement").json()
    assert found["known"] == {"Ann": {"asked": 1, "right": 0}}
    (open,) = found["open"]
    assert set(open["said"]) == {"Ann", "gold"}
    assert (found["images"], found["alpha"]) == (0, None)


def test_opinions_survive_a_restart(service: Service, person: Person, tiny: Clip) -> None:
    ann, ben = person("Ann"), person("Ben")
    ann.put("/twice", json={"share": 1.0})
    for question in lease(ann):
        put(ann, question, true(question))
    for question in lease(ben):
        if question["second"]:
            put(ben, question, true(question))
    before, notes = ann.get("/agreement").json(), ann.get("/stats").json()["learner"]["notes"]
    service.worker("photos").send(lambda session: session.learner_log.drop()).result()
    assert ann.get("/agreement").json() == before
    assert ann.get("/stats").json()["learner"]["notes"] == notes
