"""The recorded step against the plain one, and the plain one against the published way of computing it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import taps.adapt.step
from taps.adapt import optimiser
from taps.adapt.gradient import Point
from taps.adapt.graphs import static_buffers as statics
from taps.adapt.graphs.capture import CudaTape, overwrite
from taps.adapt.graphs.engine import Engine
from taps.adapt.graphs.side_stream import Seen
from taps.adapt.memory import ReplayItem
from taps.adapt.optimiser import adamw, fresh_moments
from taps.bench.reference_step import ReferenceOutcome, ReferenceStep
from taps.clip import ops
from taps.clip.config import builtin_config
from taps.clip.layout import make_layout, token_rows
from taps.clip.load import load_clip
from taps.clip.model import Clip, initialise
from taps.errors import SettingsError
from taps.methods.settings import AskSettings, TuneSettings
from taps.methods.tuner import Tuner
from taps.prompts import Prompts, coop, maple

CLASSES = ("cat", "dog", "a very long hairy caterpillar", "fire truck", "aeroplane", "oak")
LABELS = (0, 3, 2, 2, 4)


def narrow_clip(dtype: torch.dtype) -> Clip:
    """Deep and thin, with OpenAI's activation and more tokens than `tiny`."""
    config = replace(
        builtin_config("tiny"),
        name="narrow",
        image_size=48,
        vision_layers=6,
        text_layers=5,
        activation="quick_gelu",
    )
    return initialise(Clip(config), torch.Generator().manual_seed(3)).to(dtype)


MODELS: dict[str, Callable[[torch.dtype], Clip]] = {
    "tiny": lambda dtype: load_clip("tiny", dtype=dtype),
    "narrow": narrow_clip,
}


def random_pixels(clip: Clip, count: int, seed: int) -> Tensor:
    size = clip.config.image_size
    shape = (count, 3, size, size)
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def make_tuner(clip: Clip, prompts: Prompts, **settings: Any) -> Tuner:
    return Tuner(clip, CLASSES, prompts, AskSettings(prompts=prompts, fraction=0.25, guard=False, **settings))


def teach(tuner: Tuner, clip: Clip, images: Tensor) -> None:
    for id, label in enumerate(LABELS):
        with torch.no_grad():
            feature = tuner.classifier.image(
                clip.preprocess(images[id : id + 1]), tuner.anchor.tokens.vision
            )[0]
        tuner.learn(id, label, ReplayItem(images[id].to(clip.device), None, feature))


def far(a: Tensor, b: Tensor) -> float:
    return float((a.double().cpu() - b.double().cpu()).norm() / b.double().cpu().norm())


class Spy:
    """Keeps the gradients that reach the optimiser."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gradients: list[dict[str, Tensor]] = []
        original = taps.adapt.step.adamw

        def adamw(parameters: Any, gradients: Any, *rest: Any, **named: Any) -> Any:
            self.gradients.append(gradients)
            return original(parameters, gradients, *rest, **named)

        monkeypatch.setattr(taps.adapt.step, "adamw", adamw)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("reset", ["sample", "never"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_loss_gradient_and_prediction_are_those_of_the_published_way(
    monkeypatch: pytest.MonkeyPatch, model: str, reset: str, dtype: torch.dtype, tolerance: float
) -> None:
    clip = MODELS[model](dtype)
    prompts = maple.initial(clip, torch.Generator().manual_seed(1))
    images = random_pixels(clip, len(LABELS), seed=2)
    reference = ReferenceStep(clip, CLASSES, prompts, lr=1e-3, fraction=0.25, weight_ce=0.7, reset=reset)
    tuner = make_tuner(clip, prompts, lr=1e-3, weight_ce=0.7, reset=reset, chunk=2)
    spy = Spy(monkeypatch)

    def compare(views: Tensor, tolerance: float) -> ReferenceOutcome:
        expected, output = reference(views), tuner.predict(views)
        assert output.entropy == pytest.approx(float(expected.entropy), rel=tolerance)
        assert far(output.probs, torch.softmax(expected.logits, dim=-1)) < tolerance
        for name, gradient in expected.gradient.items():
            assert far(spy.gradients[-1][name], gradient) < tolerance, name
        return expected

    alone = compare(random_pixels(clip, 12, seed=5), tolerance)
    teach(tuner, clip, images)
    reference.remember(images, torch.tensor(LABELS))
    # Carried-over prompts differ by the rounding of the first sign step, so float32 is compared more loosely.
    looser = tolerance if reset == "sample" or dtype == torch.float64 else 1e-2
    labelled = compare(random_pixels(clip, 12, seed=5), looser)
    assert far(labelled.gradient["deep"], alone.gradient["deep"]) > 0.01  # the labels did count


class Rerun:
    """A recording without a GPU: does the work again and puts the values where the first ones were."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work, self.result = work, work()

    def replay(self) -> None:
        exchange(self.result, self.work())


class RerunTape:
    def __init__(self) -> None:
        self.recorded = 0

    def home(self) -> Any:
        return nullcontext()

    def record(self, work: Callable[[], Any]) -> Rerun:
        self.recorded += 1
        return Rerun(work)

    def keep(self, work: Callable[[], Any]) -> Rerun:
        return self.record(work)

    def beside(self) -> Any:
        return nullcontext()

    def meet(self) -> None:
        pass

    def apart(self) -> RerunTape:
        return self

    def narrow(self) -> bool:
        return False


def exchange(old: Any, new: Any) -> None:
    """Values move in place, as a replay moves them; graphs of autograd are exchanged."""
    if isinstance(old, Point):
        overwrite((old.text, old.tokens), (new.text, new.tokens))
        exchanged = ("graph", "context")
    elif isinstance(old, Seen):
        overwrite((old.by_features, old.by_text), (new.by_features, new.by_text))
        exchanged = ("features", "vision")
    else:
        overwrite(old, new)
        exchanged = ()
    for name in exchanged:
        object.__setattr__(old, name, getattr(new, name))


def recorded(tuner: Tuner) -> RerunTape:
    tape = RerunTape()
    tuner.engine = Engine("graph", torch.device("cpu"), episodic=tuner.episodic, tape=tape)
    return tape


@pytest.mark.parametrize("reset", ["sample", "never", "every:3"])
@pytest.mark.parametrize("kind", ["maple", "coop"])
def test_a_recorded_stream_is_the_plain_stream(kind: str, reset: str) -> None:
    clip = load_clip("tiny", dtype=torch.float64)
    prompts = coop.initial(clip) if kind == "coop" else maple.initial(clip, torch.Generator().manual_seed(1))
    plain, again = (make_tuner(clip, prompts, reset=reset, chunk=2, buffer=4, lr=1e-2) for _ in range(2))
    tape = recorded(again)
    images = random_pixels(clip, len(LABELS), seed=2)
    for step in range(9):
        if step == 2:
            teach(plain, clip, images)
            teach(again, clip, images)
        views = random_pixels(clip, 8, seed=step)
        a, b = plain.predict(views), again.predict(views)
        assert a.entropy == pytest.approx(b.entropy, rel=1e-9)
        assert far(a.probs, b.probs) < 1e-9
        assert a.updated
        assert b.updated
        if step == 4:  # resumed from a snapshot, the stream goes on as before
            again.restore(again.snapshot())
            plain.restore(plain.snapshot())
    assert tape.recorded
    assert plain.memory
    assert again.memory
    losses = [[entry.loss for entry in tuner.memory.buffer.entries()] for tuner in (plain, again)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    if reset == "never":
        assert far(again.point.parameters["context"], plain.anchor.parameters["context"]) > 1e-3
        assert far(again.point.parameters["context"], plain.point.parameters["context"]) < 1e-9


@pytest.mark.parametrize("room", [0, 1 << 28])
@pytest.mark.parametrize("kind", ["maple", "coop"])
def test_labelled_images_may_change_between_recorded_steps(
    monkeypatch: pytest.MonkeyPatch, kind: str, room: int
) -> None:
    monkeypatch.setattr(statics, "TOKEN_BYTES", room)  # whether what prompts have no part in is kept
    clip = load_clip("tiny", dtype=torch.float64)
    prompts = coop.initial(clip) if kind == "coop" else maple.initial(clip, torch.Generator().manual_seed(1))
    plain, again = (make_tuner(clip, prompts, reset="never", chunk=1, buffer=4, lr=1e-2) for _ in range(2))
    recorded(again)
    images = random_pixels(clip, len(LABELS), seed=2)
    for step in range(8):
        for tuner in (plain, again):
            assert tuner.memory is not None
            if step == 1:
                teach(tuner, clip, images)
            elif step in (3, 5):  # the last answer is taken back and given anew: same image, another label
                entry = tuner.memory.remove(len(LABELS) - 1)
                assert entry is not None
                tuner.learn(entry.id, step - 2, entry.payload)
            elif step == 6:
                for entry in tuner.memory.buffer.entries():
                    tuner.memory.remove(entry.id)
        views = random_pixels(clip, 8, seed=step)
        a, b = plain.predict(views), again.predict(views)
        assert a.entropy == pytest.approx(b.entropy, rel=1e-9)
        assert far(a.probs, b.probs) < 1e-9
    assert far(again.point.parameters["context"], plain.point.parameters["context"]) < 1e-9


@pytest.mark.parametrize("kind", ["maple", "coop"])
def test_recorded_answers_leave_the_gradients_of_plain_ones(kind: str) -> None:
    clip = load_clip("tiny", dtype=torch.float64)
    prompts = coop.initial(clip) if kind == "coop" else maple.initial(clip, torch.Generator().manual_seed(1))
    plain, again = (make_tuner(clip, prompts, weight_ce=0.7) for _ in range(2))
    tape = recorded(again)
    for tuner in (plain, again):
        teach(tuner, clip, random_pixels(clip, len(LABELS), seed=2))
    assert tape.recorded == 1  # once for all answers
    assert plain.memory
    assert again.memory
    for mine, theirs in zip(again.memory.buffer.entries(), plain.memory.buffer.entries(), strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-12)
        for part in ("text", "vision"):
            found, expected = getattr(mine.payload.gradient, part), getattr(theirs.payload.gradient, part)
            assert (found is None) == (expected is None)
            assert found is None or far(found, expected) < 1e-12


def test_answers_that_cannot_be_recorded_are_taken_in_unrecorded() -> None:
    class Broken(RerunTape):
        def record(self, work: Callable[[], Any]) -> Rerun:
            raise RuntimeError("operation not permitted when stream is capturing")

    clip = load_clip("tiny")
    tuner = make_tuner(clip, coop.initial(clip))
    tuner.engine = Engine("auto", torch.device("cpu"), episodic=True, tape=Broken())
    teach(tuner, clip, random_pixels(clip, len(LABELS), seed=2))
    assert tuner.memory
    assert len(tuner.memory.buffer) == len(LABELS)
    tuner.engine = Engine("graph", torch.device("cpu"), episodic=True, tape=Broken())
    with pytest.raises(RuntimeError, match="not permitted"):
        tuner.learn(9, 0, ReplayItem(None, None, tuner.anchor.text[0]))


@pytest.mark.parametrize("kind", ["maple", "coop"])
def test_tokens_stand_for_their_image(kind: str) -> None:
    clip = load_clip("tiny", dtype=torch.float64)
    prompts = coop.initial(clip) if kind == "coop" else maple.initial(clip, torch.Generator().manual_seed(1))
    tuner = make_tuner(clip, prompts)
    images = clip.preprocess(random_pixels(clip, 3, seed=0))
    vision = tuner.anchor.tokens.vision
    assert torch.equal(
        clip.encode_image(clip.image_tokens(images), vision), clip.encode_image(images, vision)
    )


def test_another_number_of_views_is_recorded_anew() -> None:
    clip = load_clip("tiny")
    tuner = Tuner(clip, CLASSES, coop.initial(clip), TuneSettings())
    tape = recorded(tuner)
    tuner.predict(random_pixels(clip, 8, seed=0))
    once = tape.recorded
    tuner.predict(random_pixels(clip, 8, seed=1))
    assert tape.recorded == once
    tuner.predict(random_pixels(clip, 5, seed=1))
    assert tape.recorded == 2 * once


def test_a_step_that_cannot_be_recorded_runs_unrecorded(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RerunTape):
        def record(self, work: Callable[[], Any]) -> Rerun:
            raise RuntimeError("operation not permitted when stream is capturing")

    clip = load_clip("tiny")
    plain, broken = (Tuner(clip, CLASSES, coop.initial(clip), TuneSettings(reset="never")) for _ in range(2))
    broken.engine = Engine("auto", torch.device("cpu"), episodic=False, tape=Broken())
    broken.anchor = broken.engine.point_at(broken.classifier, broken.anchor.parameters)
    broken.point = broken.anchor
    views = random_pixels(clip, 8, seed=0)
    assert torch.equal(plain.predict(views).probs, broken.predict(views).probs)
    assert "unrecorded" in caplog.text
    broken.predict(views)
    assert caplog.text.count("unrecorded") == 1


def test_a_step_that_fails_on_two_lanes_is_recorded_on_one() -> None:
    class Wide(RerunTape):
        lanes = 2

        def beside(self) -> Any:
            if self.lanes == 2:
                raise RuntimeError("no second stream")
            return nullcontext()

        def narrow(self) -> bool:
            had, self.lanes = self.lanes == 2, 1
            return had

    clip = load_clip("tiny")
    prompts = maple.initial(clip, torch.Generator().manual_seed(1))
    plain, wide = (Tuner(clip, CLASSES, prompts, TuneSettings()) for _ in range(2))
    tape = Wide()
    wide.engine = Engine("graph", torch.device("cpu"), episodic=True, tape=tape)
    views = random_pixels(clip, 8, seed=0)
    assert far(wide.predict(views).probs, plain.predict(views).probs) < 1e-5
    assert tape.lanes == 1


def test_the_graph_engine_needs_a_gpu() -> None:
    with pytest.raises(SettingsError, match="CUDA"):
        Engine("graph", torch.device("cpu"), episodic=True)
    clip = load_clip("tiny")
    with pytest.raises(SettingsError, match="CUDA"):
        make_tuner(clip, coop.initial(clip), engine="graph")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("reset", ["sample", "never", "every:3"])
@pytest.mark.parametrize("kind", ["maple", "coop"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_cuda_a_recorded_stream_is_the_eager_stream(kind: str, reset: str, dtype: torch.dtype) -> None:
    clip = narrow_clip(torch.float32).to(device="cuda", dtype=dtype)
    prompts = coop.initial(clip) if kind == "coop" else maple.initial(clip, torch.Generator().manual_seed(1))
    settings = {"reset": reset, "chunk": 2, "buffer": 4, "lr": 1e-5}
    plain = make_tuner(clip, prompts, engine="eager", **settings)
    again = make_tuner(clip, prompts, engine="graph", **settings)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    images = random_pixels(clip, len(LABELS), seed=2).cuda()
    for step in range(7):
        if step == 2:
            teach(plain, clip, images)
            teach(again, clip, images)
        views = random_pixels(clip, 8, seed=step).cuda()
        a, b = plain.predict(views), again.predict(views)
        assert a.entropy == pytest.approx(b.entropy, rel=tolerance)
        assert far(a.probs, b.probs) < tolerance
    assert again.engine.recorded is not None
    assert isinstance(again.engine.tape, CudaTape)
    assert again.engine.tape.side is not None  # both lanes could be recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("longest", [3, 40])
def test_on_cuda_short_texts_are_attended_to_as_by_torch(
    dtype: torch.dtype, tolerance: float, longest: int
) -> None:
    pytest.importorskip("triton")
    from taps.kernels.text_attention import short_attention

    texts = [f"of a {name}." for name in (*CLASSES, "so " * longest + "far")]
    layout = make_layout(token_rows(texts, context=2, limit=77), context=2).to("cuda")
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(len(layout.collect), 3 * 64, generator=generator).to("cuda", dtype).requires_grad_()
    upper = torch.randn(len(layout.collect), 64, generator=generator).to("cuda", dtype)
    fused, plain = short_attention(packed, layout, 2), ops.plain_text_attention(packed, layout, 2)
    assert far(fused.detach(), plain.detach()) < tolerance
    slopes = [torch.autograd.grad(out, packed, upper)[0] for out in (fused, plain)]
    assert far(*slopes) < tolerance


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(6, 199, 768), (1, 1, 768), (4170, 512), (3, 17, 48)])
@pytest.mark.parametrize("replaced", [0, 2])
def test_on_cuda_additions_and_norms_are_those_of_torch(
    dtype: torch.dtype, tolerance: float, shape: tuple[int, ...], replaced: int
) -> None:
    pytest.importorskip("triton")
    from taps.kernels.norm import fused_add_norm

    if replaced >= shape[-2]:
        return
    generator, width = torch.Generator().manual_seed(0), shape[-1]

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to("cuda", dtype).requires_grad_()

    x, delta, weight, bias = draw(*shape), draw(*shape), draw(width).detach(), draw(width).detach()
    fresh = draw(replaced, width) if replaced else None
    leaves = [x, delta] if fresh is None else [x, delta, fresh]
    uppers = [draw(*shape).detach(), draw(*shape).detach()]
    made = []
    for function in (fused_add_norm, ops.plain_add_norm):
        results = function(x, delta, fresh, weight, bias, 1e-5, shape[-2] - replaced if replaced else 0)
        made.append((*results, *torch.autograd.grad(results, leaves, uppers)))
    for mine, theirs in zip(*made, strict=True):
        assert far(mine.detach(), theirs.detach()) < tolerance


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(  # each is compiled for itself, which takes seconds
    ("dtype", "tokens", "heads", "size"),
    [(torch.bfloat16, 199, 12, 64), (torch.float16, 52, 3, 32), (torch.bfloat16, 17, 1, 64)],
)
def test_on_cuda_images_attend_to_themselves(dtype: torch.dtype, tokens: int, heads: int, size: int) -> None:
    pytest.importorskip("triton")
    from taps.kernels.vision_attention import vision_attention

    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(5, tokens, 3 * heads * size, generator=generator).to("cuda", dtype)
    upper = torch.randn(5, tokens, heads * size, generator=generator).to("cuda", dtype)
    exact = packed.double().requires_grad_()
    q, k, v = exact.view(5, tokens, 3, heads, size).permute(2, 0, 3, 1, 4)
    weights = torch.softmax(q @ k.transpose(2, 3) / size**0.5, dim=-1)
    expected = (weights @ v).transpose(1, 2).reshape(5, tokens, heads * size)
    packed.requires_grad_()
    fused = vision_attention(packed, heads)
    assert far(fused.detach(), expected.detach()) < 1e-2
    slopes = torch.autograd.grad(fused, packed, upper) + torch.autograd.grad(expected, exact, upper.double())
    assert far(*slopes) < 1e-2
    assert ops._vision_attention(tokens, packed.shape[2], heads, dtype) is not None  # it passes its own test


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_cuda_pixels_become_the_same_numbers(dtype: torch.dtype) -> None:
    clip = narrow_clip(dtype)
    pixels = random_pixels(clip, 7, seed=0)
    expected = clip.preprocess(pixels)
    assert torch.equal(clip.to("cuda").preprocess(pixels).cpu(), expected)
    assert torch.equal(clip.preprocess(pixels[:, :, ::2, 1:]).cpu(), expected[:, :, ::2, 1:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("taken", [True, False])
def test_on_cuda_adamw_is_that_of_torch(taken: bool) -> None:
    pytest.importorskip("triton")
    generator = torch.Generator(device="cuda").manual_seed(0)
    value, *gradients = torch.randn(6, 70, 131, generator=generator, device="cuda")
    theirs = value.clone().requires_grad_()
    rule = torch.optim.AdamW([theirs], lr=1e-2, weight_decay=0.1, foreach=False)
    mine, moments = {"x": value.clone()}, fresh_moments({"x": value})
    for gradient in gradients:
        if taken:
            theirs.grad = gradient.clone()
            rule.step()
        else:
            gradient[3, 5] = float("nan")
        mine, moments, done = adamw(mine, {"x": gradient}, moments, lr=1e-2, weight_decay=0.1)
        assert bool(done) == taken
    assert far(mine["x"], theirs.detach()) < 1e-6
    assert optimiser._fused_adamw() is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_our_kernels_are_used() -> None:
    pytest.importorskip("triton")
    assert ops._cuda_kernels() is not None
    assert ops._fused_levels() is not None
    assert ops._short_attention() is not None
    assert ops._fused_add_norm() is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("reset", ["sample", "never"])
def test_on_cuda_float32_equals_the_published_way(reset: str) -> None:
    clip = narrow_clip(torch.float32).to("cuda")
    prompts = maple.initial(clip, torch.Generator().manual_seed(1))
    images = random_pixels(clip, len(LABELS), seed=2).cuda()
    reference = ReferenceStep(clip, CLASSES, prompts, lr=1e-3, fraction=0.25, weight_ce=0.7, reset=reset)
    tuner = make_tuner(clip, prompts, lr=1e-3, weight_ce=0.7, reset=reset, chunk=2, engine="graph")
    teach(tuner, clip, images)
    reference.remember(images, torch.tensor(LABELS))
    views = random_pixels(clip, 12, seed=5).cuda()
    expected, output = reference(views), tuner.predict(views)
    assert output.entropy == pytest.approx(float(expected.entropy), rel=1e-4)
    # The update goes by the gradient's sign, so a component near zero may fall to the other side.
    assert far(output.probs, torch.softmax(expected.logits, dim=-1)) < 1e-3
