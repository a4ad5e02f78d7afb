"""Label-free methods of 2025 and 2026, written out again in float64 on the features of a short stream."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from taps.clip import Clip
from taps.clip.config import builtin_config
from taps.clip.model import unfilled
from taps.errors import SettingsError
from taps.methods.moon import log_bessel
from taps.methods.registry import find_method, method_settings
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
    same(stream.run("tt_raa", rate=0.6), said)


def nearest(x: Array, near: int = 3) -> Array:
    """Cosines with the three nearest others; no negative ones."""
    w = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        others = sorted((j for j in range(len(x)) if j != i), key=lambda j: -float(x[i] @ x[j]))
        for j in others[:near]:
            w[i, j] = max(0.0, float(x[i] @ x[j]))
    return w


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
            beta = z[:, k].sum() / (z[:, k].sum() + anchor)
            share = z[:, k] / z[:, k].sum()
            mu[k] = beta * (share @ x) + (1 - beta) * text[k]
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
