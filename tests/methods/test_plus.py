"""A head on any method: the same numbers as worked out beside it, saved and resumed, cheap, harmless."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import taps
from taps.errors import QueryError, SettingsError
from taps.head.head import Head
from taps.learner import Learner
from taps.methods.base import MethodOutput
from taps.model.images.views import make_views, sample_generator

CLASSES = ["cat", "dog", "car", "tree"]
VIEWS = {"views": 6, "fraction": 0.34}
KINDS = {"taps+": {**VIEWS, "prompts": "hand"}, "zero_shot+": {}, "view_ensemble+": VIEWS}


@pytest.fixture(scope="module")
def clip():
    return taps.load_clip("tiny")


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, size=(40, 40, 36, 3), dtype=np.uint8)


def stream(learner, images, start, stop):
    said = []
    for i in range(start, stop):
        prediction = learner.predict_one(images[i])
        said.append((prediction.probs, prediction.ask, prediction.threshold))
        if prediction.ask:
            learner.learn_one(prediction.id, i % len(CLASSES))
    return said


def test_it_is_the_simulation_on_features_taken_beforehand(clip, images):
    """What development measured on stored arrays is what the method does."""
    learner = Learner(clip, CLASSES, "view_ensemble+", rate=0.2, acquisition="random", seed=5, **VIEWS)
    text = learner.method.inputs.text
    head = Head(clip.config.embed_dim, len(CLASSES), bases=2, several=True)
    for i, image in enumerate(images):
        views = make_views(image, views=6, size=clip.config.image_size, generator=sample_generator(5, i))
        with torch.no_grad():
            features = F.normalize(clip.encode_image(clip.preprocess(views)).float(), dim=-1)
            logs = F.log_softmax(clip.scale * features @ text.T, dim=-1)
        kept = (-(logs.exp() * logs).sum(-1)).argsort()[:2]
        beliefs = torch.stack([logs[0], logs[kept].exp().mean(0).log()]).double().numpy()
        prediction = learner.predict_one(image)
        look = head.see(features.double().numpy(), beliefs)
        np.testing.assert_allclose(prediction.probs, head.predict(look), atol=1e-4)
        if prediction.ask:
            learner.learn_one(prediction.id, i % 4)
            head.learn(look, i % 4)
    assert head.labels == learner.summary()["head_labels"] >= 6


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("acquisition", ["random", "entropy", "vessal"])
def test_saved_and_resumed_to_the_bit(clip, images, tmp_path, method, acquisition):
    settings = {"rate": 0.3, "acquisition": acquisition, **KINDS[method]}
    whole = Learner(clip, CLASSES, method, **settings)
    stream(whole, images, 0, 20)
    whole.save(tmp_path)
    resumed = Learner.load(tmp_path, clip)
    for one, other in zip(stream(whole, images, 20, 40), stream(resumed, images, 20, 40), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:] == other[1:]
    assert whole.summary() == resumed.summary()
    some = next(iter(whole.method.examples))
    whole.undo(some)
    resumed.undo(some)
    assert whole.summary() == resumed.summary()


def test_a_state_goes_on_with_the_seed_it_was_begun_with(clip, images):
    """Whatever the seed of the learner that takes it over; the choice of questions too."""
    one = Learner(clip, CLASSES, "zero_shot+", rate=0.3, seed=1)
    other = Learner(clip, CLASSES, "zero_shot+", rate=0.3, seed=2)
    stream(one, images, 0, 10)
    other.load_state_dict(one.state_dict())
    told = [[said[1:] for said in stream(learner, images, 10, 40)] for learner in (one, other)]
    assert told[0] == told[1]


def test_answers_that_come_late_are_judged_by_what_was_said_then(clip, images, tmp_path):
    learner = Learner(clip, CLASSES, "taps+", rate=0.3, **KINDS["taps+"])
    for image in images[:20]:
        learner.predict_one(image)
    waiting = learner.pending
    assert len(waiting) >= 4
    learner.save(tmp_path)
    resumed = Learner.load(tmp_path, clip)
    for one in (learner, resumed):
        for id in reversed(waiting):
            one.learn_one(id, id % 4)
    np.testing.assert_array_equal(
        learner.predict_one(images[21]).probs, resumed.predict_one(images[21]).probs
    )
    assert learner.summary()["head_labels"] == len(waiting)


def test_the_method_inside_goes_on_as_it_always_did(clip, images):
    alone = Learner(clip, CLASSES, "taps", rate=0.3, policy="paced", **KINDS["taps+"])
    ridden = Learner(clip, CLASSES, "taps+", rate=0.3, acquisition="entropy", explore=0.0, **KINDS["taps+"])
    inner: list[MethodOutput] = []
    predict = ridden.method.inner.predict
    ridden.method.inner.predict = lambda views: inner.append(predict(views)) or inner[-1]
    for i, image in enumerate(images):
        one, other = alone.predict_one(image), ridden.predict_one(image)
        assert (one.ask, one.entropy, one.threshold) == (other.ask, other.entropy, other.threshold)
        np.testing.assert_array_equal(one.probs, inner[-1].probs.numpy())
        if one.ask:
            alone.learn_one(one.id, i % 4)
            ridden.learn_one(other.id, i % 4)


def test_without_labels_it_is_the_mixture_of_its_bases(clip, images):
    learner = Learner(clip, CLASSES, "zero_shot+", rate=0.01)
    plain = Learner(clip, CLASSES, "zero_shot")
    for image in images[:5]:
        assert learner.predict_one(image).index == plain.predict_one(image).index
    assert learner.summary()["head_labels"] == 0


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_the_budget_is_exact(clip, images, rate):
    learner = Learner(clip, CLASSES, "zero_shot+", rate=rate)
    for _ in range(3):
        stream(learner, images, 0, 40)
    assert 120 * rate - 2 <= learner.asked <= 120 * rate + 1e-9


def test_taken_back_answers_and_those_too_old(clip, images):
    learner = Learner(clip, CLASSES, "zero_shot+", rate=0.5, undo=3)
    stream(learner, images, 0, 20)
    ids = list(learner.method.examples)
    assert [id for id in ids if learner.method.remembers(id)] == ids[-3:]
    with pytest.raises(QueryError):
        learner.undo(0)
    before = learner.summary()["head_labels"]
    learner.undo(ids[-3])
    assert learner.summary()["head_labels"] == before - 1


def test_an_image_that_gives_no_numbers_leaves_no_trace(clip, images):
    learner = Learner(clip, CLASSES, "zero_shot+", rate=0.5)
    stream(learner, images, 0, 10)
    before = learner.method.snapshot()
    bad = torch.full((1, 3, clip.config.image_size, clip.config.image_size), float("nan"))
    output = learner.method.predict(bad)
    assert output.item is None
    for name, value in learner.method.snapshot().tensors.items():
        torch.testing.assert_close(value, before.tensors[name], rtol=0, atol=0)


def test_settings_that_cannot_be_are_refused(clip):
    with pytest.raises(SettingsError, match="acquisition"):
        Learner(clip, CLASSES, "taps+", acquisition="beauty", **KINDS["taps+"])
    with pytest.raises(SettingsError, match="acquisition"):
        Learner(clip, CLASSES, "taps", acquisition="random")
