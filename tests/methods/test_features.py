"""Methods in feature space, written out again in float64 on the features of a short stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from taps import Learner
from taps.methods.registry import all_methods, find_method, method_settings
from taps.model.clip import Clip
from taps.types import PixelArray

Array = NDArray[np.float64]
NAMES = ("cat", "dog", "bird", "fire truck")
IMAGES, VIEWS, KEPT = 12, 6, 3
Picture = Callable[[int], PixelArray]


def softmax(logits: Array) -> Array:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def entropy(probs: Array) -> Array:
    return np.asarray(-(probs * np.log(probs)).sum(-1))


class Stream:
    """Images of several views, their features, and the class texts, by CLIP's own encoders."""

    def __init__(self, clip: Clip, picture: Picture) -> None:
        self.clip = clip
        blocks = [torch.from_numpy(picture(i)[:32, :32].copy()) for i in range(IMAGES * VIEWS)]
        self.views = torch.stack(blocks).permute(0, 3, 1, 2).reshape(IMAGES, VIEWS, 3, 32, 32)
        texts = clip.encode_text([f"a photo of a {name}." for name in NAMES])
        features = clip.encode_image(clip.preprocess(self.views.flatten(0, 1)))
        self.scale = float(clip.scale)
        self.text: Array = F.normalize(texts, dim=-1).numpy()
        self.x: Array = F.normalize(features, dim=-1).numpy().reshape(IMAGES, VIEWS, -1)
        self.logits: Array = self.scale * self.x @ self.text.T
        self.probs = softmax(self.logits)

    def confident(self, image: int) -> list[int]:
        return sorted(range(VIEWS), key=lambda view: float(entropy(self.probs[image, view])))[:KEPT]

    def run(self, name: str, views: int = 1, **settings: Any) -> list[Array]:
        """What the method says of each image."""
        given = settings if views == 1 else {"views": views, "fraction": 0.5, **settings}
        method = find_method(name).build(self.clip, NAMES, method_settings(name, given), 0)
        return [method.predict(each[:views]).probs.numpy() for each in self.views]


@pytest.fixture(scope="module")
def stream(tiny64: Clip, picture: Picture) -> Stream:
    return Stream(tiny64, picture)


def same(mine: list[Array], theirs: list[Array]) -> None:
    assert len(mine) == len(theirs)
    np.testing.assert_allclose(np.stack(mine), np.stack(theirs), atol=1e-9, rtol=0)


def dota(s: Stream, *, begin: str, labels: dict[int, int]) -> list[Array]:
    """Means and the pooled covariance from all weighted views so far, anew for every image."""
    said: list[Array] = []
    dim, classes = s.x.shape[-1], len(NAMES)
    xs: list[Array] = []
    ys: list[Array] = []
    for i in range(IMAGES):
        kept = s.confident(i)
        sums = np.zeros((classes, dim)) + (s.text if begin == "text" else 0.0)
        counts = np.ones(classes)
        for x, y in zip(xs, ys, strict=True):
            sums, counts = sums + np.outer(y, x), counts + y
        means = sums / counts[:, None]
        first = s.text if begin == "text" else np.zeros((classes, dim))
        scatter = sum(0.5 * np.eye(dim) + np.outer(f - m, f - m) for f, m in zip(first, means, strict=True))
        for x, y in zip(xs, ys, strict=True):
            for k in range(classes):
                scatter = scatter + y[k] * np.outer(x - means[k], x - means[k])
        inverse = np.linalg.inv(0.9 * scatter / counts.sum() + 0.1 * np.eye(dim))
        feature = s.x[i, kept].mean(0)
        score = np.array([feature @ inverse @ m - 0.5 * m @ inverse @ m for m in means])
        weight = min(0.3 * counts.mean() / KEPT, 0.4)
        said.append(softmax(s.logits[i, kept].mean(0) + weight * score))
        xs += list(s.x[i, kept])
        ys += [np.eye(classes)[labels[i]] if i in labels else s.probs[i, view] for view in kept]
    return said


def published_dota(s: Stream, *, begin: str, labels: dict[int, int]) -> list[Array]:
    """The authors' arithmetic: a covariance for each class, around its mean before the image."""
    dim, classes = s.x.shape[-1], len(NAMES)
    means = s.text.copy() if begin == "text" else np.full((classes, dim), 0.001)
    counts = np.ones(classes)
    spreads = np.stack([0.5 * np.eye(dim) for _ in range(classes)])
    inverse = np.linalg.inv(spreads.mean(0))  # not shrunk before the first image
    said: list[Array] = []
    for i in range(IMAGES):
        kept = s.confident(i)
        feature = s.x[i, kept].mean(0)
        score = np.array([feature @ inverse @ m - 0.5 * m @ inverse @ m for m in means])
        weight = min(0.3 * counts.mean() / KEPT, 0.4)
        said.append(softmax(s.logits[i, kept].mean(0) + weight * score))
        new_means, new_counts = means.copy(), counts.copy()
        for k in range(classes):
            y = [float(labels[i] == k) if i in labels else s.probs[i, view, k] for view in kept]
            pairs = list(zip(y, s.x[i, kept], strict=True))
            new_counts[k] = counts[k] + sum(y)
            new_means[k] = (counts[k] * means[k] + sum(w * x for w, x in pairs)) / new_counts[k]
            apart = sum(w * np.outer(x - means[k], x - means[k]) for w, x in pairs)
            spreads[k] = (counts[k] * spreads[k] + apart) / new_counts[k]
        means, counts = new_means, new_counts
        inverse = np.linalg.inv(0.9 * spreads.mean(0) + 0.1 * np.eye(dim))
    return said


DOTA: dict[str, Any] = {"variance": 0.5, "shrink": 0.1, "weight_growth": 0.3, "weight_most": 0.4}


@pytest.mark.parametrize("begin", ["zero", "text"])
def test_dota(stream: Stream, begin: str) -> None:
    same(stream.run("dota", VIEWS, begin=begin, **DOTA), dota(stream, begin=begin, labels={}))


@pytest.mark.parametrize("begin", ["zero", "text"])
def test_dota_as_published(stream: Stream, begin: str) -> None:
    found = stream.run("dota", VIEWS, begin=begin, as_published=True, **DOTA)
    same(found, published_dota(stream, begin=begin, labels={}))
    assert not np.allclose(found, stream.run("dota", VIEWS, begin=begin, **DOTA), atol=1e-6)


@pytest.mark.parametrize(("as_published", "literal"), [(False, dota), (True, published_dota)])
def test_dota_with_labels_that_are_taken_back_too(
    stream: Stream, as_published: bool, literal: Callable[..., list[Array]]
) -> None:
    """An answer is a one-hot belief; a wrong one that is taken back was never there."""
    labels = {0: 2, 3: 1, 4: 2, 7: 0}
    chosen = {"views": VIEWS, "fraction": 0.5, "as_published": as_published, **DOTA}
    given = method_settings("dota_labels", chosen)
    method = find_method("dota_labels").build(stream.clip, NAMES, given, 0)
    said = []
    for i, views in enumerate(stream.views):
        output = method.predict(views)
        said.append(output.probs.numpy())
        assert output.item is not None
        assert output.score is not None
        top = stream.probs[i, stream.confident(i)].mean(0).max()
        assert abs(output.score - (1 - top)) < 1e-9  # DOTA asks about images of low top probability
        method.learn(i, 3, output.item)
        method.forget(i, 3, output.item)
        if i in labels:
            method.learn(i, labels[i], output.item)
    same(said, literal(stream, begin="zero", labels=labels))
    assert not np.allclose(said[-1], stream.run("dota", VIEWS, **DOTA)[-1], atol=1e-6)


def test_mta(stream: Stream) -> None:
    said = []
    for x, p in zip(stream.x, stream.probs, strict=True):
        apart = np.array([[np.sum((a - b) ** 2) for b in x] for a in x])
        nearest = np.sort(apart, axis=1)[:, 1 : 1 + int(0.3 * (VIEWS - 1))]
        width = 0.5 * nearest.mean(1)
        y, mode = np.full(VIEWS, 1 / VIEWS), x[0]
        for _ in range(5):
            density = np.array(
                [np.exp(-np.sum((v - mode) ** 2) / (2 * h)) for v, h in zip(x, width, strict=True)]
            )
            for _ in range(5):
                y = softmax(
                    (
                        density
                        + 4.0
                        * np.array([sum(p[i] @ p[j] * y[j] for j in range(VIEWS)) for i in range(VIEWS)])
                    )
                    / 0.2
                )
            for _ in range(5):
                weight = [y[i] * np.exp(-np.sum((x[i] - mode) ** 2) / (2 * width[i])) for i in range(VIEWS)]
                mode = sum(w * v for w, v in zip(weight, x, strict=True))
                mode = mode / np.linalg.norm(mode)
        said.append(softmax(stream.scale * stream.text @ mode))
    same(stream.run("mta", VIEWS), said)


def surest(s: Stream, upto: int, label: int, shots: int, *, labels: Array, uncertain: Array) -> list[int]:
    """Images so far that were given a class, the surest ones; of equals the first."""
    mine = [j for j in range(upto + 1) if labels[j] == label]
    return sorted(mine, key=lambda j: uncertain[j])[:shots]


@pytest.mark.parametrize("as_published", [False, True])
def test_oga(stream: Stream, as_published: bool) -> None:
    """Published: the sum of a class's images over the number there is room for, here 4."""
    s, dim = stream, stream.x.shape[-1]
    said = []
    for i in range(IMAGES):
        means, apart, most = s.text.copy(), [], 0
        for k in range(len(NAMES)):
            held = surest(s, i, k, 4, labels=s.probs[:, 0].argmax(1), uncertain=entropy(s.probs[:, 0]))
            most = max(most, len(held))
            if len(held) >= 2:
                means[k] = s.x[held, 0].sum(0) / (4 if as_published else len(held))
            apart += [s.x[j, 0] - means[k] for j in held]
        precision = dim * np.eye(dim)
        if most > 2:
            covariance = np.cov(np.stack(apart).T)
            precision = dim * np.linalg.inv(
                (len(apart) - 1) * covariance + np.trace(covariance) * np.eye(dim)
            )
        density = [-0.5 * (s.x[i, 0] - m) @ precision @ (s.x[i, 0] - m) for m in means]
        said.append(softmax(np.log(s.probs[i, 0]) + 0.3 * np.array(density)))
    same(stream.run("oga", shots=4, power=0.3, as_published=as_published), said)


def test_bca(stream: Stream) -> None:
    s, classes = stream, len(NAMES)
    mu, table = s.text.copy(), np.eye(classes)
    counts, rows = np.full(classes, 3.0), np.full(classes, 2.0)
    said = []
    for x in s.x[:, 0]:
        p = softmax(s.scale * mu @ x) @ table
        said.append(p)
        k = int(p.argmax())
        if p[k] > 0.3:
            mu[k] = (counts[k] * mu[k] + x) / (counts[k] + 1)
            mu[k] /= np.linalg.norm(mu[k])
            counts[k] += 1
        if p[k] > 0.4:
            table[k] = (rows[k] * table[k] + p) / (rows[k] + 1)
            rows[k] += 1
    assert rows.sum() > 2.0 * classes
    settings = {"feature_above": 0.3, "feature_count": 3.0, "table_above": 0.4, "table_count": 2.0}
    same(stream.run("bca", **settings), said)


def test_onzeta(stream: Stream) -> None:
    s, classes = stream, len(NAMES)
    w, rho = s.text.copy(), np.zeros(classes)
    said = []
    for t, x in enumerate(s.x[:, 0], start=1):
        q = s.probs[t - 1, 0] * np.exp(rho)
        q /= q.sum()
        rho = np.maximum(0, rho - 20 / np.sqrt(t) * (q - 1 / classes))
        vision = softmax(w @ x / 0.04)
        beta = 0.8 * np.sqrt(min(1, t / 8))
        said.append(beta * vision + (1 - beta) * q)
        w = w - 0.5 / (np.sqrt(t) * 0.04) * np.outer(vision - q, x)
        w /= np.linalg.norm(w, axis=1, keepdims=True)
    assert rho.max() > 0
    same(stream.run("onzeta", expected=8), said)


@pytest.mark.parametrize(("name", "views"), [("dmn_weak", 1), ("dmn", VIEWS)])
def test_dmn(stream: Stream, name: str, views: int) -> None:
    s = stream
    kept = [s.confident(i) if views > 1 else [0] for i in range(IMAGES)]
    mean = np.stack([s.probs[i, kept[i]].mean(0) for i in range(IMAGES)])
    said = []
    for i in range(IMAGES):
        read = []
        for k in range(len(NAMES)):
            held = surest(s, i, k, 2, labels=mean.argmax(1), uncertain=entropy(mean))
            rows = [*s.x[held, 0], s.text[k]]
            vector = sum(np.exp(-5.5 * (1 - s.x[i, 0] @ row)) * row for row in rows)
            read.append(vector / np.linalg.norm(vector))
        p = s.probs[i, 0] + 0.7 * softmax(s.scale * np.stack(read) @ s.x[i, 0])
        said.append(p / p.sum())
    same(stream.run(name, views, shots=2, weight=0.7), said)


def test_boostadapter(stream: Stream) -> None:
    """The surest images vote for, with the image's own views; the last unsure ones vote against."""
    s, classes = stream, len(NAMES)
    label, uncertain = s.probs.argmax(-1), entropy(s.probs)
    ratio = uncertain[:, 0] / np.log2(classes)
    low, high = float(np.quantile(ratio, 0.1)), float(np.quantile(ratio, 0.95))
    said = []
    last_is_not_surest = 0
    for i in range(IMAGES):
        out = s.logits[i, 0].copy()
        for k in range(classes):
            cached = surest(s, i, k, 2, labels=label[:, 0], uncertain=uncertain[:, 0])
            pool = [(uncertain[j, 0], s.x[j, 0]) for j in cached]
            pool += [(uncertain[i, v], s.x[i, v]) for v in s.confident(i) if label[i, v] == k]
            for _, x in sorted(pool, key=lambda each: each[0])[:3]:
                out[k] += 2.0 * np.exp(-3.0 * (1 - x @ s.x[i, 0]))
            unsure = [j for j in range(i + 1) if label[j, 0] == k and low < ratio[j] < high]
            last_is_not_surest += set(unsure[-2:]) != set(sorted(unsure, key=lambda j: ratio[j])[:2])
            for j in unsure[-2:]:
                out -= 5.0 * np.exp(-(1 - s.x[j, 0] @ s.x[i, 0])) * (s.probs[j, 0] > 0.25)
        said.append(softmax(out))
    assert last_is_not_surest > 0
    settings = {"scale": s.scale, "positive_shots": 2, "more": 1, "negative_weight": 5.0, "mask_above": 0.25}
    same(stream.run("boostadapter", VIEWS, unsure_from=low, unsure_to=high, **settings), said)


def ecalp(s: Stream, *, memory: int, labels: dict[int, int]) -> list[Array]:
    """The graph as one matrix over texts, labelled images and images, anew for every image."""
    classes = len(NAMES)
    spread_of = s.text.var(0, ddof=1)
    weighted = s.x[:, 0] * spread_of
    weighted = weighted / np.linalg.norm(weighted, axis=1, keepdims=True)
    begin = np.zeros((IMAGES, classes))
    said: list[Array] = []
    for t in range(IMAGES):
        window = list(range(max(0, t + 1 - memory), t + 1))
        known = [j for j in labels if j < t]
        n, size = classes + len(known), classes + len(known) + len(window)
        w = np.zeros((size, size))
        for row, i in enumerate(window, start=n):
            for first, cosines, near in (
                (0, s.text @ s.x[i, 0], 2),
                (classes, np.array([weighted[i] @ s.x[j, 0] for j in known]), 2),
                (n, np.array([weighted[i] @ s.x[j, 0] for j in window]), 3),
            ):
                for j in np.argsort(-cosines, kind="stable")[:near]:
                    w[row, first + j] = max(0.0, cosines[j]) ** 4.0
        w = w + w.T
        d = 1 / (np.sqrt(w.sum(1)) + 1e-6)
        y = np.concatenate([np.eye(classes), np.eye(classes)[[labels[j] for j in known]], begin[window]])
        for _ in range(3):
            y = np.concatenate([y[:n], (d[:, None] * w * d[None])[n:] @ y])
        for row, i in enumerate(window, start=n):
            begin[i] = 0
            begin[i, y[row].argmax()] = 0.2 * y[row].max()
        told = y[-1] / y[-1].sum() + 1e-9 * s.probs[t, 0]
        said.append(told / told.sum())
    return said


ECALP: dict[str, Any] = {"near_texts": 2, "near_images": 3, "near_labelled": 2, "power": 4.0}


@pytest.mark.parametrize("memory", [5, 50])
def test_ecalp(stream: Stream, memory: int) -> None:
    same(stream.run("ecalp", memory=memory, **ECALP), ecalp(stream, memory=memory, labels={}))


def test_ecalp_goes_on_from_its_state_to_the_same_bits(stream: Stream) -> None:
    """What is kept beside the state follows from it, wherever it is made anew."""
    given = method_settings("ecalp", {"memory": 6, **ECALP})
    whole, parts = (find_method("ecalp").build(stream.clip, NAMES, given, 0) for _ in range(2))
    for views in stream.views:
        expected = whole.predict(views[:1]).probs
        assert torch.equal(parts.predict(views[:1]).probs, expected)
        parts.restore(parts.snapshot())


def test_ecalp_with_labels(stream: Stream) -> None:
    labels = {1: 2, 4: 0, 5: 2}
    given = method_settings("ecalp_labels", {"memory": 6, **ECALP})
    method = find_method("ecalp_labels").build(stream.clip, NAMES, given, 0)
    said = []
    for i, views in enumerate(stream.views):
        output = method.predict(views[:1])
        said.append(output.probs.numpy())
        assert output.item is not None
        method.learn(100 + i, 3, output.item)
        method.forget(100 + i, 3, output.item)
        if i in labels:
            method.learn(i, labels[i], output.item)
    same(said, ecalp(stream, memory=6, labels=labels))


def test_dpe(stream: Stream) -> None:
    """Gradients by finite differences of the loss as the paper has it, then AdamW's first step."""
    s, classes = stream, len(NAMES)
    running, count = s.text.copy(), 0
    cache: list[list[tuple[float, Array]]] = [[] for _ in range(classes)]
    said = []
    others = 0

    def unit(rows: Array) -> Array:
        return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))

    def told(residual: Array, x: Array) -> tuple[Array, Array, Array, list[int]]:
        held = [k for k in range(classes) if cache[k]]
        means = np.array(
            [np.mean([f for _, f in cache[k]], axis=0) if cache[k] else 0 * x for k in range(classes)]
        )
        texts = unit(running + residual[0])
        moved = np.array([unit(means[k] + residual[1, k]) if k in held else 0 * x for k in range(classes)])
        votes = np.array([np.exp(-3 * (1 - x @ moved[k])) if k in held else 0.0 for k in range(classes)])
        return s.scale * texts @ x + 6.0 * votes, texts, moved, held

    def loss(residual: Array, x: Array) -> float:
        logits, texts, moved, held = told(residual, x)
        contrast = [-np.log(softmax(moved[k] @ texts[held].T / 0.01))[i] for i, k in enumerate(held)]
        return float(entropy(softmax(logits)) + 0.2 * np.mean(contrast))

    for i in range(6):
        rows = s.scale * s.x[i] @ unit(running).T
        kept = sorted(range(VIEWS), key=lambda view: float(entropy(softmax(rows[view]))))[:KEPT]
        others += kept != s.confident(i)
        logits = rows[kept]
        mean = s.x[i, kept].mean(0)
        label = int(logits.mean(0).argmax())
        pool = [*cache[label], (float(entropy(softmax(logits).mean(0))), mean)]
        cache[label] = sorted(pool, key=lambda each: each[0])[:2]
        residual = np.zeros((2, classes, s.x.shape[-1]))
        gradient = np.zeros_like(residual)
        for index in np.ndindex(*residual.shape):
            step = np.zeros_like(residual)
            step[index] = 1e-6
            gradient[index] = (loss(step, mean) - loss(-step, mean)) / 2e-6
        moved = -0.02 * gradient / (np.abs(gradient) + 1e-3)
        final, texts, _, _ = told(moved, s.x[i, 0])
        p = softmax(final)
        said.append(p)
        if entropy(p) / np.log2(classes) < 0.5:
            count += 1
            running = running * count / (count + 1) + texts / (count + 1)
    assert count > 0
    assert others > 0  # the texts have moved far enough that other views are the confident ones
    found = stream.run("dpe", VIEWS, shots=2, sure_below=0.5, lr=0.02)[:6]
    np.testing.assert_allclose(np.stack(found), np.stack(said), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "name", [name for name, each in all_methods().items() if each.prompts in (None, "hand", "optional")]
)
def test_one_image_again_and_again(tiny: Clip, picture: Picture, name: str) -> None:
    """A camera that stands still: whatever is estimated from the images has no spread."""
    known = find_method(name).known
    small = {"views": 3, "fraction": 0.7, "augmix": False}
    learner = Learner(tiny, NAMES, name, **{key: value for key, value in small.items() if key in known})
    image = np.full_like(picture(0), 90)
    said = [learner.predict_one(image).probs for _ in range(5)]
    assert np.isfinite(said).all()


@pytest.mark.parametrize("name", ["dota_labels", "ecalp_labels"])
def test_answers_classes_added_and_undo_as_a_user_does_them(tiny: Clip, picture: Picture, name: str) -> None:
    learner = Learner(tiny, NAMES, name, policy="fixed", tau0=-1.0)
    first = learner.predict_one(picture(0))
    learner.add_class("ship")
    learner.learn_one(first.id, "ship")  # asked before there was such a class
    before = learner.method.snapshot().tensors
    second = learner.predict_one(picture(1))
    learner.learn_one(second.id, "dog")
    assert learner.undo(second.id) == "dog"
    learner.learn_one(second.id, "dog")
    assert learner.undo(first.id) == "ship"
    assert before.keys() == learner.method.snapshot().tensors.keys()
    assert learner.predict_one(picture(2)).probs.shape == (5,)


@pytest.mark.parametrize("q", [0.1, 0.5, 1.0, 3.0])
def test_views_are_chosen_by_tsallis_entropy(stream: Stream, q: float) -> None:
    means: list[Array] = []
    votes: list[Array] = []
    others = 0
    for image, probs in enumerate(stream.probs):
        own = entropy(probs) if q == 1 else (1 - (probs**q).sum(-1)) / (q - 1)
        kept = sorted(range(VIEWS), key=lambda view: float(own[view]))[:KEPT]
        others += set(kept) != set(stream.confident(image))
        means.append(probs[kept].mean(axis=0))
        counts = np.bincount(probs[kept].argmax(-1), minlength=len(NAMES))
        votes.append((counts + means[-1]) / (KEPT + 1))
    assert bool(others) == (q != 1), "the choice must differ for the test to say anything"
    same(stream.run("view_ensemble", VIEWS, tsallis=q), means)
    same(stream.run("zero", VIEWS, tsallis=q, ties="mean"), votes)
    for name in ("tpt", "tps", "mcp", "tent"):  # each way a method chooses views; H_t is of those kept
        settings: dict[str, Any] = {"views": VIEWS, "fraction": 0.5, "tsallis": q}
        settings |= {"scale": stream.scale} if name == "mcp" else {}
        method = find_method(name).build(stream.clip, NAMES, method_settings(name, settings), 0)
        found = [method.predict(views).entropy for views in stream.views]
        np.testing.assert_allclose(found, entropy(np.stack(means)), atol=1e-9, rtol=0)
