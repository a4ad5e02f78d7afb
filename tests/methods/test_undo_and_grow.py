"""Answers taken back and classes added, as a user would: compared with learners that never knew otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from taps import Learner
from taps.errors import ClassNameError, QueryError, SettingsError
from taps.head.head import Head
from taps.learning.memory import ReplayItem
from taps.methods import Method, MethodOutput, registry
from taps.model.clip import Clip
from taps.types import PixelArray

Picture = Callable[[int], PixelArray]
CLASSES = ["cat", "hot dog", "ship", "tree"]
VIEWS: dict[str, Any] = {"views": 4, "fraction": 0.5, "prompts": "hand"}
ALWAYS: dict[str, Any] = {"policy": "fixed", "tau0": -1.0}  # every image is asked about
KINDS: dict[str, dict[str, Any]] = {
    "taps": {**VIEWS, **ALWAYS},
    "taps+": {**VIEWS, **ALWAYS},
    "zero_shot+": ALWAYS,
    "view_ensemble+": {"views": 4, "fraction": 0.5, **ALWAYS},
}


def stream(learner: Learner, picture: Picture, until: int, silent: tuple[int, ...] = ()) -> None:
    """Everything is answered at once, but for the images in `silent`."""
    while learner.seen < until:
        said = learner.predict_one(picture(learner.seen))
        if said.id not in silent:
            learner.learn_one(said.id, (said.id * 7 + said.id // 3) % len(CLASSES))


def agree(one: Learner, other: Learner, picture: Picture, images: range = range(50, 54)) -> None:
    """Two learners hold the same and say the same, to nine places."""
    mine, theirs = one.method.snapshot(), other.method.snapshot()
    assert mine.tensors.keys() == theirs.tensors.keys()
    # What adapted prompts said of images that came after an answer was said while it was believed: of `taps+`
    # the trust rests on that, and only that may differ. Places in the buffer may differ, its sum may not.
    held = ("losses", "vote_losses", "numbers", "examples", "example.", "ring.logs")
    said = tuple(f"head.{name}" for name in held) if one.method_name == "taps+" else ()
    for name, value in mine.tensors.items():
        if "entry." not in name and not name.startswith(said or "entry."):
            torch.testing.assert_close(value, theirs.tensors[name], atol=1e-9, rtol=1e-9, msg=name)
    for number in images if not said else ():
        first, second = one.predict_one(picture(number)), other.predict_one(picture(number))
        np.testing.assert_allclose(first.probs, second.probs, atol=1e-6)  # probabilities come in float32


@pytest.mark.parametrize("gone", [(0,), (5, 2), (11,)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_taken_back_was_never_given(
    tiny64: Clip, picture: Picture, tmp_path: Path, kind: str, gone: tuple[int, ...]
) -> None:
    amended, fresh = (Learner(tiny64, CLASSES, kind, **KINDS[kind]) for _ in range(2))
    stream(amended, picture, 12)
    stream(fresh, picture, 12, silent=gone)
    for id in gone:
        assert amended.undo(id) == CLASSES[(id * 7 + id // 3) % 4]
    assert set(amended.pending) == set(fresh.pending) == set(gone)
    assert amended.answered == fresh.answered
    amended.save(tmp_path)
    resumed = Learner.load(tmp_path, tiny64)
    agree(amended, fresh, picture)
    for number in range(50, 54):
        resumed.predict_one(picture(number))
    for learner in (amended, fresh, resumed):  # the question is open again
        learner.learn_one(gone[0], "tree")
    agree(amended, fresh, picture, range(60, 62))
    assert resumed.summary()["undone"] == len(gone)
    assert resumed.answered == amended.answered


def test_the_trust_of_taps_plus_is_that_of_the_answers_left(tiny64: Clip, picture: Picture) -> None:
    """Given what was said of the images at the time, a head that never heard the answer is the same."""
    learner = Learner(tiny64, CLASSES, "taps+", **KINDS["taps+"])
    stream(learner, picture, 12)
    told = dict(learner.method.examples)  # type: ignore[attr-defined]
    learner.undo(4)
    amended = learner.method.head  # type: ignore[attr-defined]
    head = Head(amended.whitener.mean.shape[1], 4, bases=3, several=True)
    for id, example in told.items():
        if id != 4:
            head.learn_again(example)
    head.stream = amended.stream  # of the images, whatever was answered
    for name, array in head.state().items():
        np.testing.assert_array_equal(array, amended.state()[name])
    assert head.summary() == amended.summary()


def test_whom_to_ask_next_is_amended_too(tiny: Clip, picture: Picture) -> None:
    amended, fresh = (Learner(tiny, CLASSES, "zero_shot+", acquisition="vessal", **ALWAYS) for _ in range(2))
    stream(amended, picture, 12)
    stream(fresh, picture, 12, silent=(4,))
    amended.undo(4)
    np.testing.assert_array_equal(amended.method.head.counts, fresh.method.head.counts)  # type: ignore[attr-defined]
    assert amended.predict_one(picture(12)).score == fresh.predict_one(picture(12)).score


@pytest.mark.parametrize("kind", ["taps", "taps+"])
def test_a_second_answer_takes_the_place_of_the_first(tiny: Clip, picture: Picture, kind: str) -> None:
    learner = Learner(tiny, CLASSES, kind, **KINDS[kind])
    stream(learner, picture, 6)
    before = learner.summary()["buffer_classes"]
    learner.learn_one(3, "tree")  # it was "hot dog"
    after = learner.summary()
    assert after["answered"] == 6
    assert (after["corrected"], after["undone"]) == (1, 0)
    assert any("contradicted" in note for note in after["notes"])
    assert after["buffer_classes"]["tree"] == before.get("tree", 0) + 1
    assert sum(after["buffer_classes"].values()) == 6
    learner.learn_one(3, "tree")  # said twice: nothing changes
    assert learner.summary()["answered"] == 6


def test_what_cannot_be_taken_back_is_said_in_a_sentence(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", undo=3, **ALWAYS)
    stream(learner, picture, 6)
    with pytest.raises(QueryError, match="not among the last 3"):
        learner.undo(0)
    learner.undo(5)
    with pytest.raises(QueryError, match="no answer that could be taken back"):
        learner.undo(5)
    with pytest.raises(QueryError, match="Unknown sample 99"):
        learner.undo(99)


def test_an_answer_that_was_evicted_already_can_be_taken_back(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, "taps+", buffer=2, **KINDS["taps+"])
    stream(learner, picture, 8)
    held = learner.method.inner.memory.buffer  # type: ignore[attr-defined]
    gone = next(id for id in range(8) if id not in held)
    learner.undo(gone)
    assert len(held) == 2
    assert learner.summary()["head_labels"] == 7


GROWING = {**KINDS, "zero_shot": {}, "tda": {}, "tpt": {**VIEWS}}


@pytest.mark.parametrize("kind", GROWING)
def test_classes_are_added_while_the_stream_runs(
    tiny64: Clip, picture: Picture, tmp_path: Path, kind: str
) -> None:
    learner = Learner(tiny64, CLASSES, kind, **GROWING[kind])
    asks = learner.method.asks
    while learner.seen < 8:
        said = learner.predict_one(picture(learner.seen))
        if asks and said.id != 6:
            learner.learn_one(said.id, said.id % 4)
    before = learner.summary()
    learner.add_class("rocket")
    learner.add_class(["fire_truck", "spoon"])
    assert learner.classes == (*CLASSES, "rocket", "fire_truck", "spoon")
    after = learner.summary()
    counted = (
        "answered",
        "asked",
        "head_labels",
        "head_gain",
        "buffer_classes",
        "buffer_fill",
        "cache_positive",
    )
    assert [after.get(name) for name in counted] == [before.get(name) for name in counted]
    said = learner.predict_one(picture(8))
    assert said.probs.shape == (7,)
    assert np.isfinite(said.probs).all()
    if asks:
        learner.learn_one(said.id, "fire truck")
        learner.learn_one(6, "rocket")  # asked before there was such a class
        learner.undo(3)  # answered before there was such a class
        learner.learn_one(2, "spoon")  # corrected to a class that was not there
    learner.save(tmp_path)
    resumed = Learner.load(tmp_path, tiny64)
    for number in range(9, 12):
        one, other = learner.predict_one(picture(number)), resumed.predict_one(picture(number))
        np.testing.assert_array_equal(one.probs, other.probs)
    assert learner.summary() == resumed.summary()


def test_a_class_added_before_the_stream_is_a_class(tiny64: Clip, picture: Picture) -> None:
    """Nothing learned yet: the same as if it had been there."""
    grown = Learner(tiny64, CLASSES[:3], "view_ensemble+", **KINDS["view_ensemble+"])
    grown.add_class(CLASSES[3])
    whole = Learner(tiny64, CLASSES, "view_ensemble+", **KINDS["view_ensemble+"])
    stream(grown, picture, 8)
    stream(whole, picture, 8)
    agree(grown, whole, picture)


def test_a_new_class_is_learned_from_its_answers(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", **ALWAYS)
    stream(learner, picture, 8)
    learner.add_class("rocket")
    for _ in range(12):
        learner.learn_one(learner.predict_one(picture(100)).id, "rocket")
    assert learner.predict_one(picture(100)).label == "rocket"


@pytest.mark.parametrize(
    ("names", "said"),
    [("Hot_Dog", "already"), (["a", "A"], "are the same"), ("", "empty"), ("dog " * 90, "room for 77")],
)
def test_classes_that_cannot_be_added_are_refused(
    tiny: Clip, picture: Picture, names: Any, said: str
) -> None:
    learner = Learner(tiny, CLASSES, "zero_shot+", **ALWAYS)
    stream(learner, picture, 3)
    with pytest.raises(ClassNameError, match=said):
        learner.add_class(names)
    assert learner.classes == tuple(CLASSES)
    assert learner.predict_one(picture(4)).probs.shape == (4,)


class Own(Method):
    """A method of one's own that says nothing about forgetting or growing."""

    asks = True

    def predict(self, views: torch.Tensor) -> MethodOutput:
        feature = views[0].double().mean(dim=(1, 2))
        return MethodOutput(torch.full((4,), 0.25), 1.0, item=ReplayItem(None, None, feature))


def test_methods_of_ones_own_that_cannot_forget_or_grow_say_so(
    tiny: Clip, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(registry.find_method("zero_shot+"), name="own", build=lambda *_: Own())
    monkeypatch.setitem(registry.METHODS._things, "own", own)
    learner = Learner(tiny, CLASSES, "own", **ALWAYS)
    with pytest.raises(SettingsError, match="Own cannot take in classes added later"):
        learner.add_class("rocket")
    assert learner.classes == tuple(CLASSES)
    stream(learner, picture, 2)
    with pytest.raises(QueryError, match="not among the last 0"):
        learner.undo(1)
    with pytest.raises(QueryError, match="Own cannot take answers back"):
        learner.method.forget(1, 0, ReplayItem(None, None, torch.zeros(3)))


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_learner_that_was_stopped_between_new_classes_is_the_same_to_the_bit(
    tiny: Clip, picture: Picture, tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    adds, stops = rng.choice(np.arange(5, 50), 3, replace=False), rng.choice(50, 4, replace=False)
    one, other = (Learner(tiny, CLASSES, "zero_shot+", undo=6, **ALWAYS) for _ in range(2))
    for number in range(50):
        label = int(rng.integers(len(one.classes)))
        for each in (one, other):
            if number in adds:
                each.add_class([f"class {number}"])
            each.learn_one(each.predict_one(picture(number % 7)).id, label)
        if number in stops:
            other.save(tmp_path / str(number))
            other = Learner.load(tmp_path / str(number), tiny)
    mine, theirs = one.state_dict()["tensors"], other.state_dict()["tensors"]
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert torch.equal(value, theirs[name]), name
