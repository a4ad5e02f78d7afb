"""The encoders against a plain computation: 77 padded tokens, a causal mask, one sequence at a time."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taps import load_clip
from taps.errors import ClassNameError, PromptsError
from taps.model.clip import Clip
from taps.model.clip.layout import make_layout, token_rows
from taps.model.clip.tokenizer import encode
from tests.literal import Literal

NAMES = ["cat", "a very long name of a class", "cat", "cat flap", "x", "Ångström éclair 北京"]


def random_tokens(depth: int, tokens: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.3 * torch.randn(depth, tokens, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("depth", "tokens"), [(0, 0), (1, 4), (2, 1), (4, 3)])
def test_text_equals_the_plain_computation(tiny64: Clip, depth: int, tokens: int) -> None:
    texts = [f"of a {name}." for name in NAMES]
    context = random_tokens(depth, tokens, tiny64.config.text_width, seed=1) if depth else None
    ours = None if context is None else context.clone().requires_grad_()
    plain = None if context is None else context.clone().requires_grad_()
    features = tiny64.encode_text(texts, ours)
    expected = Literal(tiny64).text([encode(text) for text in texts], plain)
    assert (features - expected).abs().max() < 1e-10
    if ours is None or plain is None:
        return
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((features * weights).sum(), ours)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), plain)
    assert wanted.abs().max() > 1e-3  # there is something to compare
    assert (gradient - wanted).abs().max() < 1e-10


def test_one_text_alone_and_texts_without_a_common_word(tiny64: Clip) -> None:
    plain = Literal(tiny64)
    for texts in (["cat"], ["cat", "dog"], ["cat cat", "cat"], ["a", "a b", "a b c d e f"]):
        expected = plain.text([encode(text) for text in texts])
        assert (tiny64.encode_text(texts) - expected).abs().max() < 1e-10


def test_a_text_that_fills_the_whole_context(tiny64: Clip) -> None:
    texts = [" ".join(["cat"] * 73), "dog"]  # 73 words, 2 context tokens and 2 markers: 77
    context = random_tokens(3, 2, tiny64.config.text_width, seed=3)
    expected = Literal(tiny64).text([encode(text) for text in texts], context)
    assert (tiny64.encode_text(texts, context) - expected).abs().max() < 1e-10
    with pytest.raises(ClassNameError, match="takes 78 tokens"):
        tiny64.encode_text([" ".join(["cat"] * 74), "dog"], context)


@pytest.mark.parametrize(("depth", "tokens"), [(0, 0), (1, 2), (3, 2), (4, 1)])
def test_vision_and_its_layers_equal_the_plain_computation(tiny64: Clip, depth: int, tokens: int) -> None:
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    prompts = random_tokens(depth, tokens, tiny64.config.vision_width, seed=5) if depth else None
    ours = None if prompts is None else prompts.clone().requires_grad_()
    plain = None if prompts is None else prompts.clone().requires_grad_()
    features, layers = tiny64.encode_image_and_layers(images, ours, layers=(3, 0, 1))
    expected, inputs = Literal(tiny64).image(images, plain)
    assert (features - expected).abs().max() < 1e-10
    assert (tiny64.encode_image(images, ours) - expected).abs().max() < 1e-10
    for layer, wanted in zip(layers, (inputs[3], inputs[0], inputs[1]), strict=True):
        assert layer.shape == (3, 1 + 16 + tokens, tiny64.config.vision_width)
        assert (layer - wanted).abs().max() < 1e-10
    for layer, wanted in zip(tiny64.image_layers(images, ours, (2, 1)), (inputs[2], inputs[1]), strict=True):
        assert (layer - wanted).abs().max() < 1e-10
    if ours is None or plain is None:
        return
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    total = (features * weights).sum() + (layers[0] ** 2).mean()
    reference = (expected * weights).sum() + (inputs[3] ** 2).mean()
    (gradient,) = torch.autograd.grad(total, ours)
    (wanted,) = torch.autograd.grad(reference, plain)
    assert wanted.abs().max() > 1e-3
    assert (gradient - wanted).abs().max() < 1e-10


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_layout_holds_every_text_whole(rows: list[list[int]]) -> None:
    """Prefix + own tokens give back each text, at its own positions."""
    marked = [[49406, *row, 49407] for row in rows]
    layout = make_layout(marked)
    prefix, own, places = layout.prefix.tolist(), layout.own.tolist(), layout.positions.tolist()
    rebuilt, start = [], 0
    for row in marked:
        length = len(row) - len(prefix)
        rebuilt.append(prefix + own[start : start + length])
        assert places[start : start + length] == list(range(len(prefix), len(row)))
        start += length
    assert rebuilt == marked
    assert start == len(own)
    assert layout.texts == len(rows)
    # Nothing more could have been shared: some two texts differ right after the prefix, or one ends there.
    following = {row[len(prefix)] for row in marked}
    assert len(following) > 1 or following == {49407}


def test_texts_without_tokens_are_refused() -> None:
    with pytest.raises(ClassNameError, match="no tokens"):
        token_rows(["cat", "  "], limit=77)


def test_no_feature_is_kept_on_modules_and_no_weight_learns(tiny64: Clip) -> None:
    before = {name: dict(vars(module)) for name, module in tiny64.named_modules()}
    prompts = random_tokens(2, 2, tiny64.config.vision_width, seed=7).requires_grad_()
    images = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    features, _ = tiny64.encode_image_and_layers(images, prompts, layers=(1,))
    features.sum().backward()
    after = {name: dict(vars(module)) for name, module in tiny64.named_modules()}
    assert {name: set(kept) for name, kept in before.items()} == {
        name: set(kept) for name, kept in after.items()
    }
    assert all(parameter.grad is None for parameter in tiny64.parameters())
    assert not any(parameter.requires_grad for parameter in tiny64.parameters())


@pytest.mark.parametrize("shape", [(1, 2, 7), (5, 2, 64), (0, 2, 64), (1, 0, 64), (2, 64)])
def test_vision_prompts_that_do_not_fit_are_refused(tiny: Clip, shape: tuple[int, ...]) -> None:
    with pytest.raises(PromptsError, match="vision prompts"):
        tiny.encode_image(torch.zeros(1, 3, 32, 32), torch.zeros(shape))


def test_a_layout_for_another_number_of_tokens_is_refused(tiny: Clip) -> None:
    layout = tiny.text_layout(["cat", "dog"], context=2)
    with pytest.raises(PromptsError, match="2 context tokens, but 3"):
        tiny.encode_text(layout, torch.zeros(1, 3, tiny.config.text_width))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_keep_scale_and_pixel_statistics_exact(tiny: Clip, dtype: torch.dtype) -> None:
    half = load_clip("tiny", device="cpu", dtype=dtype)
    assert half.dtype == dtype
    assert torch.equal(half.scale, tiny.scale)
    pixels = torch.randint(0, 256, (1, 3, 32, 32), generator=torch.Generator().manual_seed(8))
    exact = tiny.preprocess(pixels)
    assert torch.equal(half.preprocess(pixels), exact.to(dtype))
    wanted = torch.nn.functional.normalize(tiny.encode_image(exact), dim=1)
    seen = torch.nn.functional.normalize(half.encode_image(half.preprocess(pixels)).float(), dim=1)
    assert (wanted @ seen.T).item() > 0.999
    texts = torch.nn.functional.normalize(half.encode_text(["cat", "dog"]).float(), dim=1)
    assert (torch.nn.functional.normalize(tiny.encode_text(["cat", "dog"]), dim=1) * texts).sum(
        1
    ).min() > 0.999


def test_preprocessing_takes_bytes_and_floats_alike(tiny64: Clip) -> None:
    pixels = torch.randint(
        0, 256, (2, 3, 32, 32), generator=torch.Generator().manual_seed(9), dtype=torch.uint8
    )
    wanted = Literal(tiny64).pixels(pixels)
    assert (tiny64.preprocess(pixels) - wanted).abs().max() < 1e-14
    assert torch.equal(tiny64.preprocess(pixels), tiny64.preprocess(pixels.float()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_table_of_levels_is_what_preprocessing_computes(tiny: Clip, dtype: torch.dtype) -> None:
    """Devices look pixels up in the table; the same clip computes them here."""
    clip = copy.deepcopy(tiny).to(dtype)
    every = torch.arange(256, dtype=torch.uint8).expand(1, 3, 1, 256)
    assert torch.equal(clip.levels, clip.preprocess(every)[0, :, 0])
