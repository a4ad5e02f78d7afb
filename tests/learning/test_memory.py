"""What the labelled memory adds to the gradient, after many came and went, against running it all again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from taps import load_clip
from taps.asking.buffer import Buffer, Entry, choose_victim
from taps.errors import SettingsError
from taps.learning.alignment import Alignment, Target, find_alignment, make_alignment
from taps.learning.gradient import NOTHING, Gradient, Point, point_at, to_parameters
from taps.learning.losses import ALIGN
from taps.learning.memory import (
    Memory,
    ReplayItem,
    _housed,
    on_host,
    replay_item_from,
    replay_item_tensors,
    stack_inputs,
    views_bytes,
)
from taps.model.clip import Clip
from taps.model.clip.tokenizer import encode
from taps.model.prompts import Prompts
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.classify import prompt_classifier
from taps.model.prompts.coop import Coop
from taps.model.prompts.source import SourceStats
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
    prompts = Coop().initial(tiny64)
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
    prompts = Coop().initial(tiny64)
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


def test_an_answer_taken_back_leaves_the_sum_of_the_others(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier, point = setting(tiny64, maple_prompts)
    memory = Memory(Buffer(3), anchor=point, weight_ce=0.7)
    for id in range(4):  # image 0 is evicted for image 3: all are of one class
        memory.insert(classifier, point, id, 1, item(classifier, point, random_pixels(id)))
    (evicted,) = {0, 1, 2, 3} - {entry.id for entry in memory.buffer.entries()}
    assert memory.remove(evicted) is None
    gone, *kept = [entry.id for entry in memory.buffer.entries()]
    removed = memory.remove(gone)
    assert removed is not None
    assert removed.id == gone
    held = [Labelled(random_pixels(id), 1) for id in kept]
    found = to_parameters(classifier, point.parameters, memory.constant())
    for name, wanted in plain_gradient(tiny64, maple_prompts, point, held, 0.7).items():
        assert (found[name] - wanted).abs().max() < 1e-9 * max(1.0, wanted.abs().max().item()), name
    for id in kept:
        memory.remove(id)
    assert memory.total == Gradient(None, None)  # to the bit: an empty memory leaves no rounding behind


def test_a_continual_memory_gives_answers_back_too(tiny64: Clip) -> None:
    classifier, point = setting(tiny64, Coop().initial(tiny64))
    memory, other = (Memory(Buffer(3), anchor=None, weight_ce=0.7) for _ in range(2))
    for id in range(3):
        memory.insert(classifier, point, id, id, item(classifier, point, random_pixels(id)))
    other.insert(classifier, point, 2, 2, item(classifier, point, random_pixels(2)))
    for id in range(2):
        memory.remove(id)
    assert memory.total == Gradient(None, None)
    one, two = (each.fresh(classifier, point).text for each in (memory, other))
    assert one is not None
    assert two is not None
    assert torch.equal(one, two)


def test_a_memory_names_all_that_must_be_saved(tiny64: Clip, maple_prompts: Prompts) -> None:
    classifier, point = setting(tiny64, maple_prompts)
    memory = Memory(Buffer(4), anchor=point, weight_ce=1.0)
    assert dict(memory.tensors()) == {}
    for id in range(2):
        memory.insert(classifier, point, id, 1, item(classifier, point, random_pixels(id)))
    named = dict(memory.tensors())
    parts = ("feature", "gradient.text", "gradient.vision")
    assert set(named) == {"total.text", "total.vision"} | {
        f"entry.{i}.{part}" for i in (0, 1) for part in parts
    }
    for index, entry in enumerate(memory.buffer.entries()):
        assert named[f"entry.{index}.feature"] is entry.payload.feature
        assert named[f"entry.{index}.gradient.text"] is entry.payload.gradient.text
    assert named["total.text"] is memory.total.text
    assert named["total.vision"] is memory.total.vision


@pytest.mark.parametrize("left_out", [(), ("text",), ("vision",), ("text", "vision")])
@pytest.mark.parametrize("optional", [True, False])
def test_a_replay_item_comes_back_from_its_tensors(left_out: tuple[str, ...], optional: bool) -> None:
    parts = {part: None if part in left_out else torch.rand(3) for part in ("text", "vision")}
    given = ReplayItem(
        pixels=random_pixels(0) if optional else None,
        views=random_pixels(1)[None] if optional else None,
        feature=torch.rand(4),
        gradient=None if len(left_out) == 2 else Gradient(**parts),
        beliefs=torch.rand(2, 3) if optional else None,
    )
    tensors = dict(replay_item_tensors("pending.7", given))
    names = {"pixels", "views", "beliefs"} if optional else set()
    names |= {"feature", *(f"gradient.{part}" for part in parts if part not in left_out)}
    assert set(tensors) == {f"pending.7.{name}" for name in names}
    assert replay_item_from("pending.7", tensors) == given  # the very same tensors, or None


def random_blocks(*shape: int) -> Tensor:
    """Statistics of two blocks of three tokens and four channels."""
    return torch.rand(*shape, 2, 3, 4, generator=torch.Generator().manual_seed(len(shape)))


def source_of_two_blocks() -> SourceStats:
    return SourceStats(
        layers=(1, 5),
        count=9,
        mean=random_blocks(),
        variance=random_blocks() + 0.5,
        classes=("ship", "cat"),
        class_counts=torch.tensor([4, 5]),
        class_means=random_blocks(2),
        class_variances=random_blocks(2) + 0.5,
        model="m",
        prompts="p",
    )


def model_on(device: str) -> Any:
    config = SimpleNamespace(image_tokens=2)
    return SimpleNamespace(
        clip=SimpleNamespace(device=torch.device(device), config=config), dtype=torch.float64
    )


def test_targets_have_the_device_and_the_precision_of_the_model() -> None:
    far = make_alignment("paper", (5,), source_of_two_blocks(), ("cat",), model_on("meta"), "class", depth=2)
    assert far.coarse is not None
    for target in (far.coarse, far.fine[0]):
        for values in (target.means, target.variances):
            assert (values.device.type, values.dtype) == ("meta", torch.float64)


@pytest.mark.parametrize(("depth", "tokens"), [(1, (3, 3)), (2, (2, 3)), (5, (2, 3)), (6, (2, 2))])
def test_targets_are_those_of_the_wanted_blocks_and_tokens(depth: int, tokens: tuple[int, int]) -> None:
    source = source_of_two_blocks()
    made = make_alignment("paper", (1, 5), source, ("cat", "ship"), model_on("cpu"), "class", depth)
    assert made.tokens == tokens
    assert torch.equal(made.fine[0].means, source.class_means[1].double())
    assert torch.equal(made.fine[1].variances, source.class_variances[0].double())
    assert made.coarse is not None
    assert torch.equal(made.coarse.means, source.mean.double())
    assert torch.equal(made.coarse.variances, source.variance.double())
    only = make_alignment("paper", (5,), source, ("cat",), model_on("cpu"), "", depth)
    assert only.coarse is not None
    assert torch.equal(only.coarse.means, source.mean[1:].double())
    assert only.fine == {}


def test_tokens_beyond_those_compared_count_as_equal() -> None:
    features = [torch.rand(5, 3, 4, dtype=torch.float64) for _ in range(2)]
    target = Target(random_blocks().double(), random_blocks().double() + 0.5)
    expected = 0.0
    for block, count in enumerate((2, 3)):
        feature = features[block][:, :count]
        own = (feature - feature.mean(dim=0)).square().mean(dim=0)
        expected += float((feature.mean(dim=0) - target.means[block, :count]).abs().sum()) / 2
        expected += float((own - target.variances[block, :count]).abs().sum()) / 2
    alignment = Alignment("paper", (1, 5), (2, 3), target, {})
    assert alignment.loss(features, target).item() == pytest.approx(expected)
    with pytest.raises(ValueError, match="zip"):
        alignment.loss(features[:1], target)


def test_labels_are_sent_to_where_the_prompts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device of shapes alone: what is not sent there cannot be computed with."""
    text = torch.empty(3, 4, device="meta")
    point = cast(Any, SimpleNamespace(text=text, tokens=SimpleNamespace(vision=None)))
    classifier = cast(Any, SimpleNamespace(logits=lambda features, text: features @ text.T))
    seen: list[str] = []

    def spy(logits: Tensor, labels: Tensor) -> Tensor:
        seen.append(labels.device.type)
        return logits.sum(dim=1)

    monkeypatch.setattr("taps.learning.memory.cross_entropies", spy)
    far = ReplayItem(None, None, torch.empty(4, device="meta"))
    memory = Memory(Buffer(2), anchor=None, weight_ce=1.0)
    memory._chunk_gradient(classifier, point, [Entry(0, 1, 0.0, 0, far)], 1)
    with pytest.raises(RuntimeError):  # a loss of no value cannot be told to the host
        memory.sample_gradient(classifier, point, far, 1)
    assert seen == ["meta", "meta"]


def test_fine_alignment_is_computed_in_the_precision_of_the_losses(
    maple_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = load_clip("tiny", device="cpu", dtype=torch.bfloat16)
    classifier = prompt_classifier(half, CLASSES, maple_prompts)
    point = point_at(classifier, dict(maple_prompts.parameters))
    seen: list[torch.dtype] = []

    def spy(features: list[Tensor], means: list[Tensor], variances: list[Tensor]) -> Tensor:
        seen.extend(feature.dtype for feature in features)
        return features[0].sum()

    monkeypatch.setitem(ALIGN, "paper", spy)
    target = Target(torch.zeros(1), torch.zeros(1))
    alignment = Alignment("paper", (0, 2), (5, 5), None, {1: target})
    memory = Memory(Buffer(2), anchor=point, weight_ce=1.0, weight_fine=1.0, alignment=alignment)
    views = torch.stack([random_pixels(1), random_pixels(2)])
    memory.insert(classifier, point, 0, 1, replace(item(classifier, point, random_pixels(0)), views=views))
    assert seen == [torch.float32, torch.float32]


def test_pixels_leave_the_device_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taps.learning.memory.DEVICE_BYTES", 20)
    sent: list[tuple[Any, ...]] = []

    class Pinned:
        def copy_(self, pixels: Any) -> str:
            sent.append(("copied", pixels))
            return "on the host"

    def empty_like(pixels: Any, **where: Any) -> Pinned:
        sent.append((pixels, where))
        return Pinned()

    monkeypatch.setattr(torch, "empty_like", empty_like)
    on_device = cast(Any, SimpleNamespace(is_cuda=True, nbytes=10))
    assert _housed(on_device, others=1) is on_device
    assert sent == []
    assert cast(Any, _housed(on_device, others=2)) == "on the host"
    assert sent == [(on_device, {"device": "cpu", "pin_memory": True}), ("copied", on_device)]
    at_home = cast(Any, SimpleNamespace(is_cuda=False, nbytes=10))
    assert _housed(at_home, others=1000) is at_home


def test_views_are_brought_to_the_host_and_their_bytes_counted() -> None:
    bare, here = ReplayItem(random_pixels(0), None, torch.ones(2)), torch.zeros(3)
    assert on_host(bare) is bare
    assert views_bytes(bare) == 0
    waiting = replace(bare, views=cast(Any, SimpleNamespace(cpu=lambda: here, nbytes=7)))
    found = on_host(waiting)
    assert found.views is here
    assert (found.pixels, found.feature) == (bare.pixels, bare.feature)
    assert views_bytes(waiting) == 7


def test_a_gradient_that_was_computed_elsewhere_is_taken_as_it_is() -> None:
    classifier, point = cast(Any, None), cast(Any, SimpleNamespace(text=torch.zeros(2, 3)))
    given, text = ReplayItem(random_pixels(0), None, torch.ones(3)), torch.rand(2, 3)
    asked: list[tuple[ReplayItem, int]] = []

    def captured(item: ReplayItem, label: int) -> tuple[Gradient, float]:
        asked.append((item, label))
        return Gradient(text, None), 0.25

    memory = Memory(Buffer(2), anchor=point, weight_ce=1.0)
    memory.insert(classifier, point, 7, 1, given, captured=captured)
    assert asked == [(given, 1)]
    assert [(entry.id, entry.label, entry.loss) for entry in memory.buffer.entries()] == [(7, 1, 0.25)]
    assert memory.total.text is not None
    assert torch.equal(memory.total.text, text.double())
    empty = Memory(Buffer(0), anchor=point, weight_ce=1.0)
    empty.insert(classifier, point, 7, 1, given, captured=captured)
    assert empty.total == NOTHING


class Far:
    """Pixels on another device; they remember how they were sent for."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def to(self, *where: Any, **how: Any) -> Tensor:
        self.sent.append((where, how))
        return torch.zeros(1)


def test_a_continual_memory_houses_pixels_and_views(monkeypatch: pytest.MonkeyPatch) -> None:
    text = torch.zeros(2, 3)
    point = cast(Any, SimpleNamespace(text=text))
    asked: list[tuple[Any, int]] = []

    def housed(pixels: Any, others: int) -> str:
        asked.append((pixels, others))
        return f"housed {len(asked)}"

    monkeypatch.setattr("taps.learning.memory._housed", housed)
    memory = Memory(Buffer(4), anchor=None, weight_ce=1.0)
    for id in range(2):
        asked.clear()
        pixels, views = random_pixels(id), Far()
        given = ReplayItem(pixels, cast(Any, views), torch.ones(3))
        memory.insert(cast(Any, None), point, id, 1, given, captured=lambda item, label: (NOTHING, 0.5))
        assert views.sent == [((text.device,), {})]
        assert asked == [(torch.zeros(1), id), (pixels, id)]
        payload = memory.buffer.entries()[-1].payload
        assert (payload.views, payload.pixels) == ("housed 1", "housed 2")
    bare = ReplayItem(None, None, torch.ones(3))
    memory.insert(cast(Any, None), point, 9, 1, bare, captured=lambda item, label: (NOTHING, 0.5))
    assert memory.buffer.entries()[-1].payload is bare


def test_pixels_are_sent_for_without_waiting() -> None:
    tokens = SimpleNamespace(vision=torch.zeros(1))
    point, far = cast(Any, SimpleNamespace(text=torch.zeros(2), tokens=tokens)), Far()
    assert stack_inputs([ReplayItem(cast(Any, far), None, torch.ones(3))], point).shape == (1, 1)
    assert far.sent == [((point.text.device,), {"non_blocking": True})]


@pytest.mark.parametrize("layers", [None, (0, 1)])
def test_printed_alignment_wants_statistics_of_every_block(
    maple_prompts: Prompts, layers: tuple[int, ...] | None
) -> None:
    clip = load_clip("tiny")
    shape = 2, clip.config.image_tokens + 2, clip.config.vision_width
    source = replace(
        source_of_two_blocks(),
        layers=(0, 1),
        mean=torch.zeros(shape),
        variance=torch.ones(shape),
        model=clip.fingerprint,
        prompts=maple_prompts.fingerprint,
    )
    classifier = prompt_classifier(clip, ("cat",), maple_prompts)

    def find() -> Alignment:
        return find_alignment("paper", layers, source, maple_prompts, classifier, ("cat",), fine="")

    if layers is None:
        with pytest.raises(SettingsError, match="--layers all"):
            find()
    else:
        assert find().layers == layers
