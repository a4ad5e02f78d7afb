"""The collapse guard: its rule, and a stream that collapses without it."""

import logging
from math import isclose

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from taps import Learner
from taps.methods.collapse_guard import CollapseGuard, effective_classes

NAMES = ("cat", "dog", "bird", "car", "tree", "boat")


def naive_effective(values):
    shares = [values.count(v) / len(values) for v in set(values)]
    return float(np.prod([share**-share for share in shares]))


def test_effective_classes_against_a_product():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.integers(0, 5, size=30).tolist()
        assert isclose(effective_classes(values), naive_effective(values), rel_tol=1e-12)


def test_a_stream_that_shows_one_class_is_no_collapse():
    guard = CollapseGuard(window=5)
    assert not any(guard.collapsed(predicted=3, anchored=3) for _ in range(50))


def test_labels_buy_patience():
    """Six of ten classes: enough while labels arrive, too few in silence."""
    silent, labelled = CollapseGuard(window=10), CollapseGuard(window=10)
    fired = [silent.collapsed(predicted=i % 6, anchored=i % 10) for i in range(10)]
    assert fired == [False] * 9 + [True]
    for i in range(40):
        labelled.labelled()
        assert not labelled.collapsed(predicted=i % 6, anchored=i % 10)
    # A real collapse fires whatever labels come.
    fired = []
    for i in range(10):
        labelled.labelled()
        fired.append(labelled.collapsed(predicted=0, anchored=i % 10))
    assert any(fired)


def test_it_looks_at_the_window_alone_and_starts_anew_after_a_collapse():
    guard = CollapseGuard(window=4)
    for i in range(20):
        assert not guard.collapsed(predicted=i, anchored=i)
    fired = [guard.collapsed(predicted=0, anchored=i) for i in range(10)]
    assert fired.index(True) <= 3
    assert guard.collapses == sum(fired) == 2  # four images later again


@pytest.fixture(scope="module")
def pictures(tiny):
    """One picture for each class, climbed to by gradient, so that the untouched model tells them apart."""
    text = F.normalize(tiny.encode_text([f"a photo of a {name}." for name in NAMES]), dim=-1)
    text = text - text.mean(dim=0)
    noise = torch.randn(len(NAMES), 3, 32, 32, generator=torch.Generator().manual_seed(0))
    x = (127 + 20 * noise).requires_grad_()
    for _ in range(60):
        feature = F.normalize(tiny.encode_image(tiny.preprocess(x)), dim=-1)
        (slope,) = torch.autograd.grad((feature * text).sum(), x)
        x = (x + 8 * slope.sign()).clamp(0, 255).detach().requires_grad_()
    return x.detach()


def stream(pictures, count):
    for i in range(count):
        noise = 20 * torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(i))
        image = (pictures[i % len(NAMES)] + noise).clamp(0, 255).byte().permute(1, 2, 0)
        yield image.numpy().copy(), i % len(NAMES)


def run(learner, pictures, count):
    seen = [(learner.predict_one(image).index, label) for image, label in stream(pictures, count)]
    return [index for index, _ in seen], float(np.mean([index == label for index, label in seen]))


def learner(tiny, **settings):
    return Learner(
        tiny, NAMES, "tpt", reset="never", lr=5e-3, views=8, fraction=0.5, guard_window=30, **settings
    )


def test_a_stream_collapses_without_the_guard_and_recovers_with_it(tiny, pictures, caplog):
    untouched, accuracy_untouched = run(Learner(tiny, NAMES, "zero_shot"), pictures, 180)
    plain, accuracy_plain = run(learner(tiny, guard=False), pictures, 180)
    guarded_learner = learner(tiny)
    with caplog.at_level(logging.WARNING, logger="taps"):
        guarded, accuracy_guarded = run(guarded_learner, pictures, 180)
    assert effective_classes(plain[-60:]) < 0.7 * effective_classes(untouched[-60:])
    assert accuracy_untouched > 0.75
    assert accuracy_plain < accuracy_untouched - 0.2
    assert accuracy_guarded > accuracy_plain
    assert effective_classes(guarded) > effective_classes(plain)
    collapses = guarded_learner.summary()["collapses"]
    assert collapses >= 1
    assert sum("collapsed" in record.message for record in caplog.records) == collapses


def test_saved_in_the_middle_of_a_window_it_goes_on_to_the_bit(tiny, pictures, tmp_path):
    whole, stopped = learner(tiny), learner(tiny)
    images = [image for image, _ in stream(pictures, 60)]
    expected = [whole.predict_one(image).probs for image in images]
    for image in images[:23]:
        stopped.predict_one(image)
    stopped.save(tmp_path)
    resumed = Learner.load(tmp_path, tiny)
    got = [resumed.predict_one(image).probs for image in images[23:]]
    assert all(np.array_equal(a, b) for a, b in zip(expected[23:], got, strict=True))
    assert resumed.summary()["collapses"] == whole.summary()["collapses"] >= 1


def test_every_k_is_guarded_and_episodic_is_not(tiny):
    assert "collapses" in Learner(tiny, NAMES, "tpt", reset="every:40").summary()
    assert "collapses" not in Learner(tiny, NAMES, "tpt").summary()
