"""What the labelled memory adds to the gradient, after many came and went, against running it all again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from taps.active.buffer import Buffer, choose_victim
from taps.adapt.gradient import Gradient, Point, point_at, to_parameters
from taps.adapt.memory import Memory, ReplayItem, replay_item_from, replay_item_tensors
from taps.clip import Clip
from taps.clip.tokenizer import encode
from taps.prompts import Prompts, coop
from taps.prompts.classifier import Classifier
from taps.prompts.classify import prompt_classifier
from tests import literal
from tests.literal import Labelled, Literal, Weights

CLASSES = ("cat", "hot dog", "ship")


def setting(clip: Clip, prompts: Prompts) -> tuple[Classifier, Point]:
    classifier = prompt_classifier(clip, CLASSES, prompts)
    return classifier, point_at(classifier, {k: v.double() for k, v in prompts.parameters.items()})


def random_pixels(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, 32, 32), generator=generator, dtype=torch.uint8)


def item(classifier: Classifier, point: Point, pixels: Tensor) -> ReplayItem:
    with torch.no_grad():
        images = classifier.clip.preprocess(pixels[None])
        return ReplayItem(pixels, None, classifier.image(images, point.tokens.vision)[0])


def plain_gradient(
    clip: Clip, prompts: Prompts, point: Point, held: list[Labelled], weight: float
) -> dict[str, Tensor]:
    """Gradient of the weighted mean cross-entropy of what is held, in one literal graph."""
    leaves = {name: value.clone().requires_grad_() for name, value in point.parameters.items()}
    rows = [encode(prompts.suffix.replace("{}", name)) for name in CLASSES]
    only_labels = Weights(ce=weight, entropy=0.0)
    views = random_pixels(0)[None]
    judged = literal.judge(Literal(clip), prompts.kind, leaves, rows, views, held, only_labels)
    return dict(zip(leaves, torch.autograd.grad(judged.loss, list(leaves.values())), strict=True))


def test_after_two_hundred_insertions_the_sum_is_that_of_what_is_held(
    tiny64: Clip, maple_prompts: Prompts
) -> None:
    classifier, point = setting(tiny64, maple_prompts)
    memory = Memory(Buffer(5), anchor=point, weight_ce=0.7)
    held: dict[int, Labelled] = {}
    losses: dict[int, float] = {}
    evictions = 0
    for id in range(200):
        pixels, label = random_pixels(id % 23), (id * id) % 3
        if len(held) == 5:  # Algorithm 2 in the test's own bookkeeping
            order = list(held)
            ages = [id - other for other in order]
            victim = choose_victim([held[i].label for i in order], [losses[i] for i in order], ages)
            gone: int | None = order[victim]
        else:
            gone = None
        evicted = memory.insert(classifier, point, id, label, item(classifier, point, pixels))
        assert (None if evicted is None else evicted.id) == gone
        if gone is not None:
            del held[gone], losses[gone]
            evictions += 1
        held[id] = Labelled(pixels, label)
        losses[id] = next(entry.loss for entry in memory.buffer.entries() if entry.id == id)
    assert evictions == 195
    expected = plain_gradient(tiny64, maple_prompts, point, list(held.values()), 0.7)
    found = to_parameters(classifier, point.parameters, memory.constant())
    for name, wanted in expected.items():
        assert wanted.abs().max() > 1e-4
        assert (found[name] - wanted).abs().max() < 1e-9 * max(1.0, wanted.abs().max().item()), name


def test_single_precision_leaves_no_trace_of_the_evicted(tiny: Clip, maple_prompts: Prompts) -> None:
    """Entries are float32, their sum is not: what is left is the sum of what is held, nearly to the bit."""
    classifier = prompt_classifier(tiny, CLASSES, maple_prompts)
    point = point_at(classifier, dict(maple_prompts.parameters))
    memory = Memory(Buffer(3, "oldest"), anchor=point, weight_ce=1.0)
    for id in range(200):
        memory.insert(classifier, point, id, id % 3, item(classifier, point, random_pixels(id % 11)))
    for part in ("text", "vision"):
        kept = sum(getattr(entry.payload.gradient, part).double() for entry in memory.buffer.entries())
        total = getattr(memory.total, part)
        assert total.dtype == torch.float64
        assert (total - kept).abs().max() < 1e-12 * kept.abs().max()


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=12), st.integers(0, 4))
def test_episodic_and_continual_agree_where_prompts_have_not_moved(
    tiny64: Clip, stream: list[tuple[int, int]], capacity: int
) -> None:
    prompts = coop.initial(tiny64)
    classifier, point = setting(tiny64, prompts)
    memories = [Memory(Buffer(capacity), anchor=anchor, weight_ce=0.3, chunk=2) for anchor in (point, None)]
    for id, (picture, label) in enumerate(stream):
        for memory in memories:
            memory.insert(classifier, point, id, label, item(classifier, point, random_pixels(picture)))
    episodic, continual = memories
    assert [e.id for e in episodic.buffer.entries()] == [e.id for e in continual.buffer.entries()]
    constant = episodic.constant()
    fresh = point.pull_back(continual.fresh(classifier, point))
    assert episodic.fresh(classifier, point) == continual.constant() == Gradient(None, None)
    if not stream or not capacity:
        assert constant == Gradient(None, None)
        assert fresh == Gradient(None, None)
        return
    assert constant.text is not None
    assert fresh.text is not None
    assert (constant.text - fresh.text).abs().max() < 1e-10


def test_episodic_entries_drop_their_pixels(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier, point = setting(tiny64, maple_prompts)
    memory = Memory(Buffer(4), anchor=point, weight_ce=1.0)
    memory.insert(classifier, point, 0, 1, item(classifier, point, random_pixels(0)))
    (entry,) = memory.buffer.entries()
    assert entry.payload.pixels is None
    assert entry.payload.views is None
    assert entry.payload.gradient is not None


def test_one_bad_gradient_does_not_stay_in_the_sum(tiny64: Clip) -> None:
    prompts = coop.initial(tiny64)
    classifier, point = setting(tiny64, prompts)
    memory = Memory(Buffer(2), anchor=point, weight_ce=1.0)
    good = item(classifier, point, random_pixels(0))
    bad = ReplayItem(good.pixels, None, torch.full_like(good.feature, float("nan")))
    memory.insert(classifier, point, 0, 1, bad)
    memory.insert(classifier, point, 1, 1, good)
    constant = memory.constant().text
    assert constant is not None
    assert torch.isfinite(constant).all()
    assert constant.abs().max() > 0


@pytest.mark.parametrize("with_gradient", [True, False])
def test_evidence_comes_back_from_its_tensors(with_gradient: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    gradient = Gradient(torch.rand(2, generator=generator), torch.rand(3, generator=generator))
    given = ReplayItem(
        pixels=None if with_gradient else random_pixels(0),
        views=None,
        feature=torch.rand(4, generator=generator),
        gradient=gradient if with_gradient else None,
    )
    tensors = dict(replay_item_tensors("pending.7", given))
    assert all(name.startswith("pending.7.") for name in tensors)
    back = replay_item_from("pending.7", tensors)
    assert dict(replay_item_tensors("x", back)).keys() == dict(replay_item_tensors("x", given)).keys()
    assert torch.equal(back.feature, given.feature)
    assert (back.gradient is None) == (given.gradient is None)
