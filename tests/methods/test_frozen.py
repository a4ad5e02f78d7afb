"""Methods without gradients against plain arithmetic, and methods that miss their prompts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from taps import Learner
from taps.errors import PromptsError, SettingsError
from taps.methods.ensemble import confident_vote
from taps.methods.registry import find_method, method_settings
from taps.model.prompts.proda import Proda, upper_bound

NAMES = ("cat", "dog", "bird", "fire truck")


@pytest.fixture(scope="module")
def views(picture):
    blocks = torch.stack([torch.from_numpy(picture(i)[:32, :32].copy()) for i in range(10)])
    return blocks.permute(0, 3, 1, 2).contiguous()


def build(name, clip, **settings):
    return find_method(name).build(clip, NAMES, method_settings(name, settings), 0)


def zero_shot_logits(clip, views, scale=None):
    text = F.normalize(clip.encode_text([f"a photo of a {name}." for name in NAMES]), dim=-1)
    features = F.normalize(clip.encode_image(clip.preprocess(views)), dim=-1)
    return features, ((scale or clip.scale) * features @ text.T).double().numpy()


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_view_ensemble_is_the_mean_of_the_confident_views(tiny, views):
    _, logits = zero_shot_logits(tiny, views)
    probs = softmax(logits)
    uncertainty = -(probs * np.log(probs)).sum(1)
    mean = probs[np.argsort(uncertainty)[:3]].mean(0)
    output = build("view_ensemble", tiny, views=10, fraction=0.3).predict(views)
    assert np.allclose(output.probs.numpy(), mean, atol=1e-5)
    assert math.isclose(output.entropy, -(mean * np.log(mean)).sum(), abs_tol=1e-5)


@pytest.mark.parametrize("ties", ["views", "mean"])
def test_zero_counts_votes_and_breaks_ties(ties):
    """As its authors do, by the first view from the fifth on that names a tied class, or by the mean."""
    rng = np.random.default_rng(0)
    broken = differently = 0
    for _ in range(200):
        logits = rng.normal(size=(7, 4)) * 3
        probs, _ = confident_vote(torch.tensor(logits), fraction=0.6, ties=ties)
        p = softmax(logits)
        kept = np.argsort(-(p * np.log(p)).sum(1), kind="stable")[:4]
        votes = np.bincount(p[kept].argmax(1), minlength=4)
        tied = [k for k in range(4) if votes[k] == votes.max()]
        likeliest = max(tied, key=lambda k: p[kept].mean(0)[k])
        later = [k for k in p[4:].argmax(1) if k in tied]
        best = later[0] if ties == "views" and later else likeliest
        assert int(probs.argmax()) == best
        assert math.isclose(float(probs.sum()), 1.0)
        assert np.all(np.abs(probs.numpy() * 5 - votes - 0.5) <= 0.5)
        broken += len(tied) > 1
        differently += best != likeliest
    assert broken > 20
    assert (differently > 5) == (ties == "views")


def test_proda_is_the_mean_of_its_bank(tiny, views):
    prompts = Proda().initial(tiny, torch.Generator().manual_seed(0), bank=3)
    texts = []
    for context in prompts.parameters["context"]:
        texts.append(F.normalize(tiny.encode_text([f"{name}." for name in NAMES], context[None]), dim=-1))
    features, _ = zero_shot_logits(tiny, views)
    expected = torch.softmax(tiny.scale * features[:1] @ (sum(texts) / 3).T, dim=-1)[0]
    assert torch.allclose(build("proda", tiny, prompts=prompts).predict(views[:1]).probs, expected, atol=1e-5)


def test_proda_loss_bounds_the_expected_cross_entropy_from_above():
    """Monte Carlo: class weights from the bank's own Gaussian, image by image."""
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(40, 5, 3, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 1, 0])
    expected = []
    for image, label in enumerate(labels):
        logits = bank[:, image]
        cov = torch.from_numpy(np.cov(logits.numpy().T, bias=True))
        draws = np.random.default_rng(image).multivariate_normal(logits.mean(0).numpy(), cov.numpy(), 40000)
        expected.append(float(F.cross_entropy(torch.from_numpy(draws), label.expand(len(draws)))))
    bound = float(upper_bound(bank, labels))
    assert np.mean(expected) - 0.01 < bound < np.mean(expected) + 0.5


@pytest.mark.parametrize("scale", [{}, {"scale": None}, {"scale": 30.0}])
def test_tda_against_a_plain_cache(tiny, views, scale):
    """Its authors multiply by 100, whatever scale the model was trained to."""
    settings = {"unsure_from": 0.0, "unsure_to": 10.0}  # everything is unsure: both caches are used
    method = build("tda", tiny, **settings, **scale, positive_shots=2, negative_shots=1)
    features, logits = zero_shot_logits(tiny, views, scale.get("scale", 100.0))
    features, probs = features.double().numpy(), softmax(logits)
    uncertainty = -(probs * np.log(probs)).sum(1)
    seen = []
    for i in range(len(views)):
        got = method.predict(views[i : i + 1]).probs.numpy()
        seen.append(i)
        out = logits[i].copy()
        for label in range(len(NAMES)):
            mine = sorted((j for j in seen if probs[j].argmax() == label), key=lambda j: uncertainty[j])
            for j in mine[:2]:
                out[label] += 2.0 * np.exp(-3.0 * (1 - features[j] @ features[i]))
            for j in mine[:1]:
                out -= 0.117 * np.exp(-(1 - features[j] @ features[i])) * (probs[j] > 0.03)
        assert np.allclose(got, softmax(out), atol=1e-5)


def test_tda_counts_an_unsure_image_by_its_entropy_over_log2(tiny, views):
    """Nats over log2 K, as its authors count; over ln K every value would be 1.44 times as large."""
    uncertainty = build("tda", tiny).predict(views[:1]).entropy
    by_log2, by_ln = uncertainty / math.log2(len(NAMES)), uncertainty / math.log(len(NAMES))
    for share, kept in ((by_log2, 1), (by_ln, 0)):
        method = build("tda", tiny, unsure_from=0.99 * share, unsure_to=1.01 * share)
        method.predict(views[:1])
        assert method.summary() == {"cache_positive": 1, "cache_negative": kept}


def test_tpt_skip_holds_back_the_top_of_the_entropies(tiny, picture):
    settings = {"views": 4, "fraction": 0.5}
    plain = Learner(tiny, NAMES, "tpt", **settings)
    skipping = Learner(tiny, NAMES, "tpt_skip", **settings, skip=0.2, warmup=10)
    untouched = Learner(tiny, NAMES, "tpt", **settings, lr=0.0, weight_decay=0.0)
    history, held = [], 0
    for i in range(40):
        image = picture(i)
        got, moved, still = (learner.predict_one(image) for learner in (skipping, plain, untouched))
        history.append(got.entropy)
        # The mean of all so far and z standard deviations (n − 1) above it.
        skip = len(history) >= 10 and got.entropy > np.mean(history) + 0.8416212 * np.std(history, ddof=1)
        held += skip
        assert np.allclose(got.probs, still.probs if skip else moved.probs, atol=1e-6)
    assert skipping.summary()["held_back"] == held > 3
    assert skipping.summary()["skipped_updates"] == 0


def test_tpt_skip_goes_on_where_it_was_saved(tiny, picture, tmp_path):
    make = lambda: Learner(tiny, NAMES, "tpt_skip", views=4, fraction=0.5, skip=0.2, warmup=5)  # noqa: E731
    whole, stopped = make(), make()
    expected = [whole.predict_one(picture(i)).probs for i in range(20)]
    for i in range(12):
        stopped.predict_one(picture(i))
    stopped.save(tmp_path)
    resumed = Learner.load(tmp_path, tiny)
    got = [resumed.predict_one(picture(i)).probs for i in range(12, 20)]
    assert all(np.array_equal(a, b) for a, b in zip(expected[12:], got, strict=True))
    assert resumed.summary() == whole.summary()


@pytest.mark.parametrize(
    "name", ["coop", "coop+tpt", "cocoop", "cocoop+tpt", "proda", "maple", "maple+tpt", "promptalign"]
)
def test_methods_that_live_by_trained_prompts_say_when_there_are_none(tiny, name):
    family = {"promptalign": "maple"}.get(name, name.split("+")[0])
    with pytest.raises(PromptsError, match=f"taps train {family}"):
        Learner(tiny, NAMES, name)


def test_prompts_of_another_family_or_model_are_refused(tiny, maple_prompts):
    with pytest.raises(PromptsError, match="coop prompts, but maple"):
        Learner(tiny, NAMES, "coop", prompts=maple_prompts)
    with pytest.raises(PromptsError, match="not for tiny"):
        Learner(tiny, NAMES, "maple", prompts=replace(maple_prompts, base_fingerprint="other"))
    wide = {name: value.repeat_interleave(2, dim=-1) for name, value in maple_prompts.parameters.items()}
    with pytest.raises(PromptsError, match="shape"):
        Learner(tiny, NAMES, "maple", prompts=replace(maple_prompts, parameters=wide))
    broken = {**maple_prompts.parameters, "deep": maple_prompts.parameters["deep"] * math.nan}
    with pytest.raises(PromptsError, match="not finite in deep"):
        Learner(tiny, NAMES, "taps", prompts=replace(maple_prompts, parameters=broken))


def test_families_that_cannot_be_tuned_are_refused_by_methods_that_tune(tiny):
    with pytest.raises(PromptsError, match="depend on the image"):
        Learner(tiny, NAMES, "taps", prompts="cocoop")
    with pytest.raises(PromptsError, match="bank"):
        Learner(tiny, NAMES, "tpt", prompts="proda")


def test_alignment_without_statistics_or_vision_prompts_is_refused(tiny, maple_prompts):
    with pytest.raises(SettingsError, match="taps stats"):
        Learner(tiny, NAMES, "promptalign", prompts=maple_prompts)
    with pytest.raises(SettingsError, match="maple"):
        Learner(tiny, NAMES, "tpt", weight_coarse=1.0)


def test_source_falls_back_to_zero_shot_and_says_so(tiny, picture, caplog):
    learner = Learner(tiny, NAMES, "source")
    assert "No trained maple prompts" in caplog.text
    same = Learner(tiny, NAMES, "zero_shot").predict_one(picture(0))
    assert np.allclose(learner.predict_one(picture(0)).probs, same.probs, atol=1e-6)
