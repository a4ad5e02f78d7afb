"""Label-free methods of 2025 and 2026, written out again in float64 on the features of a short stream."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from taps.errors import SettingsError
from taps.methods.registry import find_method, method_settings
from taps.model.clip import Clip
from taps.model.clip.config import builtin_config
from taps.model.clip.model import unfilled
from taps.rivals.moon import log_bessel
from tests.methods.test_features import (
    IMAGES,
    KEPT,
    NAMES,
    VIEWS,
    Array,
    Picture,
    Stream,
    entropy,
    same,
    softmax,
)

CLASSES = len(NAMES)


@pytest.fixture(scope="module")
def stream(tiny64: Clip, picture: Picture) -> Stream:
    return Stream(tiny64, picture)


def test_freetta(stream: Stream) -> None:
    """One E step and one M step an image; the text counts as one image, so does the unit covariance."""
    s, dim = stream, stream.x.shape[-1]
    means, counts, covariance, total = s.text.copy(), np.ones(CLASSES), np.eye(dim), 1.0

    def score(x: Array) -> Array:
        inverse = np.linalg.inv(covariance)
        density = [x @ inverse @ m - 0.5 * m @ inverse @ m for m in means]
        return np.asarray(density) + np.log(counts / counts.sum())

    said = []
    for x, logits in zip(s.x[:, 0], s.logits[:, 0], strict=True):
        gamma = softmax(score(x))
        weight = float(np.exp(-0.5 * entropy(softmax(logits))))
        for k in range(CLASSES):
            share = weight * gamma[k]
            means[k] = (counts[k] * means[k] + share * x) / (counts[k] + share)
            counts[k] += share
        scatter = sum(weight * g * np.outer(x - m, x - m) for g, m in zip(gamma, means, strict=True))
        covariance = (total * covariance + scatter) / (total + weight)
        total += weight
        said.append(softmax(logits + 0.7 * score(x)))
    same(stream.run("freetta", weight=0.7, doubt=0.5), said)


def test_tt_raa(stream: Stream) -> None:
    """The authors' arithmetic with whole covariances, and a matrix inverse."""
    s, dim = stream, stream.x.shape[-1]
    held: dict[int, list[Any]] = {}
    said, moved = [], 0

    def stretched(values: Array, like: Array) -> Array:
        share = (values - values.min()) / (values.max() - values.min() + 1e-8)
        return np.asarray(share * (like.max() - like.min()) + like.min())

    for x, logits in zip(s.x[:, 0], s.logits[:, 0], strict=True):
        k, h = int(logits.argmax()), float(entropy(softmax(logits)))
        if k not in held:
            held[k] = [x, h, 0.01 * np.eye(dim)]
        elif h < held[k][1]:
            moved += 1
            mean = 0.4 * held[k][0] + 0.6 * x
            every = np.full((dim, dim), float((x - mean) @ (x - mean)))
            held[k] = [mean, 0.4 * held[k][1] + 0.6 * h, 0.4 * held[k][2] + 0.6 * every]
        classes = sorted(held)
        means = np.stack([held[c][0] for c in classes])
        inverse = np.linalg.inv(np.mean([held[c][2] for c in classes], axis=0))
        cosines = means @ x
        density = np.array([m @ inverse @ x - 0.5 * m @ inverse @ m + np.log(1 / CLASSES) for m in means])
        own, theirs = softmax(s.text @ x / 0.2), softmax(means @ s.text.T / 0.2)
        apart = np.array([(own * (np.log(own) - np.log(each))).sum() for each in theirs])
        votes = np.exp(-3.0 * (1 - cosines)) + stretched(density, cosines) / 3 - stretched(apart, cosines)
        out = logits.copy()
        out[classes] += 6.0 * votes
        said.append(softmax(out))
    assert moved >= 2
    assert len(held) >= 2
    same(stream.run("tt_raa", step=0.6), said)


def nearest(x: Array, near: int = 3) -> Array:
    """(W + Wᵀ)/6, W the cosines with the three nearest others; no negative ones."""
    w = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        others = sorted((j for j in range(len(x)) if j != i), key=lambda j: -float(x[i] @ x[j]))
        for j in others[:near]:
            w[i, j] = max(0.0, float(x[i] @ x[j]))
    return (w + w.T) / (2 * near)


def stata(x: Array, y: Array, text: Array, anchor: float, temperature: float) -> Array:
    n, w = len(x), nearest(x)
    first = sum(y[i, k] * (x[i] - text[k]) ** 2 for i in range(n) for k in range(CLASSES)) / n
    mu, var, z = text.copy(), np.stack([first] * CLASSES), y
    for _ in range(10):
        logp = [
            [-0.5 * (((xi - mu[k]) ** 2 / var[k]).sum() + np.log(var[k]).sum()) for k in range(CLASSES)]
            for xi in x
        ]
        z = softmax(np.log(y) + np.array(logp) / temperature + w @ z)
        for k in range(CLASSES):
            count = int((z.argmax(1) == k).sum())
            beta = count / (count + anchor)
            share = z[:, k] / z[:, k].sum()
            mu[k] = beta * (share @ x) + (1 - beta) * text[k]
            mu[k] /= np.linalg.norm(mu[k])
            var[k] = beta * (share @ (x - mu[k]) ** 2) + (1 - beta) * (first + (text[k] - mu[k]) ** 2)
    return z


def moon(x: Array, y: Array, text: Array) -> Array:
    n, dim, w = len(x), x.shape[1], nearest(x)
    alpha = [1 / np.sqrt(y[:, k].mean() * y[:, k].max()) for k in range(CLASSES)]
    likeness = sum(y[i, k] * (x[i] @ text[k]) for i in range(n) for k in range(CLASSES)) / n
    likeness = max(likeness, 1e-6)
    z = y
    for _ in range(10):
        gamma = 1 - entropy(z) / np.log(CLASSES)
        logp = np.zeros((n, CLASSES))
        for k in range(CLASSES):
            vector = (gamma * z[:, k]) @ x + alpha[k] * likeness * text[k]
            r = np.linalg.norm(vector) / ((gamma * z[:, k]).sum() + alpha[k])
            kappa = (dim * r - r**3) / (1 - r**2)
            bessel = float(log_bessel(dim / 2 - 1, torch.tensor(kappa, dtype=torch.float64)))
            mu = vector / np.linalg.norm(vector)
            logp[:, k] = kappa * x @ mu + (dim / 2 - 1) * np.log(kappa) - bessel
        z = softmax(np.log(y) + logp + w @ z)
    return z


@pytest.mark.parametrize("window", [5, 50])
def test_windows(stream: Stream, window: int) -> None:
    """Every image is predicted with those before it in the window; the batch is made anew each time."""
    gaussian, spherical = [], []
    for t in range(IMAGES):
        batch = slice(max(0, t + 1 - window), t + 1)
        x, y = stream.x[batch, 0], stream.probs[batch, 0]
        gaussian.append(stata(x, y, stream.text, 2.0, 9.0)[-1])
        spherical.append(moon(x, y, stream.text)[-1])
    same(stream.run("stata", window=window, anchor=2.0, temperature=9.0), gaussian)
    same(stream.run("moon", window=window), spherical)


@pytest.mark.parametrize(("order", "x"), [(15.0, 4.0), (15.0, 60.0), (255.0, 30.0), (255.0, 1200.0)])
def test_the_bessel_function(order: float, x: float) -> None:
    """Against its power series Σ (x/2)^(2m+ν) / (m! Γ(m+ν+1)), in logarithms."""
    terms = [
        (2 * m + order) * math.log(x / 2) - math.lgamma(m + 1) - math.lgamma(m + order + 1)
        for m in range(4000)
    ]
    exact = max(terms) + math.log(sum(math.exp(term - max(terms)) for term in terms))
    found = float(log_bessel(order, torch.tensor(x, dtype=torch.float64)))
    assert abs(found - exact) < 1e-3 / order**0.5


def test_gs_bias(stream: Stream) -> None:
    """The authors' loop with autograd on whole sums: two biases, running means of them, an early end."""
    s, rates = stream, (1.6, 2.0)
    clip = s.clip
    text, scale = torch.from_numpy(s.text), s.scale
    tower: Any = clip.visual
    with torch.no_grad():
        inputs = tower.block_inputs(clip.preprocess(s.views[:, 0]), None, [3])[0]
        block = tower.transformer.resblocks[3]
        tokens = sum(block.whole(inputs, block.ln_1(inputs)))
        patches = F.normalize(tower.ln_post(tokens)[:, 1:] @ tower.proj, dim=-1)
    ended, said = 0, []
    for i in range(IMAGES):
        views = torch.from_numpy(s.logits[i])
        spots = scale * patches[i] @ text.T
        biases = [torch.zeros(CLASSES, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        history, losses = list(biases), []
        for _ in range(4):
            current = [0.9 * b + 0.1 * h for b, h in zip(biases, history, strict=True)]
            p = torch.softmax(views + current[0], dim=1)
            kept = torch.argsort(-(p * p.log()).sum(1), stable=True)[:KEPT]
            q = torch.softmax(spots + current[1], dim=1)
            telling = torch.softmax(spots + current[1], dim=0).sum(1).topk(4).indices
            loss = [-(m * m.log()).sum() for m in (p[kept].mean(0), q[telling].mean(0))]
            losses.append(loss[0].item())
            if abs(losses[-1] - losses[0]) / losses[0] > 0.25:
                ended += 1
                break
            history = current
            pairs = zip(loss, biases, strict=True)
            steps = [torch.autograd.grad(each, bias, retain_graph=True)[0] for each, bias in pairs]
            biases = [b - r * g for b, r, g in zip(biases, rates, steps, strict=True)]
        final = [0.9 * b + 0.1 * h for b, h in zip(biases, history, strict=True)]
        said.append(torch.softmax(views[0] + final[0] + final[1], dim=0).detach().numpy())
    assert 0 < ended < IMAGES
    settings = {"view_rate": rates[0], "patch_rate": rates[1], "patches": 4, "steps": 4}
    same(stream.run("gs_bias", VIEWS, **settings), said)


def test_gs_bias_needs_patches() -> None:
    pooled = unfilled(replace(builtin_config("tiny"), name="pooled", vision_pool="mean"))
    with pytest.raises(SettingsError, match="image tower of pooled has none"):
        find_method("gs_bias").build(pooled, NAMES, method_settings("gs_bias", {}), 0)


class Caches:
    """MCP's three caches as lists of each class: (feature, entropy), unsure ones with their probabilities."""

    def __init__(self, text: Array, shots: int) -> None:
        self.text, self.shots = text, shots
        self.sure: list[list[Any]] = [[] for _ in NAMES]
        self.aligned: list[list[Any]] = [[] for _ in NAMES]
        self.unsure: list[list[Any]] = [[] for _ in NAMES]
        self.kept: list[list[Array]] = [[] for _ in NAMES]
        self.refused = self.turned = 0

    def put(self, cache: list[Any], item: tuple[Any, ...], room: int) -> None:
        if len(cache) < room:
            cache.append(item)
        elif item[1] < cache[-1][1]:
            cache[-1] = item
        cache.sort(key=lambda each: each[1])

    def align(self, label: int, x: Array, h: float) -> None:
        cache = self.aligned[label]
        if len(cache) == self.shots:
            centre = 0.8 * np.mean(self.kept[label], axis=0) + 0.2 * self.text[label]
            if np.linalg.norm(x - centre) >= np.linalg.norm(cache[-1][0] - centre):
                self.refused += h < cache[-1][1]
                return
        self.put(cache, (x, h), self.shots)

    def against(self, x: Array) -> Array:
        """Votes of the unsure images against classes."""
        out = np.zeros(CLASSES)
        for cache in self.unsure:
            for key, _, p in cache:
                out += 0.117 * np.exp(-(1 - x @ key)) * (p > 0.03)
        return out


def mcp(
    s: Stream, *, low: float, high: float, plus: float | None, shots: int = 2
) -> tuple[list[Array], Caches]:
    """The authors' loop, α 5 and β 7 as for DTD; `plus` is MCP++'s learning rate."""
    caches, said = Caches(s.text, shots), []
    logits = 100 * s.x @ s.text.T
    probs = softmax(logits)
    for i in range(IMAGES):
        x, p = s.x[i, 0], probs[i]
        kept = sorted(range(VIEWS), key=lambda v: float(entropy(p[v])))[:KEPT]
        views = p[kept].mean(0)
        label, near, h = int(p[0].argmax()), int(views.argmax()), float(entropy(p[0]))
        caches.put(caches.sure[label], (x, h), shots)
        caches.align(near, x, float(entropy(views)))
        for c in {label, near}:
            caches.kept[c] = [each[0] for each in caches.aligned[c] + caches.sure[c]]
        if low < h / np.log2(CLASSES) < high:
            again = logits[i, 0].copy()
            for c, cache in enumerate(caches.sure):
                again[c] += sum(5.0 * np.exp(-7.0 * (1 - x @ key)) for key, _ in cache)
            q = softmax(again)
            h2 = float(entropy(q))
            if low < h2 / np.log2(CLASSES) < high:
                caches.put(caches.unsure[int(q.argmax())], (x, h2, q), 3)
            elif h2 / np.log2(CLASSES) <= low:
                caches.turned += 1
                caches.put(caches.sure[int(q.argmax())], (x, h2), shots)
        held = [c for c in range(CLASSES) if caches.kept[c]]
        means = np.stack([np.mean(caches.kept[c], axis=0) for c in held])
        out = logits[i, 0].copy()
        if plus is None:
            out[held] += 5.0 * np.exp(-7.0 * (1 - means @ x))
            out -= caches.against(x)
        else:
            views, out = plus_step(s, i, caches, held, means, plus)
        read = np.zeros(CLASSES)
        for c in range(CLASSES):
            keys = np.stack([*caches.kept[c], s.text[c]])
            sums = np.exp(-5.5 * (1 - keys @ x)) @ keys
            read[c] = 100 * sums @ x / np.linalg.norm(sums)
        total = views + softmax(read) + softmax(out)
        said.append(total / total.sum())
    return said, caches


def plus_step(
    s: Stream, i: int, caches: Caches, held: list[int], means: Array, lr: float
) -> tuple[Array, Array]:
    """One step of torch's AdamW on residuals of texts and prototypes, with the authors' three losses."""
    x, text, keys = (torch.from_numpy(each) for each in (s.x[i, 0], s.text, means))
    residuals = [torch.zeros_like(each, requires_grad=True) for each in (text, keys)]
    optimiser = torch.optim.AdamW(residuals, lr=lr, eps=1e-3, weight_decay=0.1)
    against = torch.from_numpy(caches.against(s.x[i, 0]))

    def votes() -> Any:
        new = F.normalize(keys + residuals[1], dim=1)
        return torch.zeros(CLASSES, dtype=torch.float64).index_add(
            0, torch.tensor(held), 5.0 * torch.exp(-7.0 * (1 - new @ x))
        )

    new_text, new_keys = F.normalize(text + residuals[0], dim=1), F.normalize(keys + residuals[1], dim=1)
    out = 100 * new_text @ x + votes() - against
    p = torch.softmax(out, dim=0)
    unsure = [
        np.mean([each[0] for each in caches.unsure[c]], axis=0) if caches.unsure[c] else np.zeros(len(x))
        for c in held
    ]
    cosines = F.normalize(new_keys.T, dim=1) @ F.normalize(new_text[held].T, dim=1).T / 0.01
    align = -(torch.log_softmax(cosines, dim=1).diagonal()).mean()
    apart = -torch.log(1 - F.cosine_similarity(new_keys, torch.from_numpy(np.stack(unsure))) + 1e-7).mean()
    loss = -(p * p.log()).sum() + 0.5 * align + 0.2 * apart
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    with torch.no_grad():
        told = 100 * torch.from_numpy(s.x[i]) @ F.normalize(text + residuals[0], dim=1).T
        probs = torch.softmax(told, dim=1)
        kept = torch.argsort(-(probs * probs.log()).sum(1), stable=True)[:KEPT]
        return probs[kept].mean(0).numpy(), (out.detach() + votes() - against).numpy()


@pytest.mark.parametrize("plus", [None, 0.05, 6e-4])
def test_mcp(stream: Stream, plus: float | None) -> None:
    low, high = 0.08, 0.6
    said, caches = mcp(stream, low=low, high=high, plus=plus)
    assert any(caches.unsure)
    assert caches.turned
    assert caches.refused
    shots = {"positive_shots": 2, "aligned_shots": 2, "unsure_from": low, "unsure_to": high}
    more = {"lr": plus} if plus == 0.05 else {}  # the other one is the default
    same(stream.run("mcp" if plus is None else "mcp_plus", VIEWS, **shots, **more), said)


def condensed(tower: Any, image: Any, anchors: Any, drop: float) -> tuple[Any, Any, int]:
    """The tower as TCA runs it: the feature, class tokens behind every block, how many tokens are left."""
    x, found = tower.embed(image[None], None)[0], []
    for depth, block in enumerate(tower.transformer.resblocks):
        tokens = x
        if depth and anchors is not None:
            likeness = F.cosine_similarity(anchors[:, depth - 1], x[0][None])
            tokens = torch.cat([anchors[likeness.argmax(), depth - 1][None], x])
        attn, normed = block.attn, block.ln_1(tokens)
        q, k, v = (
            normed @ w.T + b
            for w, b in zip(attn.in_proj_weight.chunk(3), attn.in_proj_bias.chunk(3), strict=True)
        )
        size, looks, seen = x.shape[1] // attn.heads, [], []
        for head in range(attn.heads):
            part = slice(head * size, (head + 1) * size)
            weights = torch.softmax(q[:, part] @ k[:, part].T / size**0.5, dim=1)[-len(x) :]
            looks.append(weights[0, -len(x) + 1 :])
            seen.append(weights @ v[:, part])
        x = x + attn.out_proj(torch.cat(seen, dim=1))
        if depth:
            looked = sum(looks) / len(looks)
            order = sorted(range(len(x) - 1), key=lambda j: -float(looked[j]))
            left = math.ceil((1 - drop) * len(order))
            clear = left - 2 * (len(x) - left)
            groups = clusters(x[1:][order[clear:left]])
            rest = sum(looked[j] * x[1 + j] for j in order[left:])
            x = torch.stack([x[0], *(x[1 + j] for j in order[:clear]), *groups, rest])
        x = x + block.mlp(block.ln_2(x))
        found.append(x[0])
    return F.normalize(tower.ln_post(x[0]) @ tower.proj, dim=0), torch.stack(found), len(x)


def clusters(tokens: Any) -> list[Any]:
    """Greedy k-centre, then means weighted by the inverse distance to the centre."""
    centres = [0]
    while len(centres) < 4:
        gaps = [min(float((token - tokens[c]).norm()) for c in centres) for token in tokens]
        centres.append(gaps.index(max(gaps)))
    members: dict[int, list[int]] = {c: [] for c in centres}
    for j, token in enumerate(tokens):
        members[min(centres, key=lambda c: float((token - tokens[c]).norm()))].append(j)
    found = []
    for c in centres:
        weights = [1.0 if j == c else 1 / float((tokens[j] - tokens[c]).norm()) for j in members[c]]
        found.append(sum(w * tokens[j] for w, j in zip(weights, members[c], strict=True)) / sum(weights))
    return found


class Reservoir:
    """TCA's: entropies and class tokens of each class's images."""

    def __init__(self, classes: int, shots: int, shares: Array) -> None:
        self.shots, self.shares, self.gone = shots, torch.from_numpy(shares / shares.sum()), 0
        self.held: list[list[Any]] = [[] for _ in range(classes)]

    def anchors(self) -> Any:
        """The mean tokens of each class [K, blocks, width], once every class has two images."""
        if any(len(each) < 2 for each in self.held):
            return None
        return torch.stack([torch.stack([tokens for _, tokens in each]).mean(0) for each in self.held])

    def take(self, label: int, entropy: float, tokens: Any) -> None:
        own = self.held[label]
        own.append((entropy, tokens))
        if len(own) > self.shots:
            means = F.normalize(torch.stack([each.mean(0) for _, each in own]), dim=1)
            n = len(own)
            alike = [sum(float(means[i] @ means[j]) for j in range(n) if j != i) / (n - 1) for i in range(n)]
            scores = [h + each for (h, _), each in zip(own, alike, strict=True)]
            own.pop(scores.index(max(scores)))
            self.gone += 1

    def votes(self, tokens: Any) -> Any:
        said = torch.zeros(len(self.held), dtype=torch.float64)
        for label, own in enumerate(self.held):
            for _, each in own:
                said[label] += torch.exp(-6 * (1 - F.cosine_similarity(tokens, each) @ self.shares))
        return said


def test_tca(stream: Stream) -> None:
    """The authors' tower and reservoir, token by token; anchors once every class has two images."""
    s, names, images = stream, ("mug", "house"), 20
    text = F.normalize(s.clip.encode_text([f"a photo of a {name}." for name in names]), dim=-1)
    reservoir = Reservoir(2, 2, np.exp(np.linspace(0, 1, 4) / 0.5))
    said, guided = [], 0
    views = s.views.flatten(0, 1)[:images]
    with torch.no_grad():
        for image in s.clip.preprocess(views):
            anchors = reservoir.anchors()
            guided += anchors is not None
            feature, tokens, left = condensed(s.clip.visual, image, anchors, 0.2)
            assert left < 17
            logits = s.scale * text @ feature
            probs = torch.softmax(logits, dim=0)
            reservoir.take(int(probs.argmax()), float(entropy(probs.numpy())), tokens)
            said.append(torch.softmax(logits + 2 * reservoir.votes(tokens), dim=0).numpy())
    assert 0 < guided < images
    assert reservoir.gone > 2
    settings = method_settings("tca", {"drop": 0.2, "shots": 2, "early": 0.5})
    method = find_method("tca").build(s.clip, names, settings, 0)
    same([method.predict(view[None]).probs.numpy() for view in views], said)


def test_tca_needs_a_class_token() -> None:
    pooled = unfilled(replace(builtin_config("tiny"), name="pooled", vision_pool="mean"))
    with pytest.raises(SettingsError, match="image tower of pooled is none"):
        find_method("tca").build(pooled, NAMES, method_settings("tca", {}), 0)
