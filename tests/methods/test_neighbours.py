"""The label-free vote of images most like one, against the same worked out beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from taps import Learner
from taps.head.whitening import FeatureWhitener
from taps.model.clip import Clip
from taps.model.images.views import make_views, sample_generator
from taps.model.prompts.coop import Coop

CLASSES = ["cat", "dog", "car", "tree"]
VIEWS = {"views": 6, "fraction": 0.34}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, size=(30, 40, 36, 3), dtype=np.uint8)


def test_it_is_the_vote_of_the_sixteen_nearest(tiny: Clip, images):
    learner = Learner(tiny, CLASSES, "neighbours", seed=5, vote=0.7, **VIEWS)
    text = learner.method.text
    whitener, units, said = FeatureWhitener(tiny.config.embed_dim, several=True), [], []
    for i, image in enumerate(images):
        views = make_views(image, views=6, size=tiny.config.image_size, generator=sample_generator(5, i))
        with torch.no_grad():
            features = F.normalize(tiny.encode_image(tiny.preprocess(views)).float(), dim=-1)
            probs = F.softmax(tiny.scale * features @ text.T, dim=-1).double().numpy()
        entropies = -(probs * np.log(probs)).sum(axis=1)
        said.append(probs[np.argsort(entropies)[:2]].mean(axis=0))
        seen = whitener.see(features.double().numpy())[-1]
        units.append(seen / np.linalg.norm(seen))
        expected = said[-1]
        if i >= 16:
            cosines = np.array(units[:-1]) @ units[-1]
            near = np.argsort(-cosines)[:16]
            weights = np.exp(20 * (cosines[near] - 1))
            votes = weights @ np.array(said)[near] / weights.sum()
            usual = np.mean(said, axis=0)
            expected = expected * ((votes + 0.005) / (usual + 0.005)) ** 0.7
            expected = expected / expected.sum()
        np.testing.assert_allclose(learner.predict_one(image).probs, expected, atol=2e-4)


def test_it_goes_on_where_it_was_saved_and_takes_in_new_classes(tiny: Clip, images, tmp_path: Path):
    one = Learner(tiny, CLASSES, "neighbours", **VIEWS)
    for image in images[:20]:
        one.predict_one(image)
    one.save(tmp_path)
    other = Learner.load(tmp_path, tiny)
    for image in images[20:25]:
        np.testing.assert_array_equal(one.predict_one(image).probs, other.predict_one(image).probs)
    one.add_class("rocket")
    probs = one.predict_one(images[25]).probs
    assert probs.shape == (5,)
    assert np.isfinite(probs).all()
    assert not one.predict_one(images[26]).ask


def test_the_prompts_it_was_given_are_saved_with_it(tiny: Clip, images, tmp_path: Path):
    one = Learner(tiny, CLASSES, "neighbours", prompts=Coop().initial(tiny, words="sketch of"), **VIEWS)
    one.predict_one(images[0])
    one.save(tmp_path)
    again = Learner.load(tmp_path, tiny).predict_one(images[1])
    np.testing.assert_array_equal(again.probs, one.predict_one(images[1]).probs)
