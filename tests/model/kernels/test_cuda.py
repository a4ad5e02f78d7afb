"""Every kernel against torch's operations or a literal computation; needs a CUDA device and Triton."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from taps import Learner
from taps.learning.optimiser import adamw, fresh_moments
from taps.model.clip import ops
from taps.model.clip.layout import make_layout, token_rows
from taps.model.clip.load import load_clip
from taps.model.kernels import verify
from taps.model.prompts.maple import Maple

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def far(a: Tensor, b: Tensor) -> float:
    return float((a.double().cpu() - b.double().cpu()).norm() / b.double().cpu().norm())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("longest", [3, 40])
def test_short_texts_are_attended_to_as_by_torch(dtype: torch.dtype, tolerance: float, longest: int) -> None:
    from taps.model.kernels.text_attention import short_attention

    texts = [
        f"of a {name}."
        for name in ("cat", "fire truck", "a very long hairy caterpillar", "so " * longest + "far")
    ]
    layout = make_layout(token_rows(texts, context=2, limit=77), context=2).to("cuda")
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(len(layout.collect), 3 * 64, generator=generator).to("cuda", dtype).requires_grad_()
    upper = torch.randn(len(layout.collect), 64, generator=generator).to("cuda", dtype)
    fused, plain = short_attention(packed, layout, 2), ops.plain_text_attention(packed, layout, 2)
    assert far(fused.detach(), plain.detach()) < tolerance
    slopes = [torch.autograd.grad(out, packed, upper)[0] for out in (fused, plain)]
    assert far(*slopes) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_towers_are_computed_by_the_kernels(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = load_clip("ViT-B-32", pretrained="random", device="cuda", dtype=dtype)
    pixels = clip.preprocess(torch.zeros(2, 3, 224, 224, dtype=torch.uint8, device="cuda"))

    def compute() -> None:
        with torch.no_grad():
            clip.encode_text(["a cat.", "a dog."])
            clip.encode_image(pixels)

    compute()  # here each kernel is tried beside the plain operation

    def refuse(*_: object) -> None:
        raise AssertionError("torch's operation was used in place of its kernel")

    for name in ("plain_text_attention", "plain_add_norm"):
        monkeypatch.setattr(ops, name, refuse)
    compute()


def test_kernels_are_compiled_for_a_model_and_not_for_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    clip = load_clip("ViT-B-32", pretrained="random", device="cuda", dtype=torch.bfloat16)
    prompts = Maple().initial(clip, torch.Generator().manual_seed(0))

    def predict(count: int) -> None:
        names = [f"thing {number}" for number in range(count)]
        learner = Learner(clip, names, "taps", prompts=prompts, views=8)
        learner.predict_one(np.zeros((50, 40 + count, 3), np.uint8))

    predict(40)
    compiled: list[str] = []
    monkeypatch.setattr(
        triton.knobs.runtime, "jit_post_compile_hook", lambda **given: compiled.append(given["fn"].name)
    )
    for count in (37, 48, 101):
        predict(count)
    assert not compiled


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(6, 199, 768), (1, 1, 768), (4170, 512), (3, 17, 48)])
@pytest.mark.parametrize("replaced", [0, 2])
def test_additions_and_norms_are_those_of_torch(
    dtype: torch.dtype, tolerance: float, shape: tuple[int, ...], replaced: int
) -> None:
    from taps.model.kernels.norm import fused_add_norm

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


@pytest.mark.parametrize(  # each is compiled for itself, which takes seconds
    ("dtype", "tokens", "heads", "size"),
    [(torch.bfloat16, 199, 12, 64), (torch.float16, 52, 3, 32), (torch.bfloat16, 17, 1, 64)],
)
def test_images_attend_to_themselves(dtype: torch.dtype, tokens: int, heads: int, size: int) -> None:
    from taps.model.kernels.vision_attention import vision_attention

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
    assert (
        ops.self_attention_kernel(tokens, packed.shape[2], heads, dtype) is not None
    )  # it passes its own test


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pixels_become_the_same_numbers(dtype: torch.dtype) -> None:
    clip = load_clip("tiny", device="cpu", dtype=dtype)
    size = clip.config.image_size
    pixels = torch.randint(
        0, 256, (7, 3, size, size), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    expected = clip.preprocess(pixels)
    assert torch.equal(clip.to("cuda").preprocess(pixels).cpu(), expected)
    assert torch.equal(clip.preprocess(pixels[:, :, ::2, 1:]).cpu(), expected[:, :, ::2, 1:])


@pytest.mark.parametrize("taken", [True, False])
def test_adamw_is_that_of_torch(taken: bool) -> None:
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


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs a Hopper GPU"
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [(1,), (3, 211), (5000,)])
def test_a_product_and_its_quick_gelu_are_those_of_torch(dtype: torch.dtype, rows: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(192, 512).to("cuda", dtype).requires_grad_(False)
    x = torch.randn(*rows, 192, generator=generator).to("cuda", dtype)
    hidden = x.double() @ layer.weight.double().T + layer.bias.double()
    kernel = ops.linear_gelu_kernel(512, 192, dtype)
    assert kernel is not None
    made = kernel(x, layer.weight, layer.bias)
    assert made.shape == (*rows, 512)
    exact = hidden * torch.sigmoid(1.702 * hidden)
    # Rounded once: no further off than the two passes, which round twice.
    assert far(made, exact) < max(1e-3, far(ops.quick_gelu(layer(x)), exact))


def test_scoring_is_the_same_with_a_graph_and_without() -> None:
    """Kernels that keep nothing for a way back are used in one case alone."""
    clip = load_clip("ViT-B-16", pretrained="random", device="cuda", dtype=torch.bfloat16)
    size = clip.config.image_size
    pixels = torch.randint(
        0, 256, (21, 3, size, size), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    images, prompts = clip.preprocess(pixels), torch.zeros(2, 2, 768, device="cuda")
    with torch.no_grad():
        mine = clip.encode_image(images, prompts)
    assert far(mine, clip.encode_image(images, prompts.requires_grad_()).detach()) < 1e-2


def test_our_kernels_are_used() -> None:
    assert ops.quick_gelu_kernels() is not None
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert ops.text_attention_kernel(3 * 512, 8, dtype) is not None
        assert ops.norm_kernel(768, dtype) is not None


@pytest.mark.parametrize("engine", ["graph", "eager"])
def test_a_stream_uses_them_all(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """They are tried where a stream first needs them, be it inside a capture's stream."""
    find = (
        ops.quick_gelu_kernels, ops.linear_gelu_kernel, ops.norm_kernel, ops.text_attention_kernel,
        ops.self_attention_kernel,
    )  # fmt: skip
    for each in find:
        each.cache_clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(verify, "STATE", {})
    clip = load_clip("ViT-B-16", pretrained="random", device="cuda", dtype=torch.bfloat16)
    prompts = Maple().initial(clip, torch.Generator().manual_seed(0))
    names = [f"thing {number}" for number in range(1100)]
    learner = Learner(clip, names, "taps", prompts=prompts, engine=engine)
    learner.predict_many([np.full((40, 50, 3), grey, np.uint8) for grey in (50, 100)])
    refused = {name: why for name, why in verify.STATE.items() if why != "used"}
    hopper = torch.cuda.get_device_capability() >= (9, 0)
    assert refused.keys() <= (set() if hopper else {"linear_gelu_kernel"}), refused
    assert len(verify.STATE) >= len(find)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_many_gradients_go_back_through_one_forward(dtype: torch.dtype, tolerance: float) -> None:
    """The kernels' way back for several gradients at once against each by itself."""
    layout = make_layout(token_rows(["cat", "a fire truck", "oak"], context=2, limit=77), context=2).to(
        "cuda"
    )
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to("cuda", dtype)

    tokens, width = len(layout.collect), 64
    norm = torch.nn.LayerNorm(width).to("cuda", dtype).requires_grad_(False)
    leaf, fresh = draw(tokens, width).requires_grad_(), draw(2, width).requires_grad_()
    total, normed = ops.add_norm(leaf, draw(tokens, width), norm, fresh, first=1)
    hidden = ops.quick_gelu(normed @ draw(width, 3 * width))
    result = ops.collect(ops.text_attention(hidden, layout, 2) + total, layout.ends)
    upper = draw(4, *result.shape)

    def back(one: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result, [leaf, fresh], one, retain_graph=True)

    together = torch.vmap(back)(upper)
    for number in range(4):
        for mine, expected in zip(together, back(upper[number]), strict=True):
            assert far(mine[number], expected) < tolerance
