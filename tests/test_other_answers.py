"""Answers other than a label, as a user gives them: learned, recorded, saved, corrected and taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps import Learner
from taps.errors import ClassNameError, QueryError
from taps.model.clip import Clip
from taps.streams.loop import Session
from taps.streams.record import Record, read_events
from taps.streams.score import RunningScore
from taps.types import Answer, PixelArray
from tests.walks import CLASSES, bits, same_state

Picture = Callable[[int], PixelArray]
ALWAYS: dict[str, Any] = {"policy": "fixed", "tau0": -99.0}


def seen(clip: Clip, picture: Picture, images: int = 4, method: str = "zero_shot+") -> Learner:
    learner = Learner(clip, CLASSES, method, **ALWAYS)
    for number in range(images):
        learner.predict_one(picture(number))
    return learner


@pytest.mark.parametrize(
    ("given_", "error", "said"),
    [
        ({"label": "cat", "no": "ship"}, QueryError, "Give one of"),
        ({"label": "cat", "none": True}, QueryError, "Give one of"),
        ({"no": "wolf"}, ClassNameError, "'wolf' is not one of"),
        ({"no": 9}, ClassNameError, "from 0 to 3"),
        ({"no": CLASSES}, QueryError, "give none=True"),
        ({"label": "cat", "annotator": 7}, QueryError, "The annotator is 7"),
        ({}, ClassNameError, "from 0 to 3"),
    ],
)
def test_answers_that_make_no_sense_are_refused_and_change_nothing(
    tiny: Clip, picture: Picture, given_: dict[str, Any], error: type[Exception], said: str
) -> None:
    learner = seen(tiny, picture)
    before = learner.state_dict()
    with pytest.raises(error, match=said):
        learner.learn_one(1, **given_)
    assert same_state(learner.state_dict(), before)


def test_a_method_without_a_head_takes_labels_alone(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, "taps", prompts="coop", views=4, **ALWAYS)
    learner.predict_one(picture(0))
    learner.learn_one(0, "cat", annotator="ann")
    before = learner.state_dict()
    for other in ({"no": "cat"}, {"none": True}):
        with pytest.raises(QueryError, match="learns from labels alone"):
            learner.learn_one(0, **other)  # type: ignore[arg-type]
    assert same_state(learner.state_dict(), before)


def test_classes_it_is_not_of_add_up_until_one_is_left(tiny: Clip, picture: Picture) -> None:
    learner, plain = seen(tiny, picture), seen(tiny, picture)
    learner.learn_one(1, no="cat")
    learner.learn_one(1, no=["ship"])
    assert learner.desk.queries.given[1].answer == Answer(no=(0, 2))
    learner.learn_one(1, no="tree")
    plain.learn_one(1, "hot dog")
    assert learner.desk.queries.given[1].answer == Answer(1)
    assert (learner.answered, learner.desk.corrected, learner.desk.undone) == (1, 0, 0)
    ends = [each.predict_one(picture(5)).probs.tobytes() for each in (learner, plain)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("first", [{"label": "cat"}, {"none": True}, {"no": ["ship", "tree"]}])
def test_what_follows_from_the_first_answer_changes_nothing(
    tiny: Clip, picture: Picture, first: dict[str, Any]
) -> None:
    learner = seen(tiny, picture)
    learner.learn_one(1, **first)
    before = learner.state_dict()
    learner.learn_one(1, no="ship", annotator="ann")
    assert same_state(learner.state_dict(), before)
    learner.learn_one(1, no="cat")
    assert same_state(learner.state_dict(), before) == ("none" in first)


def test_reject_is_nothing_until_somebody_says_none_of_these(tiny: Clip, picture: Picture) -> None:
    learner = seen(tiny, picture)
    learner.learn_one(0, "cat")
    assert learner.predict_one(picture(4)).reject == 0.0
    learner.learn_one(1, none=True)
    again = learner.predict_one(picture(1)).reject
    assert 0.0 < again < 1.0
    assert again > learner.predict_one(picture(0)).reject  # the one that was a cat
    assert learner.undo(1) is None
    assert learner.predict_one(picture(1)).reject == 0.0


def test_each_annotator_has_a_share_of_wrong_answers_in_the_summary(tiny: Clip, picture: Picture) -> None:
    learner = seen(tiny, picture)
    assert learner.summary()["head_annotators"] == {}
    learner.learn_one(0, "cat", annotator="ann")
    learner.learn_one(1, "ship", annotator="bob")
    learner.learn_one(2, "ship")
    learner.learn_one(3, Answer("tree", annotator="ann"))
    found = learner.summary()["head_annotators"]
    assert {name: each["answers"] for name, each in found.items()} == {"": 1, "ann": 2, "bob": 1}
    assert all(0 <= each["noise"] <= 0.3 for each in found.values())
    learner.undo(1)
    assert set(learner.summary()["head_annotators"]) == {"", "ann"}


KINDS: list[dict[str, Any]] = [
    {"label": "ship"},
    {"label": "cat", "annotator": "ann"},
    {"no": "cat"},
    {"no": ["tree", 1], "annotator": "bob"},
    {"none": True},
]


@pytest.mark.parametrize("method", ["zero_shot+", "taps+"])
@settings(max_examples=5)
@given(
    told=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(KINDS)), max_size=10),
    gone=st.sets(st.integers(0, 5)),
    stop=st.integers(0, 10),
)
def test_any_answers_saved_and_taken_back_go_on_to_the_same_bits(
    tiny: Clip,
    picture: Picture,
    tmp_path: Path,
    method: str,
    told: list[tuple[int, dict[str, Any]]],
    gone: set[int],
    stop: int,
) -> None:
    learner = seen(tiny, picture, 6, method)
    for place, (id, kind) in enumerate(told):
        if place == stop:
            learner.save(tmp_path)
            resumed = Learner.load(tmp_path, tiny)
            assert same_state(resumed.state_dict(), learner.state_dict())
            learner = resumed
        learner.learn_one(id, **kind)
    last = [(id, learner.desk.queries.given[id].answer) for id in learner.desk.queries.given]
    for id in sorted(gone & dict(last).keys()):
        learner.undo(id)
    plain = seen(tiny, picture, 6, method)
    for id, answer in last:
        if id not in gone:
            plain.learn_one(id, answer)
    said, expected = learner.predict_one(picture(8)), plain.predict_one(picture(8))
    assert bits(said) == bits(expected)
    assert said.reject == expected.reject


def test_every_kind_of_answer_is_on_record(tiny: Clip, picture: Picture, tmp_path: Path) -> None:
    record = Record(tmp_path)
    session = Session(seen(tiny, picture), None, record, RunningScore(), positions={0: 10, 3: 13})  # type: ignore[arg-type]
    given_ = ["ship", Answer(no=("cat", 2), annotator="ann"), Answer(none=True), Answer(unknown=True)]
    assert [session.learn(id, answer) for id, answer in enumerate(given_)] == [2, None, None, None]
    record.close()
    assert list(read_events(tmp_path)) == [
        {"event": "answered", "id": 0, "t": 10, "label": "ship"},
        {"event": "answered", "id": 1, "t": None, "no": ["cat", "ship"], "annotator": "ann"},
        {"event": "answered", "id": 2, "t": None, "none": True},
        {"event": "skipped", "id": 3, "t": 13},
    ]
    assert session.running.answered == 3
    assert session.learner.summary()["skipped"] == 1
