"""Questions nobody has an answer to go back to the budget, by the rule that `Learner.skip` states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps import Learner
from taps.errors import QueryError
from taps.model.clip import Clip
from taps.types import PixelArray
from tests.walks import CLASSES, answer_for, bits, same_state

Picture = Callable[[int], PixelArray]


@pytest.mark.parametrize("policy", ["fixed", "paced"])
def test_where_nobody_ever_knows_twice_the_budget_is_asked_at_most(
    tiny: Clip, picture: Picture, policy: str
) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", policy=policy, tau0=-99.0, rate=0.5, budget=3)
    for number in range(30):
        if (said := learner.predict_one(picture(number % 9))).ask:
            learner.skip(said.id)
    found = learner.summary()
    assert (found["asked"], found["skipped"], found["given_back"]) == (6, 6, 3)
    assert found["answered"] == found["pending"] == 0


def test_what_is_skipped_leaves_no_trace_in_the_model_and_may_still_be_labelled(
    tiny: Clip, picture: Picture
) -> None:
    learner, other = (Learner(tiny, CLASSES, "zero_shot+", policy="fixed", tau0=-99.0) for _ in range(2))
    for each in (learner, other):
        for number in range(3):
            each.predict_one(picture(number))
    learner.skip(1)
    assert learner.pending == (0, 2)
    with pytest.raises(QueryError, match="no open question"):
        learner.skip(1)
    learner.learn_one(1, "ship")
    other.learn_one(1, "ship")
    ends = [each.predict_one(picture(3)).probs.tobytes() for each in (learner, other)]
    assert ends[0] == ends[1]
    assert learner.summary()["unasked"] == 1


@settings(max_examples=8)
@given(acts=st.lists(st.sampled_from(["see", "see", "answer", "skip", "undo", "stop"]), max_size=40))
def test_counts_stay_consistent_whatever_happens(
    tiny: Clip, picture: Picture, tmp_path: Path, acts: list[str]
) -> None:
    """Against plain sets of what was asked, answered, skipped and taken back."""
    learner = Learner(tiny, CLASSES, "zero_shot+", policy="random", rate=0.6)
    put: list[int] = []
    answered: list[int] = []
    skipped: dict[int, bool] = {}
    for act in acts:
        open_ = [id for id in put if id not in answered and id not in skipped]
        if act == "see":
            said = learner.predict_one(picture(learner.seen % 9))
            put += [said.id] if said.ask else []
        elif act == "answer" and open_:
            learner.learn_one(open_[-1], answer_for(open_[-1]))
            answered.append(open_[-1])
        elif act == "skip" and open_:
            learner.skip(open_[0])
            skipped[open_[0]] = 2 * sum(skipped.values()) < len(put)
        elif act == "undo" and skipped:
            last = next(reversed(skipped))
            assert learner.undo(last) is None
            del skipped[last]
        elif act == "stop":
            learner.save(tmp_path)
            resumed = Learner.load(tmp_path, tiny)
            assert same_state(resumed.state_dict(), learner.state_dict())
            learner = resumed
        found = learner.summary()
        assert (found["asked"], found["answered"], found["skipped"]) == (
            len(put),
            len(answered),
            len(skipped),
        )
        assert found["given_back"] == sum(skipped.values())
        assert learner.desk.policy.asked == len(put) - sum(skipped.values())
        assert set(learner.pending) == set(put) - set(answered) - set(skipped)
    learner.save(tmp_path)
    said, again = learner.predict_one(picture(7)), Learner.load(tmp_path, tiny).predict_one(picture(7))
    assert bits(said) == bits(again)


def test_a_label_for_a_skipped_question_taken_back_leaves_it_skipped(
    tiny: Clip, picture: Picture, tmp_path: Path
) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", policy="fixed", tau0=-99.0)
    for number in range(3):
        learner.predict_one(picture(number))
    learner.skip(1)
    before = learner.summary() | {"undone": 1, "notes": ["Answers that were taken back: 1."]}
    learner.learn_one(1, "cat")
    learner.save(tmp_path)
    for each in (learner, Learner.load(tmp_path, tiny)):
        each.undo(1)
        assert each.summary() == before
        assert each.pending == (0, 2)
        each.undo(1)
        assert each.pending == (0, 1, 2)
        assert (each.desk.skipped, each.desk.given_back) == (0, 0)
