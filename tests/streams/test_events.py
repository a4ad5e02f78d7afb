"""`taps.stream`: the loop in three lines does what the loop by hand does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taps
from taps import Answer, Dataset, Learner
from taps.data import sign_digits, stream_order
from taps.errors import SettingsError
from taps.model.clip import Clip
from taps.streams.annotators import Delayed, GroundTruth
from taps.streams.loop import Session, follow
from taps.streams.record import Record
from taps.streams.score import RunningScore
from taps.streams.sequence import Stream
from taps.types import OUTSIDE, PixelArray, Query
from tests.walks import same_state

Picture = Callable[[int], PixelArray]
NAMES = ["ant", "bee", "cat"]
ASKS: dict[str, Any] = {"views": 2, "rate": 0.5}


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return sign_digits().shuffled(seed=3).take(range(12))


def test_a_data_set_is_streamed_as_by_hand(tiny: Clip, digits: Dataset) -> None:
    learner, by_hand = (Learner(tiny, digits.classes, **ASKS) for _ in range(2))
    by_hand.expect(len(digits))
    events = list(taps.stream(learner, digits, annotator=digits))
    for index, event in enumerate(events):
        said, label = by_hand.predict_one(digits.image(index)), digits.labels[index]
        if said.ask:
            by_hand.learn_one(said.id, label)
        assert event.prediction is not None
        np.testing.assert_array_equal(event.prediction.probs, said.probs)
        name = digits.classes[label]
        assert (event.t, event.path, event.truth) == (index, digits.samples[index].path, name)
        assert event.answer == (name if said.ask else None)
        assert event.predicted == digits.classes[said.index]
        assert event.correct == (said.index == label)
    assert same_state(learner.state_dict(), by_hand.state_dict())
    assert learner.answered > 0


def test_a_data_set_tells_its_length_as_the_setting_does(tiny: Clip) -> None:
    images = sign_digits().shuffled(seed=3).take(range(40))
    told, given, unknown = (
        Learner(tiny, images.classes, views=1, rate=0.2, **each) for each in ({}, {"expected": 40}, {})
    )
    unending = map(images.image, range(40))
    runs = [
        [event.prediction.ask for event in taps.stream(learner, these, lambda query: images.labels[query.id])]
        for learner, these in ((told, images), (given, images), (unknown, unending))
    ]
    assert sum(runs[0]) == 8
    assert runs[0] == runs[1] != runs[2]


def test_only_a_learner_that_has_seen_nothing_is_told_a_length(
    tiny: Clip, digits: Dataset, tmp_path: Path
) -> None:
    fresh, begun = (Learner(tiny, digits.classes, views=1) for _ in range(2))
    own = Learner(tiny, digits.classes, views=1, expected=99)
    begun.predict_one(digits.image(0))
    for learner in (fresh, own, begun):
        list(taps.stream(learner, digits))
    assert [fresh.expected, own.expected, begun.expected] == [12, 99, None]
    fresh.save(tmp_path)
    fresh.add_class("eleven")
    assert fresh.expected == fresh.desk.policy.expected == 12
    loaded = Learner.load(tmp_path, tiny)
    assert loaded.expected == loaded.desk.policy.expected == 12
    assert loaded.clone().expected is None
    loaded.reset()
    assert (loaded.expected, loaded.desk.policy.expected) == (None, 0)


@pytest.mark.parametrize("kind", ["function", "object"])
def test_anything_that_answers_is_an_annotator(tiny: Clip, picture: Picture, kind: str) -> None:
    learner = Learner(tiny, NAMES, views=1, rate=1.0)
    asked: list[Query] = []

    def answer(query: Query) -> str | Answer | None:
        asked.append(query)
        return ["bee", Answer("cat", annotator="Ann"), None, Answer(unknown=True), Answer(none=True)][
            query.id
        ]

    class Person:
        def answer(self, query: Query) -> str | Answer | None:
            return answer(query)

    annotator = answer if kind == "function" else Person()
    events = list(taps.stream(learner, (picture(t) for t in range(5)), annotator))
    assert [query.id for query in asked] == [0, 1, 2, 3, 4]
    assert [event.answer for event in events] == ["bee", "cat", None, None, None]
    assert [event.path for event in events] == [f"image {t}" for t in range(5)]
    assert (learner.answered, learner.desk.skipped, learner.pending) == (3, 1, (2,))


def test_without_an_annotator_questions_stay_open(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, NAMES, views=1, rate=1.0)
    events = list(taps.stream(learner, [picture(0), picture(1)]))
    assert [event.correct for event in events] == [None, None]
    assert learner.pending == (0, 1)


def test_images_come_one_at_a_time_and_are_learned_before_the_next(tiny: Clip, picture: Picture) -> None:
    learner, taken = Learner(tiny, NAMES, views=1, rate=1.0), 0

    def camera() -> Iterator[PixelArray]:
        nonlocal taken
        while True:  # without end
            taken += 1
            yield picture(taken)

    events = taps.stream(learner, camera(), lambda query: "bee")
    assert (taken, learner.seen) == (0, 0)
    next(events)
    assert (taken, learner.answered) == (1, 1)
    next(events)
    assert (taken, learner.answered) == (2, 2)


def test_an_image_that_cannot_be_read_is_told_and_the_stream_goes_on(
    tiny: Clip, picture: Picture, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    learner = Learner(tiny, NAMES, views=1)
    first, second = taps.stream(learner, [str(broken), picture(1)])
    assert (first.prediction, first.path, first.pixels) == (None, str(broken), None)
    assert "broken.png" in first.error
    assert second.prediction is not None
    assert (second.t, second.prediction.id, second.error, learner.seen) == (1, 0, "", 1)


def test_late_answers_arrive(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, NAMES, views=1, rate=1.0)
    late = Delayed(GroundTruth(lambda id: 1), 2)
    answered = [learner.answered for _ in taps.stream(learner, map(picture, range(4)), late)]
    assert answered == [0, 0, 1, 2]


def test_labels_are_found_by_name_where_the_learner_has_other_classes(tiny: Clip, digits: Dataset) -> None:
    turned = Learner(tiny, digits.classes[::-1], views=1, rate=1.0)
    for event in taps.stream(turned, digits, annotator=digits):
        label = digits.labels[event.t]
        assert label is not None
        assert event.truth == event.answer == digits.classes[label]


@pytest.mark.parametrize("method", ["view_ensemble+", "taps"])
def test_an_image_of_no_class_is_answered_so_where_the_method_can_be_told(
    tiny: Clip, digits: Dataset, method: str
) -> None:
    outside = digits.take([0]).relabelled(digits.classes, {digits.labels[0] or 0: OUTSIDE})
    learner = Learner(tiny, digits.classes, method, views=1, policy="fixed", tau0=-1.0)
    [event] = taps.stream(learner, outside, annotator=outside)
    assert (event.answer, event.truth, event.outside, event.correct) == (None, None, True, None)
    assert (learner.answered, learner.desk.skipped) == ((1, 0) if method == "view_ensemble+" else (0, 1))


@pytest.mark.parametrize(("images", "annotator"), [("photos", None), ([], 3)])
def test_what_is_no_image_and_what_is_no_annotator_is_refused_at_once(
    tiny: Clip, images: Any, annotator: Any
) -> None:
    with pytest.raises(SettingsError, match=r"load_dataset|method `answer`"):
        taps.stream(Learner(tiny, NAMES, views=1), images, annotator)


def test_a_shuffled_data_set_has_the_order_of_a_run() -> None:
    whole = sign_digits()
    order = stream_order(len(whole), seed=5)
    assert whole.shuffled(seed=5).samples == tuple(whole.samples[index] for index in order)


def test_an_answer_to_an_earlier_question_is_replaced(tiny: Clip, picture: Picture) -> None:
    class Wavering:
        def __init__(self) -> None:
            self.asked: list[Query] = []

        def answer(self, query: Query) -> str:
            self.asked.append(query)
            return "bee"

        def corrections(self) -> list[tuple[Query, str]]:
            return [(self.asked[0], "cat")] if len(self.asked) == 2 else []

    learner = Learner(tiny, NAMES, views=1, rate=1.0)
    answers = [event.answer for event in taps.stream(learner, map(picture, range(3)), Wavering())]
    assert answers == ["bee", "bee", "bee"]
    assert {id: given.answer for id, given in learner.desk.queries.given.items()} == {
        0: Answer(2),
        1: Answer(1),
        2: Answer(1),
    }


def test_what_a_stream_does_is_what_a_run_does(tiny: Clip, digits: Dataset, tmp_path: Path) -> None:
    streamed, run = (Learner(tiny, digits.classes, expected=len(digits), **ASKS) for _ in range(2))
    list(taps.stream(streamed, digits, annotator="delayed:delay=2"))
    with closing(Record(tmp_path)) as record:
        images = Stream(digits, range(len(digits)))
        assert follow(Session(run, images, record, RunningScore(), lambda truth: Delayed(truth, 2)))
    assert streamed.answered > 1
    assert same_state(streamed.state_dict(), run.state_dict())
