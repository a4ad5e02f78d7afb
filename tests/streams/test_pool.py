"""Images of a backlog, and of several streams, predicted together; a method's contract checks it, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import taps
from taps import Learner, Pool, load_clip
from taps.checks.states import same_state
from taps.errors import ImageError, QueryError
from taps.learner.together import BACKLOG_IMAGES
from taps.methods.taps import PromptTuner
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.types import PixelArray

CLASSES = ["cat", "dog", "fire truck"]
Picture = Callable[[int], PixelArray]


def test_a_backlog_is_predicted_as_one_after_the_other(
    tiny64: Clip, maple_prompts: Prompts, picture: Picture
) -> None:
    for method, settings in (
        ("taps", {"views": 4, "prompts": maple_prompts, "warmup": 2, "rate": 0.3, "fraction": 0.5}),
        ("zero_shot+", {"rate": 0.3}),
        ("view_ensemble+", {"views": 4, "rate": 0.3}),
    ):
        alone, together = (Learner(tiny64, CLASSES, method, seed=3, **settings) for _ in range(2))
        for part in (range(5), range(5, 5 + BACKLOG_IMAGES + 3)):  # answers come between backlogs
            said = [alone.predict_one(picture(number % 9)) for number in part]
            many = together.predict_many([picture(number % 9) for number in part])
            assert [each.id for each in many] == list(part)
            assert [(each.index, each.ask) for each in many] == [(each.index, each.ask) for each in said]
            assert all(np.allclose(a.probs, b.probs, atol=1e-6) for a, b in zip(many, said, strict=True))
            asked = [each.id for each in said if each.ask][:2]
            for learner in (alone, together):
                for id in asked:
                    learner.learn_one(id, id % 3)
        assert asked
        assert together.summary() == alone.summary()


def test_streams_in_a_pool_are_those_alone(tiny: Clip, maple_prompts: Prompts, picture: Picture) -> None:
    def learners() -> dict[str, Learner]:
        tuned = {"views": 4, "prompts": maple_prompts, "rate": 0.5, "warmup": 1}
        return {
            "gate": Learner(tiny, CLASSES, "taps", seed=1, **tuned),  # type: ignore[arg-type]
            "yard": Learner(tiny, CLASSES, "taps", seed=2, **tuned),  # type: ignore[arg-type]
            "roof": Learner(tiny, ["oak", "elm"], "zero_shot+", seed=3),
            "well": Learner(tiny, CLASSES, "taps", seed=4, reset="never", **tuned),  # type: ignore[arg-type]
        }

    pool, alone = Pool(learners()), learners()
    names = ["gate", "yard", "roof", "gate", "well", "yard", "gate", "roof"]
    for round in range(4):
        images = [(name, picture(number + 3 * round)) for number, name in enumerate(names)]
        for (name, image), said in zip(images, pool.predict(images), strict=True):
            expected = alone[name].predict_one(image)
            assert (said.id, said.label, said.ask) == (expected.id, expected.label, expected.ask)
            assert np.allclose(said.probs, expected.probs, atol=1e-4)
        for name in ("gate", "yard"):  # an answer changes what comes after, of its own stream alone
            for id in alone[name].pending:
                pool[name].learn_one(id, id % 3)
                alone[name].learn_one(id, id % 3)
    assert alone["gate"].answered
    for name, learner in alone.items():
        assert pool[name].summary() == learner.summary()
    with pytest.raises(QueryError, match="no learner named 'cellar'"):
        pool.predict([("cellar", picture(0))])


NAMES = ["gate", "yard", "roof", "barn", "well"]
BATCHES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 8)), min_size=1, max_size=7)
SCHEDULES = st.lists(
    st.one_of(
        st.tuples(st.just("predict"), BATCHES),
        st.tuples(st.sampled_from(["fail", "answer", "undo", "load"]), st.just([])),
    ),
    min_size=2,
    max_size=6,
)


@hypothesis.settings(max_examples=8)
@hypothesis.given(schedule=SCHEDULES)
def test_whatever_comes_between_streams_in_a_pool_are_those_alone(
    tiny64: Clip, maple_prompts: Prompts, picture: Picture, tmp_path_factory: Any, schedule: list[Any]
) -> None:
    def learners() -> dict[str, Learner]:
        tuned: Any = {"views": 4, "prompts": maple_prompts, "rate": 0.5, "warmup": 1}
        return {
            "gate": Learner(tiny64, CLASSES, "taps", seed=1, **tuned),
            "yard": Learner(tiny64, CLASSES, "taps", seed=2, **tuned),
            "roof": Learner(tiny64, ["oak", "elm"], "zero_shot+", seed=3, rate=0.5),
            "barn": Learner(tiny64, CLASSES, "zero_shot+", seed=4, rate=0.5),
            "well": Learner(tiny64, CLASSES, "tpt_skip", seed=5, views=4),
        }

    pool, alone = Pool(learners()), learners()
    for what, batch in [*schedule, ("predict", [(name, 0) for name in NAMES])]:
        if what == "predict":
            said = pool.predict((name, picture(number)) for name, number in batch)
            for (name, number), mine in zip(batch, said, strict=True):
                expected = alone[name].predict_one(picture(number))
                assert (mine.id, mine.label, mine.ask) == (expected.id, expected.label, expected.ask)
                assert np.allclose(mine.probs, expected.probs, atol=1e-6)
        elif what == "fail":
            with pytest.raises(ImageError):
                pool.predict([("gate", picture(0)), ("roof", b"no image"), ("yard", picture(1))])
        elif what == "load":
            folder = tmp_path_factory.mktemp("saved")
            pool["gate"].save(folder)
            pool.learners["gate"] = Learner.load(folder, tiny64)
        for learner in (each[name] for each in (pool, alone) for name in NAMES):
            for id in learner.pending[:1] if what == "answer" else ():
                learner.learn_one(id, id % len(learner.classes))
            for id in learner.answered_ids[:1] if what == "undo" else ():
                learner.undo(id)
    assert [pool[name].summary() for name in NAMES] == [alone[name].summary() for name in NAMES]


def test_an_undecodable_image_leaves_all_streams_as_they_were(tiny: Clip, picture: Picture) -> None:
    learners = [Learner(tiny, CLASSES, "zero_shot+", seed=seed) for seed in range(2)]
    before = [learner.state_dict() for learner in learners]
    for good in (1, BACKLOG_IMAGES + 1):
        with pytest.raises(ImageError):
            taps.Pool(learners).predict([(0, picture(0))] * good + [(1, b"no image"), (0, picture(1))])
    assert all(same_state(learner.state_dict(), old) for learner, old in zip(learners, before, strict=True))
    assert Pool(learners).predict([]) == learners[0].predict_many([]) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["taps", "taps+", "zero_shot+", "view_ensemble+"])
def test_on_cuda_streams_in_a_pool_are_those_alone(method: str, picture: Picture) -> None:
    """Captured batches, what is left over of them, and heads on the device."""
    clip = load_clip("tiny", device="cuda", dtype=torch.float32)
    many = {} if method == "zero_shot+" else {"views": 4}

    def learners() -> list[Learner]:
        return [Learner(clip, CLASSES, method, seed=seed, **many) for seed in range(3)]  # type: ignore[arg-type]

    pool, alone = Pool(learners()), learners()
    for round in range(3):
        images = [(number % 3, picture(number + round)) for number in range(37)]
        for (name, image), said in zip(images, pool.predict(images), strict=True):
            expected = alone[name].predict_one(image)
            assert np.allclose(said.probs, expected.probs, atol=1e-3)
            assert said.entropy == pytest.approx(expected.entropy, abs=1e-3)
        for name in range(3):
            for id in sorted({*alone[name].pending} & {*pool[name].pending})[:2]:
                pool[name].learn_one(id, id % 3)
                alone[name].learn_one(id, id % 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("reset", ["sample", "never"])
def test_on_cuda_a_prediction_without_update_captures_the_step_ahead(reset: str, picture: Picture) -> None:
    clip = load_clip("tiny", device="cuda", dtype=torch.float32)
    learner, other = (Learner(clip, CLASSES, "taps", views=4, reset=reset) for _ in range(2))
    learner.predict_one(picture(0), update=False)
    assert isinstance(learner.method, PromptTuner)
    captured = learner.method.engine.captured
    assert captured is not None
    for number in range(3):
        said, expected = (each.predict_one(picture(number)) for each in (learner, other))
        assert np.array_equal(said.probs, expected.probs)
    assert learner.method.engine.captured is captured
