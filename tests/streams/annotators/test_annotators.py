"""Annotators answer rightly, wrongly at a rate, late, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.errors import SettingsError
from taps.streams.annotators import Delayed, GroundTruth, Noisy, late_answers
from taps.types import Answer, Prediction, Query

CLASSES = ("tabby cat", "dog", "dormouse", "bird")


def question(id: int = 0, probs: tuple[float, ...] = (0.1, 0.6, 0.2, 0.1)) -> Query:
    values = np.array(probs, np.float32)
    index = int(values.argmax())
    return Query(id, f"{id}.jpg", Prediction(id, index, CLASSES[index], values, 1.0, 0.5, True, 0.1))


def test_ground_truth_reads_a_label_only_when_asked() -> None:
    read: list[int] = []

    def label(id: int) -> int:
        read.append(id)
        return id * 2

    annotator = GroundTruth(label)
    assert read == []
    assert annotator.answer(question(3)) == 6
    assert read == [3]


def test_noisy_errs_at_its_rate_and_never_with_the_true_class() -> None:
    annotator = Noisy(GroundTruth(lambda id: id % 4), rate=0.3, classes=4, seed=5)
    answers = np.array([annotator.answer(question(id)) for id in range(4000)])
    wrong = answers != np.arange(4000) % 4
    assert abs(wrong.mean() - 0.3) < 0.03
    shift = (answers[wrong] - np.arange(4000)[wrong]) % 4
    assert {1, 2, 3} == set(shift.tolist())
    assert np.bincount(shift, minlength=4)[1:].min() > 0.25 * wrong.sum()


def yes_or_no(id: int, yes_no: int) -> Query:
    return replace(question(id), yes_no=yes_no)


def test_yes_or_no_is_answered_truly() -> None:
    annotator = GroundTruth(lambda id: 2)
    assert annotator.answer(yes_or_no(0, 2)) == 2
    assert annotator.answer(yes_or_no(0, 1)) == Answer(no=(1,))
    assert GroundTruth(lambda id: None).answer(yes_or_no(0, 1)) is None


def test_noisy_says_no_for_yes_and_yes_for_no() -> None:
    annotator = Noisy(GroundTruth(lambda id: id % 4), rate=0.3, classes=4, seed=5)
    said = [annotator.answer(yes_or_no(id, 1)) for id in range(2000)]
    wrong = np.array([(answer == 1) != (id % 4 == 1) for id, answer in enumerate(said)])
    assert set(map(str, said)) == {"1", str(Answer(no=(1,)))}
    assert abs(wrong.mean() - 0.3) < 0.04
    assert abs(wrong[1::4].mean() - 0.3) < 0.08


def test_noisy_repeats_itself_from_any_point() -> None:
    first, again = (Noisy(GroundTruth(lambda id: 0), 0.5, 10, seed=2) for _ in range(2))
    whole = [first.answer(question(id)) for id in range(50)]
    assert [again.answer(question(id)) for id in range(30, 50)] == whole[30:]


def test_noisy_passes_no_answer_on() -> None:
    assert Noisy(GroundTruth(lambda id: None), 1.0, 3).answer(question()) is None


@pytest.mark.parametrize(("rate", "classes"), [(-0.1, 3), (1.5, 3), (0.5, 1)])
def test_noisy_refuses_impossible_settings(rate: float, classes: int) -> None:
    with pytest.raises(SettingsError):
        Noisy(GroundTruth(lambda id: 0), rate, classes)


@given(delay=st.integers(0, 7), asked=st.sets(st.integers(0, 20)))
def test_delayed_answers_every_question_after_the_delay(delay: int, asked: set[int]) -> None:
    annotator = Delayed(GroundTruth(lambda id: id + 100), delay)
    arrived: dict[int, int] = {}
    for t in range(40):
        if t in asked and annotator.answer(question(t)) is not None:
            arrived[t] = t
        for id, label in late_answers(annotator, t + 1):
            assert label == id + 100
            arrived[id] = t
    assert arrived == {id: id + delay for id in asked}


def test_delayed_reads_the_label_late() -> None:
    read: list[int] = []
    annotator = Delayed(GroundTruth(lambda id: read.append(id) or 1), delay=2)  # type: ignore[func-returns-value]
    annotator.answer(question(0))
    assert annotator.due(2) == []
    assert read == []
    assert annotator.due(3) == [(0, 1)]


def test_annotators_that_answer_at_once_have_nothing_late() -> None:
    assert late_answers(GroundTruth(lambda id: 0), 10) == []
