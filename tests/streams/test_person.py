"""A person's answers are saved at once, and a stream that was stopped comes to the same bits."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from taps import Learner
from taps.data import load_dataset
from taps.model.clip import Clip
from taps.streams.annotators import Delayed, GroundTruth, Noisy, Reply, is_repeatable
from taps.streams.loop import Session, follow
from taps.streams.record import EVENTS, PREDICTIONS, Pace, Record, read_events
from taps.streams.score import RunningScore, StreamStep
from taps.streams.sequence import make_stream
from taps.types import Query
from tests.walks import same_state

NEVER = Pace(every=1000)  # no checkpoint but those that must be


class Person:
    """Answers by the name of the folder, skips every third question, and has enough at some point."""

    def __init__(self, patience: int = 1000, at_end: Callable[[], None] = lambda: None) -> None:
        self.asked: list[str] = []
        self.patience, self.at_end = patience, at_end

    def answer(self, query: Query) -> str | None:
        if len(self.asked) == self.patience:
            self.at_end()
            raise KeyboardInterrupt
        self.asked.append(query.path)
        return None if len(self.asked) % 3 == 0 else query.path.split("/")[0]


def sit_down(folder: Path, pictures: Path, clip: Clip, person: Person, pace: Pace = NEVER) -> Session:
    dataset = load_dataset(pictures)
    record = Record(folder, pace)
    fresh = Learner(clip, dataset.classes, "taps", seed=4, views=4, policy="random", rate=0.5, buffer=4)
    learner = record.learner(clip) or fresh
    return Session(learner, make_stream(dataset, 4), record, record.running(), lambda truth: person)


def run_through(folder: Path, pictures: Path, clip: Clip, person: Person) -> Session:
    folder.mkdir(exist_ok=True)
    session = sit_down(folder, pictures, clip, person)
    with closing(session.record):
        follow(session)
    return session


@pytest.mark.parametrize("patience", [1, 3, 4])
def test_stopped_at_a_question_no_answer_is_lost(
    tmp_path: Path, pictures: Path, tiny: Clip, patience: int
) -> None:
    patient = Person()
    whole = run_through(tmp_path / "whole", pictures, tiny, patient)
    tired = Person(patience)
    with pytest.raises(KeyboardInterrupt):
        run_through(tmp_path / "cut", pictures, tiny, tired)
    rested = Person()
    rested.asked = list(tired.asked)  # so that skips fall on the same questions
    again = run_through(tmp_path / "cut", pictures, tiny, rested)
    assert rested.asked == patient.asked  # no question is put twice but the one that was left open
    assert same_state(again.learner.state_dict(), whole.learner.state_dict())
    events = [list(read_events(tmp_path / run)) for run in ("cut", "whole")]
    assert [e for e in events[0] if e["event"] == "answered"] == [
        e for e in events[1] if e["event"] == "answered"
    ]


def test_an_answer_is_saved_before_the_next_question(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    saved: list[int] = []

    class Watching(Person):
        def answer(self, query: Query) -> str | None:
            copy = tmp_path / f"copy{len(saved)}"  # as if the process were killed now
            shutil.copytree(tmp_path / "run", copy)
            with closing(Record(copy)) as record:
                saved.append(record.running().asked)
            return super().answer(query)

    run_through(tmp_path / "run", pictures, tiny, Watching())
    assert saved == list(range(len(saved)))
    assert len(saved) > 5


def test_an_answer_is_on_the_disk_before_the_next_question(
    tmp_path: Path, pictures: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only with the operating system: a power cut must not cost a person's work."""
    sizes: dict[int, int] = {}  # of each file, by its inode, when it was last synced
    fsync = os.fsync

    def spy(file: int) -> None:
        fsync(file)
        status = os.fstat(file)
        sizes[status.st_ino] = status.st_size

    def on_disk(name: str) -> str:
        path = tmp_path / name
        return path.read_bytes()[: sizes.get(path.stat().st_ino, 0)].decode()

    class Watching(Person):
        def answer(self, query: Query) -> str | None:
            events = [json.loads(line) for line in on_disk(EVENTS).splitlines()]
            answered = sum(event["event"] == "answered" for event in events)
            assert answered == len(self.asked) - len(self.asked) // 3  # every third was skipped
            assert all(f"\n{path}," in on_disk(PREDICTIONS) for path in self.asked)
            return super().answer(query)

    monkeypatch.setattr(os, "fsync", spy)
    person = Watching()
    run_through(tmp_path, pictures, tiny, person)
    assert len(person.asked) > 5


def test_ctrl_c_finishes_the_image_and_saves(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    session = sit_down(tmp_path, pictures, tiny, Person())

    def interrupt(step: StreamStep, running: RunningScore) -> None:
        if running.position == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with closing(session.record), pytest.raises(KeyboardInterrupt):
        follow(session, progress=interrupt)
    assert session.record.position == session.running.position == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_a_person_is_asked_does_not_wait(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    person = Person(2, at_end=lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_through(tmp_path, pictures, tiny, person)
    assert len(person.asked) == 2


def test_prefetched_images_change_nothing(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    pictures = Path(shutil.copytree(pictures, tmp_path / "some broken"))
    for path in sorted(pictures.rglob("*.*"))[5:15:4]:  # which have no place among the views of the others
        path.write_bytes(b"no picture")
    sessions = []
    for ahead in (0, 3):
        (tmp_path / str(ahead)).mkdir()
        session = sit_down(tmp_path / str(ahead), pictures, tiny, Person())
        with closing(session.record):
            assert follow(session, prefetched=ahead)
        sessions.append(session)
    assert same_state(*(session.learner.state_dict() for session in sessions))
    assert sessions[0].running.correct == sessions[1].running.correct
    assert sessions[0].running.broken == sessions[1].running.broken == 3


def test_images_and_answers_one_by_one(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    """What a service does: predict, much later learn; every step of it on record."""
    session = sit_down(tmp_path, pictures, tiny, Person())
    with closing(session.record):
        asked = [
            prediction.id
            for t in range(12)
            if (prediction := session.predict(t, f"{t}.png", session.stream.image(t))).ask
        ]
        for id in reversed(asked):
            session.learn(id, "bee")
    assert session.running.answered == session.learner.answered == len(asked) > 0
    answered = [event for event in read_events(tmp_path) if event["event"] == "answered"]
    assert [event["id"] for event in answered] == asked[::-1]
    assert {event["label"] for event in answered} == {"bee"}


def test_who_would_answer_the_same_again() -> None:
    truth = GroundTruth(lambda id: 0)
    assert all(map(is_repeatable, (None, truth, Noisy(truth, 0.5, 3), Delayed(truth, 2))))
    assert not any(map(is_repeatable, (Person(), Delayed(Person(), 2))))


class Unsure(Person):
    """Answers "ant" first, and at the next question says what it should have been."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[Query] = []

    def answer(self, query: Query) -> str | None:
        self.queries.append(query)
        return "ant"

    def corrections(self) -> list[tuple[Query, Reply]]:
        return [(self.queries[-2], "bee")] if len(self.queries) == 2 else []


def test_an_answer_is_replaced_by_the_one_that_corrects_it(
    tmp_path: Path, pictures: Path, tiny: Clip
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, file in enumerate(sorted(pictures.rglob("*.png"))[:6]):
        shutil.copy(file, flat / f"{number}.png")
    dataset = load_dataset(flat, classes=["ant", "bee", "cat"])
    (tmp_path / "run").mkdir()
    record = Record(tmp_path / "run", NEVER)
    learner = Learner(tiny, dataset.classes, "taps", seed=4, views=4, rate=1.0, buffer=10)
    person = Unsure()
    session = Session(learner, make_stream(dataset, 4), record, record.running(), lambda truth: person)
    with closing(record):
        follow(session)
    labels = {id: given.answer.label for id, given in learner.desk.queries.given.items()}
    assert labels == {id: 1 if id == 0 else 0 for id in range(6)}
    assert (session.running.answered, session.running.known, learner.answered, learner.desk.undone) == (
        6,
        6,
        6,
        1,
    )
    right = [query.prediction.index == labels[query.id] for query in person.queries]
    assert session.running.correct == sum(right)
    events = [event for event in read_events(tmp_path / "run") if event.get("id") == 0]
    assert [event["event"] for event in events] == ["predicted", "answered", "undone", "answered"]
    assert events[1]["t"] == events[2]["t"] == events[3]["t"]
    assert events[3]["label"] == "bee"
    with (tmp_path / "run" / PREDICTIONS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["truth"] for row in rows] == ["bee", *["ant"] * 5]
    assert [row["correct"] == "1" for row in rows] == right
    with closing(Record(tmp_path / "run")) as again:  # and the checkpoint agrees
        assert again.position == 6
