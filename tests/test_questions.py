"""Yes/no questions and the annotator's time: put, answered, counted, saved, taken back, on record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from taps import Learner
from taps.asking.question import class_seconds
from taps.errors import SettingsError
from taps.model.clip import Clip
from taps.types import PixelArray, Prediction
from tests.walks import CLASSES, answer_for, bits, same_state

Picture = Callable[[int], PixelArray]
CLASS = class_seconds(len(CLASSES))
SHARE = 1.6 / CLASS


def answer(learner: Learner, said: Prediction) -> None:
    """Truly, to what was asked."""
    label = answer_for(said.id)
    if said.question == "class" or label == said.index:
        learner.learn_one(said.id, label)
    else:
        learner.learn_one(said.id, no=said.label)


@pytest.mark.parametrize("questions", ["yes_no", "both"])
def test_time_and_pace_are_kept(tiny: Clip, picture: Picture, questions: str) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", questions=questions, rate=0.4, yes_no_seconds=1.6)
    put = {"class": 0, "yes_no": 0}
    for number in range(60):
        said = learner.predict_one(picture(number % 9))
        if said.ask:
            put[said.question] += 1
            answer(learner, said)
    found = learner.summary()
    assert found["questions"] == put
    assert found["asked"] == sum(put.values()) == found["answered"]
    assert found["seconds"] == pytest.approx(put["class"] * CLASS + put["yes_no"] * 1.6, abs=0.1)
    used = put["class"] + put["yes_no"] * SHARE  # in questions of all classes
    assert 0.4 * 60 - 3 <= used <= 0.4 * 60 + 1
    assert put["yes_no"] > 0
    assert not [note for note in found["notes"] if "images were asked about" in note]


def test_when_the_seconds_are_spent_nobody_is_asked(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, "taps", prompts="hand", views=2, policy="fixed", tau0=-1.0,
                      budget_seconds=10.0, class_seconds=3.0)  # fmt: skip
    asked = [learner.predict_one(picture(number)).ask for number in range(6)]
    assert asked == [True] * 3 + [False] * 3
    assert learner.summary()["seconds"] == 9.0
    with pytest.raises(SettingsError, match="budget_seconds"):
        Learner(tiny, CLASSES, "taps", prompts="hand", budget_seconds=0.0)
    with pytest.raises(SettingsError, match="questions"):
        Learner(tiny, CLASSES, "taps", prompts="hand", questions="both")


def test_what_is_asked_where_nobody_says(tiny: Clip) -> None:
    """Whichever tells more a second where seconds are counted, otherwise the class."""
    given = [{}, {"budget_seconds": 60.0}, {"budget_seconds": 60.0, "questions": "class"}]
    kinds = [Learner(tiny, CLASSES, "zero_shot+", **each).desk.questions.kinds for each in given]
    assert kinds == [("class",), ("class", "yes_no"), ("class",)]
    plain = Learner(tiny, CLASSES, "taps", prompts="hand", budget_seconds=60.0)  # learns from no "no"
    assert plain.desk.questions.kinds == ("class",)


def test_saved_skipped_and_taken_back(tiny: Clip, picture: Picture, tmp_path: Path) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", questions="yes_no", policy="fixed", tau0=-99.0)
    for number in range(6):
        assert learner.predict_one(picture(number)).question == "yes_no"
    policy = learner.desk.policy
    assert policy.asked == pytest.approx(6 * SHARE)
    learner.skip(0)
    learner.skip(1)
    assert policy.asked == pytest.approx(4 * SHARE)
    learner.learn_one(2, no="cat")
    learner.learn_one(3, "ship")
    learner.save(tmp_path)
    resumed = Learner.load(tmp_path, tiny)
    assert same_state(resumed.state_dict(), learner.state_dict())
    for each in (learner, resumed):
        each.undo(1)
        each.undo(2)
        each.skip(2)
        assert each.desk.policy.asked == pytest.approx(4 * SHARE)
        assert each.summary()["seconds"] == pytest.approx(6 * 1.6)
    assert bits(learner.predict_one(picture(7))) == bits(resumed.predict_one(picture(7)))


def test_a_yes_is_the_label_and_a_no_is_not_the_class(tiny: Clip, picture: Picture) -> None:
    """What is learned does not depend on what was asked."""
    said = []
    for questions in ("yes_no", "class"):
        learner = Learner(tiny, CLASSES, "zero_shot+", questions=questions, policy="fixed", tau0=-99.0)
        for number in range(4):
            learner.predict_one(picture(number))
        learner.learn_one(0, "ship")
        learner.learn_one(1, no="cat")
        said.append(learner.predict_one(picture(5)).probs.tobytes())
    assert said[0] == said[1]
