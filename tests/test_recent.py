"""Labels for images nobody was asked about, and second looks, against learners that did it plainly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps import Learner
from taps.errors import QueryError
from taps.model.clip import Clip
from taps.types import PixelArray
from tests.walks import CLASSES

Picture = Callable[[int], PixelArray]
KINDS: dict[str, dict[str, Any]] = {
    "taps": {"views": 4, "fraction": 0.5, "buffer": 5, "policy": "fixed"},
    "zero_shot+": {"policy": "fixed", "acquisition": "entropy"},
}
GIVEN = {2: 0, 5: 1, 6: 2}


def learner_of(clip: Clip, kind: str, tau0: float, **more: Any) -> Learner:
    return Learner(clip, CLASSES, kind, seed=3, tau0=tau0, **KINDS[kind], **more)


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_nobody_asked_for_teaches_what_an_answer_does(
    tiny: Clip, picture: Picture, tmp_path: Path, kind: str
) -> None:
    silent, asking = learner_of(tiny, kind, 99.0, recent=8), learner_of(tiny, kind, 0.0)
    for number in range(12):
        said = [learner.predict_one(picture(number)) for learner in (silent, asking)]
        assert [each.ask for each in said] == [False, True]
        assert said[0].probs.tobytes() == said[1].probs.tobytes()
        if number in GIVEN:
            for learner in (silent, asking):
                learner.learn_one(number, GIVEN[number])
    silent.save(tmp_path)
    again = Learner.load(tmp_path, tiny)
    for learner in (silent, asking, again):
        learner.undo(5)
        learner.learn_one(5, 3)
    said = [learner.predict_one(picture(50)) for learner in (silent, asking, again)]
    assert len({each.probs.tobytes() for each in said}) == 1
    assert silent.pending == ()


def test_an_answer_taken_back_opens_no_question_where_there_was_none(tiny: Clip, picture: Picture) -> None:
    learner = learner_of(tiny, "taps", 99.0, recent=2)
    for number in range(3):
        learner.predict_one(picture(number))
    learner.learn_one(2, 0)
    learner.undo(2)
    assert learner.pending == ()
    learner.learn_one(2, 1)
    with pytest.raises(QueryError, match="last 2 others"):
        learner.learn_one(0, 1)


@pytest.mark.parametrize("kind", ["zero_shot+", "view_ensemble+", "taps+"])
def test_what_is_kept_is_enough_to_predict_again(tiny: Clip, picture: Picture, kind: str) -> None:
    settings = {"views": 4, "fraction": 0.5} if kind != "zero_shot+" else {}
    learner, plain = (
        Learner(
            tiny,
            CLASSES,
            kind,
            seed=3,
            policy="fixed",
            tau0=99.0,
            acquisition="entropy",
            recent=30,
            **settings,
        )
        for _ in range(2)
    )
    looks, see = [], learner.method.head.see  # type: ignore[attr-defined]
    learner.method.head.see = lambda *seen: looks.append(see(*seen)) or looks[-1]  # type: ignore
    for number in range(25):
        said = [each.predict_one(picture(number)) for each in (learner, plain)]
        assert said[0].probs.tobytes() == said[1].probs.tobytes()
        again = learner.repredict_kept([number])[number]
        if not learner.answered:  # later, the classes of the last answers count for the latest image alone
            assert again.tobytes() == said[0].probs.tobytes()
        if number % 3 == 2:
            for each in (learner, plain):
                each.learn_one(number, number % 2)
    found = learner.repredict_kept(range(30))
    assert set(found) == {number for number in range(25) if number % 3 != 2}  # the others have an answer
    for number, probs in found.items():
        expected = learner.method.head.predict(looks[number], again=True)  # type: ignore[attr-defined]
        np.testing.assert_allclose(probs, expected, atol=1e-6)
    learner.add_class("zebra")
    assert len(learner.repredict_kept([0])[0]) == len(CLASSES) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_look_says_the_same_and_changes_nothing(tiny: Clip, picture: Picture, kind: str) -> None:
    looking, plain = learner_of(tiny, kind, 0.0), learner_of(tiny, kind, 0.0)
    first = [learner.predict_one(picture(0)) for learner in (looking, plain)]
    assert looking.repredict(0, picture(0)).probs.tobytes() == first[0].probs.tobytes()
    for number in range(1, 8):
        said = [learner.predict_one(picture(number)) for learner in (looking, plain)]
        for learner in (looking, plain):
            learner.learn_one(number, number % 2)
        looking.repredict(0, picture(0))
        assert said[0].probs.tobytes() == said[1].probs.tobytes()
    assert looking.repredict(0, picture(0)).probs.tobytes() != first[0].probs.tobytes()
    assert looking.summary() == plain.summary()


def test_a_method_without_a_head_has_to_look_again(tiny: Clip, picture: Picture) -> None:
    learner = learner_of(tiny, "taps", 99.0, recent=2)
    learner.predict_one(picture(0))
    assert learner.repredict_kept([0]) == {}
