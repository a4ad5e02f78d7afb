"""Views: where they lie, that backends agree, that a seed decides all."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from taps.errors import ImageError, SettingsError
from taps.model.images import make_views, sample_crops, sample_generator, tensor
from taps.model.images.augmix import DISTORTIONS, augmix
from taps.model.images.geometry import AREA, RATIO, TRIES, Framing, central_crop, sample_crops_of
from taps.model.images.views import make_views_of

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPES = [(60, 80), (80, 60), (500, 375), (47, 47), (1, 1), (2, 1), (1, 90), (200, 3), (150, 221)]
sides = st.integers(1, 700)


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth shapes with some grain: neither flat nor noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return np.clip(smooth + rng.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8)


def views_of(image: np.ndarray, **settings: object) -> torch.Tensor:
    chosen = {"views": 12, "size": 32, "generator": sample_generator(3, 1), **settings}
    return make_views(image, **chosen)  # type: ignore[arg-type]


# ---- geometry ----


@settings(max_examples=80)
@given(sides, sides, st.integers(0, 40), st.integers(0, 2**32))
def test_crops_stay_inside_and_keep_their_shape(height: int, width: int, count: int, seed: int) -> None:
    boxes, flips = sample_crops(height, width, count, sample_generator(seed, 0))
    assert boxes.shape == (count, 4)
    assert boxes.dtype == np.int64
    assert flips.shape == (count,)
    assert flips.dtype == np.bool_
    for top, left, crop_height, crop_width in boxes.tolist():
        assert crop_height >= 1
        assert crop_width >= 1
        assert 0 <= top <= height - crop_height
        assert 0 <= left <= width - crop_width
        # Sides are rounded, so the ratio may miss its bounds by half a pixel on each side.
        assert (crop_width + 0.5) / max(crop_height - 0.5, 1e-9) >= 3 / 4
        assert (crop_width - 0.5) / (crop_height + 0.5) <= 4 / 3
        assert (crop_height + 0.5) * (crop_width + 0.5) >= min(0.08 * height * width, min(height, width) ** 2)


def loop_crop(height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """The usual definition, written as the loop it is usually given as."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1)), h, w
    h, w = central_crop(height, width)
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(("height", "width"), [(375, 500), (300, 300), (100, 900)])
def test_crops_are_distributed_as_the_loop_draws_them(height: int, width: int) -> None:
    count, rng = 4000, np.random.default_rng(5)
    boxes, flips = sample_crops(height, width, count, sample_generator(0, 0))
    ours = boxes.astype(np.float64)
    loop = np.array([loop_crop(height, width, rng) for _ in range(count)], dtype=np.float64)
    error = 5 * np.sqrt((ours.var(0) + loop.var(0)) / count) + 1e-9  # five standard errors
    assert (np.abs(ours.mean(0) - loop.mean(0)) <= error).all()
    for column in range(4):  # two-sample Kolmogorov–Smirnov, p ≈ 1e-5
        grid = np.union1d(ours[:, column], loop[:, column])
        ranks = [
            np.searchsorted(np.sort(each[:, column]), grid, side="right") / count for each in (ours, loop)
        ]
        assert np.abs(ranks[0] - ranks[1]).max() < 2.5 * math.sqrt(2 / count)
    assert abs(flips.mean() - 0.5) < 5 * 0.5 / math.sqrt(count)


def literal_crop(height: int, width: int, draws: list[float]) -> tuple[int, int, int, int]:
    """A crop from its draws: areas, ratios, then the place."""
    for area, ratio in zip(draws[:TRIES], draws[TRIES : 2 * TRIES], strict=True):
        area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area)
        ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** ratio
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < w <= width and 0 < h <= height:
            down, across = draws[2 * TRIES : 2 * TRIES + 2]
            return int(down * (height - h + 1)), int(across * (width - w + 1)), h, w
    h, w = central_crop(height, width)
    return (height - h) // 2, (width - w) // 2, h, w


def test_crops_of_several_images_are_those_their_own_generators_draw() -> None:
    """To the pixel: a stream that is resumed, or predicted together with others, sees the same views."""
    count = 40
    boxes, flips = sample_crops_of(SHAPES, count, [sample_generator(7, step) for step in range(len(SHAPES))])
    for step, shape in enumerate(SHAPES):
        draws = torch.rand(count, 2 * TRIES + 3, generator=sample_generator(7, step), dtype=torch.float64)
        assert boxes[step].tolist() == [list(literal_crop(*shape, own)) for own in draws.tolist()]
        assert flips[step].tolist() == (draws[:, -1] < 0.5).tolist()


def test_every_place_a_crop_fits_is_drawn_as_often_as_any_other() -> None:
    """From the first to the last, which is as far away as the crop is smaller than the image."""
    side = 6
    boxes, _ = sample_crops(side, side, 20_000, sample_generator(1, 0))
    for corner, length in ((0, 2), (1, 3)):  # top of height, left of width
        for size in range(3, side + 1):
            places = boxes[boxes[:, length] == size, corner]
            counts = np.bincount(places, minlength=side - size + 1)
            expected = len(places) / (side - size + 1)
            assert len(counts) == side - size + 1
            assert expected > 200
            assert np.abs(counts - expected).max() < 5 * math.sqrt(expected)


@pytest.mark.parametrize(
    ("height", "width", "crop"),
    [(100, 1000, (100, 133)), (1000, 100, (133, 100)), (30, 40, (30, 40)), (1, 1, (1, 1)), (1, 9, (1, 1))],
)
def test_central_crop(height: int, width: int, crop: tuple[int, int]) -> None:
    assert central_crop(height, width) == crop


def test_long_images_fall_back_to_the_centre() -> None:
    boxes, _ = sample_crops(1, 1000, 5, sample_generator(0, 0))
    assert boxes.tolist() == [[0, 499, 1, 1]] * 5


def test_generators_are_one_per_sample() -> None:
    draws = {
        (seed, step): torch.rand(4, generator=sample_generator(seed, step)).tolist()
        for seed in (-1, 0, 1, 2**40)
        for step in (0, 1, 2)
    }
    assert len({tuple(each) for each in draws.values()}) == len(draws)
    assert torch.rand(4, generator=sample_generator(0, 1)).tolist() == draws[0, 1]


# ---- pixels ----


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [16, 33])
@pytest.mark.parametrize("backend", ["tensor", "pillow"])
def test_view_zero_is_resize_and_centre_crop(shape: tuple[int, int], size: int, backend: str) -> None:
    image = photo(*shape)
    height, width = shape
    if width <= height:
        new_width, new_height = size, int(size * height / width)
    else:
        new_width, new_height = int(size * width / height), size
    left, top = round((new_width - size) / 2), round((new_height - size) / 2)
    whole = Image.fromarray(image).resize((new_width, new_height), Image.Resampling.BICUBIC)
    wanted = np.asarray(whole.crop((left, top, left + size, top + size))).astype(int)
    made = views_of(image, size=size, backend=backend)[0].permute(1, 2, 0).int().numpy()
    assert np.abs(made - wanted).max() <= 1
    if max(shape) < 50 * min(shape):  # else Pillow takes columns before rows on the way to the huge whole
        assert np.abs(made - wanted).mean() < 0.01


def naive_axis(pixels: np.ndarray, size: int) -> np.ndarray:
    """Antialiased triangle filter along the first axis, from its definition, in float64."""
    length = len(pixels)
    scale = length / size
    rows = []
    for i in range(size):
        centre = (i + 0.5) * scale
        weights = np.array([max(0.0, 1 - abs(j + 0.5 - centre) / max(scale, 1)) for j in range(length)])
        rows.append(np.tensordot(weights / weights.sum(), pixels, axes=1))
    return np.stack(rows)


def batched(
    image: np.ndarray, views: int, size: int, generator: torch.Generator, **framing: str
) -> torch.Tensor:
    """The path of accelerators, run here on the CPU."""
    boxes, flips = sample_crops(*image.shape[:2], views - 1, generator)
    shown = Framing(size, **framing)
    return tensor.batched_views(image, boxes, flips, shown, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("way", ["pillow", "tensor", "batched"])
def test_crops_equal_the_definition(way: str) -> None:
    image, size = photo(50, 70), 24
    boxes, flips = sample_crops(50, 70, 9, sample_generator(2, 2))
    assert 0 < int(flips.sum()) < 9
    if way == "batched":
        made = batched(image, 10, size, sample_generator(2, 2))[1:]
    else:
        made = make_views(image, views=10, size=size, generator=sample_generator(2, 2), backend=way)[1:]
    for view, (top, left, height, width), flip in zip(made, boxes.tolist(), flips.tolist(), strict=True):
        crop = image[top : top + height, left : left + width].astype(float)
        wanted = naive_axis(naive_axis(crop, size).transpose(1, 0, 2), size).transpose(1, 0, 2)
        wanted = wanted[:, ::-1] if flip else wanted
        off = np.abs(view.permute(1, 2, 0).numpy() - wanted)
        assert off.max() <= 1.1  # two roundings to whole levels
        assert off.mean() <= 0.5


@pytest.mark.parametrize("shape", [*SHAPES, (120, 400)])
@pytest.mark.parametrize("size", [16, 64])
def test_backends_agree(shape: tuple[int, int], size: int) -> None:
    image = photo(*shape)
    reference = views_of(image, size=size, backend="pillow").int()
    for made in (views_of(image, size=size), batched(image, 12, size, sample_generator(3, 1))):
        assert made.shape == (12, 3, size, size)
        assert made.dtype == torch.uint8
        off = (made.int() - reference).abs()
        assert off.max() <= 2
        # Pillow may take columns before rows, which moves the rounding in between, never more.
        assert off.float().mean() <= 0.25


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("resize", ["shortest", "squash"])
@pytest.mark.parametrize("way", ["pillow", "tensor", "batched"])
def test_view_zero_is_framed_as_the_model_expects(way: str, resize: str, interpolation: str) -> None:
    """Pillow's own resize of the whole image, or of its centre, by the named filter."""
    image, size = photo(60, 90), 32
    framing = {"resize": resize, "interpolation": interpolation}
    if way == "batched":
        made = batched(image, 2, size, sample_generator(0, 0), **framing)[0]
    else:
        generator = sample_generator(0, 0)
        made = make_views(image, views=2, size=size, generator=generator, backend=way, **framing)[0]
    filter = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}[interpolation]
    if resize == "squash":
        wanted = Image.fromarray(image).resize((size, size), filter)
    else:
        wanted = Image.fromarray(image).resize((48, size), filter).crop((8, 0, 40, size))
    off = np.abs(made.permute(1, 2, 0).numpy().astype(int) - np.asarray(wanted).astype(int))
    assert off.max() <= 2
    assert off.mean() <= 0.3
    with pytest.raises(SettingsError, match="resize='longest'"):
        make_views(image, views=1, size=8, generator=sample_generator(0, 0), resize="longest")


def test_groups_of_views_equal_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    image = photo(60, 80)
    whole = batched(image, 12, 32, sample_generator(0, 0))
    monkeypatch.setattr(tensor, "CHUNK_ELEMENTS", 32 * (3 * 60 + 6 * 80) * 5)
    assert torch.equal(batched(image, 12, 32, sample_generator(0, 0)), whole)


def test_half_precision_products_stay_close() -> None:
    image = photo(90, 120)
    boxes, flips = sample_crops(90, 120, 11, sample_generator(0, 0))
    made = [
        tensor.batched_views(image, boxes, flips, Framing(32), torch.device("cpu"), dtype).int()
        for dtype in (torch.float32, torch.float16)
    ]
    off = (made[0] - made[1]).abs()
    assert off.max() <= 2
    assert off.float().mean() <= 0.25


def test_flat_images_stay_flat() -> None:
    for value in (0, 1, 254, 255):
        image = np.full((37, 53, 3), value, dtype=np.uint8)
        for made in (views_of(image), batched(image, 12, 32, sample_generator(3, 1))):
            assert int(made.min()) == int(made.max()) == value


@pytest.mark.parametrize("way", ["pillow", "tensor", "batched"])
def test_flips_mirror(way: str) -> None:
    ramp = np.repeat(np.linspace(0, 255, 80, dtype=np.uint8)[None, :, None], 60, axis=0).repeat(3, axis=2)
    _, flips = sample_crops(60, 80, 40, sample_generator(8, 0))
    if way == "batched":
        made = batched(ramp, 41, 16, sample_generator(8, 0))
    else:
        made = make_views(ramp, views=41, size=16, generator=sample_generator(8, 0), backend=way)
    falls = made[:, 0, 8, 0] > made[:, 0, 8, -1]
    assert not falls[0]
    assert falls[1:].tolist() == flips.tolist()


@pytest.mark.parametrize("backend", ["tensor", "pillow"])
@pytest.mark.parametrize("with_augmix", [False, True])
def test_the_generator_decides_all(backend: str, with_augmix: bool) -> None:
    image = photo(60, 80)
    first, again, other = (
        views_of(image, backend=backend, augmix=with_augmix, generator=sample_generator(0, step))
        for step in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert torch.equal(first[0], other[0])
    assert not torch.equal(first[1:], other[1:])


def test_the_global_generator_and_the_image_are_left_alone() -> None:
    image = photo(60, 80)
    before, state = image.copy(), torch.get_rng_state()
    views_of(image, augmix=True)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(image, before)


def test_read_only_and_strided_images_work() -> None:
    image = photo(60, 80)
    frozen = image.copy()
    frozen.flags.writeable = False
    for same in (frozen, np.asfortranarray(image), np.ascontiguousarray(image[:, ::-1])[:, ::-1]):
        for backend in ("tensor", "pillow"):
            assert torch.equal(views_of(same, backend=backend), views_of(image, backend=backend))


@pytest.mark.parametrize("with_augmix", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_views_of_several_images_are_those_of_each(device: str, with_augmix: bool) -> None:
    images = [photo(60, 80), photo(31, 20), photo(3, 12_000), photo(60, 80)]
    made = make_views_of(
        images,
        [sample_generator(3, step) for step in range(4)],
        views=5,
        size=32,
        device=device,
        augmix=with_augmix,
    )
    for step, (image, several) in enumerate(zip(images, made, strict=True)):
        settings = {"views": 5, "generator": sample_generator(3, step), "device": device}
        assert torch.equal(several, views_of(image, augmix=with_augmix, **settings))


def test_one_view_and_a_very_long_image() -> None:
    assert views_of(photo(60, 80), views=1).shape == (1, 3, 32, 32)
    assert views_of(photo(60, 80), views=1, augmix=True).shape == (1, 3, 32, 32)
    long = np.zeros((1, 1_000_000, 3), dtype=np.uint8)
    long[0, 499_000:501_000] = 255
    assert int(views_of(long, views=3)[0].min()) == 255


@pytest.mark.parametrize("wrong", [photo(6, 8)[:, :, 0], photo(6, 8) / 255, photo(6, 8)[:0]])
def test_what_is_not_pixels_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ImageError, match="load_image"):
        views_of(wrong)


@pytest.mark.parametrize("wrong", [{"views": 0}, {"size": 0}, {"backend": "opencv"}])
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        views_of(photo(6, 8), **wrong)


# ---- AugMix ----


def test_augmix_shares_are_uniform_over_all_ways_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a black view whose chains turn it red, green and blue, each colour is what its chain weighs."""
    chain = itertools.count()

    def colour(image: Image.Image, rng: np.random.Generator) -> Image.Image:
        pixels = np.zeros((image.height, image.width, 3), dtype=np.uint8)
        pixels[:, :, next(chain) % 3] = 255
        return Image.fromarray(pixels)

    monkeypatch.setattr("taps.model.images.augmix.DISTORTIONS", {"colour": colour})
    monkeypatch.setattr("taps.model.images.augmix.DEEPEST", 1)
    black = torch.zeros(4000, 3, 2, 2, dtype=torch.uint8)
    mixed = augmix(black, sample_generator(0, 0)).double().numpy() / 255
    assert np.ptp(mixed, axis=(2, 3)).max() == 0
    shares = mixed[:, :, 0, 0]
    chains = shares.sum(axis=1)  # what is not kept of the view itself: Beta(1, 1), uniform in 0..1
    weights = shares / chains[:, None]  # Dirichlet(1, 1, 1): each is Beta(1, 2), 1 − (1 − w)² below w
    for values, below in [(chains, lambda x: x), *((w, lambda x: 1 - (1 - x) ** 2) for w in weights.T)]:
        ranks = (np.arange(len(values)) + 0.5) / len(values)
        assert np.abs(below(np.sort(values)) - ranks).max() < 2.5 / math.sqrt(len(values))  # Kolmogorov


def test_augmix_touches_all_but_view_zero() -> None:
    image = photo(60, 80)
    plain, mixed = views_of(image).float(), views_of(image, augmix=True)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed[0], plain[0])
    changed = (mixed[1:] - plain[1:]).abs().flatten(1).mean(1)
    assert (changed > 0).all()
    assert mixed.min() >= 0
    assert mixed.max() <= 255.001


def test_augmix_is_a_mild_mixture() -> None:
    """Weights sum to one, so a view no distortion changes stays what it is."""
    white = torch.full((6, 3, 16, 16), 128, dtype=torch.uint8)
    centre = augmix(white, sample_generator(0, 0))[:, :, 4:-4, 4:-4]
    assert torch.allclose(centre, torch.full_like(centre, 128), atol=1e-3)


def test_there_are_nine_distortions_and_each_is_mild() -> None:
    image = Image.fromarray(photo(64, 64) // 2 + 50)
    names = set(DISTORTIONS)
    assert names == {
        *("autocontrast", "equalize", "posterize", "rotate", "solarize"),
        *("shear_x", "shear_y", "translate_x", "translate_y"),
    }
    rng = np.random.default_rng(0)
    for name, distort in DISTORTIONS.items():
        made = [np.asarray(distort(image, rng)).astype(int) for _ in range(20)]
        assert all(each.shape == (64, 64, 3) for each in made)
        off = [np.abs(each - np.asarray(image)).mean() for each in made]
        assert max(off) < 60
        assert max(off) > 0 or name == "solarize"  # no pixel is bright enough here
    bright = Image.new("RGB", (4, 4), "white")
    assert np.asarray(DISTORTIONS["solarize"](bright, rng)).max() == 0


@needs_cuda
@pytest.mark.parametrize("shape", [*SHAPES, (375, 500), (3, 12_000)])
def test_cuda_agrees_with_pillow(shape: tuple[int, int]) -> None:
    image = photo(*shape)
    reference = views_of(image, size=64, backend="pillow").int()
    made = views_of(image, size=64, device="cuda")
    assert made.device.type == "cuda"
    off = (made.cpu().int() - reference).abs()
    assert off.max() <= 2
    assert off.float().mean() <= 0.25


@needs_cuda
@pytest.mark.parametrize("shape", [*SHAPES, (375, 500), (1203, 1597)])
@pytest.mark.parametrize("size", [16, 64, 224])
def test_on_cuda_the_fused_kernel_makes_what_the_products_make(shape: tuple[int, int], size: int) -> None:
    pytest.importorskip("triton")
    from taps.model.kernels.views import fused_views

    device = torch.device("cuda")
    assert tensor.views_kernel(size, device) is fused_views  # not replaced by the products
    images = [photo(*shape), photo(33, 45)]
    sizes = [image.shape[:2] for image in images]
    boxes, flips = sample_crops_of(sizes, 11, [sample_generator(3, 1), sample_generator(3, 2)])
    for framing in (Framing(size), Framing(size, "squash", "bilinear")):
        made = fused_views(images, tensor.view_plan(sizes, boxes, flips, framing), size, device)
        each = zip(images, boxes, flips, strict=True)
        products = torch.stack([tensor.batched_views(*one, framing, device, torch.float32) for one in each])
        assert made.shape == products.shape
        off = (made.int() - products.int()).abs()
        assert off.max() <= 2  # both round twice, and sums next to a half may fall to either side
        assert off.float().mean() <= 0.2
