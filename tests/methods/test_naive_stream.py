"""A learner of the method `taps` against the paper's stream as a naive loop, which finds a bug in any term.

The loop shares no line with the package's adaptation: float64, the whole memory in one graph at every image,
and a threshold, an eviction, an alignment and an optimiser of its own. Only views and weights are the
package's. The modules of the adaptation are imported to plant bugs in them.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import taps
from taps.asking import buffer, dynamic
from taps.learning import losses, memory, optimiser, step
from taps.methods import TuneSettings
from taps.methods.taps import TapsSettings, step_settings
from taps.model.clip import Clip, load_clip
from taps.model.clip.tokenizer import encode
from taps.model.images.views import make_views, sample_generator
from taps.model.prompts import Prompts
from taps.model.prompts.maple import Maple
from tests import literal
from tests.literal import Adam, Labelled, Literal, Source, Weights, draw_source, judge

CLASSES = ("cat", "hot dog", "ship")
IMAGES, VIEWS, ROOM, SEED = 16, 8, 3, 4
RATE, WARMUP, TAU0, LR = 0.5, 4, 0.9, 4e-3
ALPHA, BETA, GAMMA = 0.7, 0.03, 0.05
FRACTION = 0.25


@dataclass(frozen=True)
class Reading:
    """What the paper leaves open, and its ablation of the alignment."""

    form: str = "promptalign"
    align_labelled: str = "class"
    update_queried: bool = True


READINGS = (
    Reading(),
    Reading(form="paper"),
    Reading(align_labelled="whole"),
    Reading(form="paper", align_labelled="whole", update_queried=False),
    Reading(update_queried=False),
)


@dataclass
class Held:
    """A labelled image of the naive memory."""

    image: int
    item: Labelled
    loss: float


@dataclass(frozen=True)
class Seen:
    """What a stream said of one image, and which images it remembers afterwards."""

    probs: np.ndarray[Any, Any]
    entropy: float
    threshold: float
    ask: bool
    memory: tuple[int, ...]


def expert(t: int) -> int:
    return (t // 2) % 3


def pictures() -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 256, (40, 36 + t % 7, 3), dtype=np.uint8) for t in range(IMAGES)]


@cache
def model() -> tuple[Clip, Prompts]:
    clip = load_clip("tiny", dtype=torch.float64)
    return clip, Maple().initial(clip, torch.Generator().manual_seed(1))


def source(layers: tuple[int, ...]) -> Source:
    clip, prompts = model()
    tokens = clip.config.patches + 1 + len(prompts.parameters["context"])
    return draw_source(layers, tokens, clip.config.vision_width, len(CLASSES))


def blocks(reading: Reading) -> tuple[int, ...]:
    """The printed equation is over all blocks, PromptAlign's form over the first two."""
    return tuple(range(model()[0].config.vision_layers)) if reading.form == "paper" else (0, 1)


def threshold(entropies: list[float], asked: int) -> float:
    """Algorithm 1: τ0 at first, then z standard deviations above the mean; z grows over the rate."""
    t = len(entropies)
    if t < WARMUP:
        return TAU0
    rate = RATE / 2 if asked / t >= RATE else RATE
    z = statistics.NormalDist().inv_cdf(1 - rate)
    return statistics.mean(entropies) + z * (statistics.stdev(entropies) if t > 1 else 0.0)


def make_room(held: list[Held]) -> None:
    """Algorithm 2: of the largest classes that of the least mean loss loses its sample of the least loss."""
    if len(held) < ROOM:
        return
    classes: dict[int, list[Held]] = {}
    for each in held:
        classes.setdefault(each.item.label, []).append(each)
    most = max(map(len, classes.values()))
    largest = [own for own in classes.values() if len(own) == most]
    poorest = min(largest, key=lambda own: statistics.mean(each.loss for each in own))
    held.remove(min(poorest, key=lambda each: each.loss))


@cache
def naive_stream(reading: Reading) -> tuple[Seen, ...]:
    return tuple(naive_steps(reading))


def naive_steps(reading: Reading) -> Iterator[Seen]:
    clip, prompts = model()
    plain = Literal(clip)
    theta0 = {name: value.double() for name, value in prompts.parameters.items()}
    ids = [encode(prompts.suffix.replace("{}", name)) for name in CLASSES]
    target = source(blocks(reading))
    if reading.align_labelled == "whole":
        means, variances = (each.expand(len(CLASSES), *each.shape) for each in (target.mean, target.variance))
        target = replace(target, class_means=means, class_variances=variances)
    weights = Weights(ALPHA, BETA, GAMMA, fraction=FRACTION, form=reading.form)
    held: list[Held] = []
    entropies: list[float] = []
    asked = 0
    for t, image in enumerate(pictures()):
        views = make_views(image, views=VIEWS, generator=sample_generator(SEED, t), **clip.config.framing)
        theta = {name: value.clone().requires_grad_() for name, value in theta0.items()}
        items = [each.item for each in held]
        judged = judge(plain, "maple", theta, ids, views, items, weights, target)
        entropies.append(float(judged.entropy))
        tau = threshold(entropies, asked)
        ask = entropies[-1] > tau
        end = theta0
        if reading.update_queried or not ask:
            gradients = torch.autograd.grad(judged.loss, list(theta.values()))
            end = Adam(LR).step(theta0, dict(zip(theta, gradients, strict=True)))
        with torch.no_grad():
            probs = literal.predict(plain, "maple", end, ids, views[0])
            if ask:
                asked += 1
                make_room(held)
                own = views if reading.form == "paper" else views[judged.chosen]
                item = Labelled(views[0], expert(t), own)
                before = literal.predict(plain, "maple", theta0, ids, views[0])
                loss = -math.log(float(before[item.label]))
                held.append(Held(t, item, loss))
        yield Seen(probs.numpy(), entropies[-1], tau, ask, tuple(each.image for each in held))


def learner_steps(reading: Reading) -> Iterator[Seen]:
    clip, prompts = model()
    settings = TapsSettings(
        prompts=prompts,
        views=VIEWS,
        fraction=FRACTION,
        rate=RATE,
        warmup=WARMUP,
        tau0=TAU0,
        buffer=ROOM,
        lr=LR,
        weight_ce=ALPHA,
        weight_coarse=BETA,
        weight_fine=GAMMA,
        align=reading.form,
        align_labelled=reading.align_labelled,
        update_queried=reading.update_queried,
        source=source(blocks(reading)).stats(CLASSES, clip, prompts),
    )
    learner = taps.Learner(clip, CLASSES, settings, seed=SEED)
    for t, image in enumerate(pictures()):
        found = learner.predict_one(image)
        if found.ask:
            learner.learn_one(found.id, expert(t))
        held = learner.method.memory.buffer.entries()  # type: ignore[attr-defined]
        yield Seen(
            found.probs, found.entropy, found.threshold, found.ask, tuple(sorted(each.id for each in held))
        )


def compare(reading: Reading) -> None:
    for mine, wanted in zip(learner_steps(reading), naive_stream(reading), strict=True):
        assert mine.ask == wanted.ask
        assert mine.entropy == pytest.approx(wanted.entropy, abs=1e-6)
        assert mine.threshold == pytest.approx(wanted.threshold, abs=1e-6)
        assert mine.probs == pytest.approx(wanted.probs, abs=1e-6)
        assert mine.memory == tuple(sorted(wanted.memory))


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_learner_is_the_naive_loop(reading: Reading) -> None:
    compare(reading)
    asked = sum(each.ask for each in naive_stream(reading))
    assert ROOM + 2 < asked < IMAGES - 2  # a full memory that evicts, and images without a question


def scaled(function: Any, by: float) -> Any:
    return lambda *given, **named: by * function(*given, **named)


def least_sure(logits: Tensor, fraction: float, q: float = 1.0) -> Tensor:
    kept = max(1, int(fraction * logits.shape[-2]))
    return losses.tsallis_entropies(logits, q).sort(descending=True).indices[..., :kept]


def more_alignment(settings: TuneSettings) -> step.StepSettings:
    return replace(step_settings(settings), weight_coarse=1.5 * settings.weight_coarse)


BUGS: dict[str, tuple[Any, str, Any]] = {
    "confident views": (step, "select_confident", least_sure),
    "entropy": (step, "mean_entropy", lambda logits: losses.entropies(logits).mean(dim=-1)),
    "cross-entropy": (memory, "cross_entropies", scaled(losses.cross_entropies, 1.5)),
    "coarse alignment": (sys.modules[step_settings.__module__], "step_settings", more_alignment),
    "fine alignment": (memory.Memory, "_fine_loss", scaled(memory.Memory._fine_loss, 1.5)),
    "optimiser": (step, "adamw", partial(optimiser.adamw, eps=1e-3)),
    "threshold": (dynamic.Dynamic, "std", property(lambda self: math.sqrt(self.squares / self.seen))),
    "eviction": (buffer.Buffer, "_evict", lambda self: self._entries.pop(self.entries()[0].id)),
}


@pytest.mark.parametrize("term", BUGS)
def test_a_bug_in_any_term_is_found(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setattr(*BUGS[term])
    with pytest.raises(AssertionError):
        compare(READINGS[0])
