"""The corruptions after ImageNet-C: their parts against loops, their strengths against its numbers."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.data import corrupt, corrupt_dataset, demo_dataset
from taps.data.corrupt import kinds_of
from taps.data.imagenet_c import IMAGENET_C, _convolved, _sampled, _zoomed
from taps.types import PixelArray

FLAT = np.full((224, 224, 3), 128, np.uint8)
NAMES = [
    *(
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
    ),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
]


def corrupted(image: PixelArray, kind: str, severity: int, seed: int = 0) -> PixelArray:
    return corrupt(image, f"imagenet-c-like/{kind}", severity, np.random.default_rng(seed))


def test_the_fifteen_by_name() -> None:
    assert [name.removeprefix("imagenet-c-like/") for name in IMAGENET_C] == NAMES
    assert kinds_of("imagenet-c-like") == tuple(IMAGENET_C)


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4), st.integers(0, 4), st.integers(0, 99))
def test_convolution_is_a_weighted_sum_of_mirrored_pixels(
    height: int, width: int, down: int, across: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    image, kernel = rng.random((height, width)), rng.random((2 * down + 1, 2 * across + 1))
    far = np.pad(image, ((down, down), (across, across)), mode="symmetric")
    expected = np.zeros((height, width))
    for row in range(height):
        for column in range(width):
            for i in range(-down, down + 1):
                for j in range(-across, across + 1):
                    pixel = far[row + down - i, column + across - j]
                    expected[row, column] += kernel[down + i, across + j] / kernel.sum() * pixel
    assert _convolved(image, kernel) == pytest.approx(expected)


def test_sampling_between_pixels_and_beyond_the_border() -> None:
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    rows, columns = np.mgrid[:4, :5].astype(float)
    assert np.array_equal(_sampled(image, rows, columns), image)
    between = _sampled(image, np.full((1, 1), 1.25), np.full((1, 1), 2.5))[0, 0]
    upper, lower = (image[1, 2] / 2 + image[1, 3] / 2), (image[2, 2] / 2 + image[2, 3] / 2)
    assert between == pytest.approx(0.75 * upper + 0.25 * lower)
    mirrored = _sampled(image, np.array([[-1.0, -2.0, 4.0, 5.0]]), np.zeros((1, 4)))[0]
    assert np.array_equal(mirrored, image[[0, 1, 3, 2], 0])


@pytest.mark.parametrize(("severity", "spread"), [(1, 0.08), (2, 0.12), (3, 0.18)])
def test_noise_is_as_strong_as_the_benchmarks(severity: int, spread: float) -> None:
    assert corrupted(FLAT, "gaussian_noise", severity).std() == pytest.approx(255 * spread, rel=0.02)
    photons = (60, 25, 12)[severity - 1]
    poisson = 255 * np.sqrt(128 / 255 * photons) / photons  # of a count with this mean
    assert corrupted(FLAT, "shot_noise", severity).std() == pytest.approx(poisson, rel=0.03)
    hit = corrupted(FLAT, "impulse_noise", severity)
    assert [float((hit == value).mean()) for value in (0, 255)] == pytest.approx(
        [(0.03, 0.06, 0.09)[severity - 1] / 2] * 2, rel=0.05
    )


def test_a_point_out_of_focus_is_a_disc_of_the_benchmarks_radius() -> None:
    point = np.zeros((224, 224, 3), np.uint8)
    point[100:103, 100:103] = 255
    seen = corrupted(point, "defocus_blur", 5)[..., 0] > 3
    assert seen.sum() == pytest.approx(np.pi * 10**2, rel=0.05)  # at half of its height
    small = corrupted(np.asarray(point[::2, ::2]), "defocus_blur", 5)[..., 0]
    assert (small > 3).sum() < seen.sum() / 3, "half the side, half the radius"


def test_motion_goes_one_way_and_flat_parts_stay() -> None:
    for kind in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "elastic_transform", "pixelate"):
        assert np.array_equal(corrupted(FLAT, kind, 4), FLAT), kind
    point = np.zeros((224, 224), np.float64)
    point[112, 112] = 1.0
    assert _zoomed(point, 1.0) == pytest.approx(point)
    image = np.repeat((255 * point)[..., None], 3, axis=2).astype(np.uint8)
    rows, columns = np.nonzero(corrupted(image, "motion_blur", 5)[..., 0])
    assert columns.min() >= 112 > rows.min() - 32
    assert columns.max() > 120


@given(st.lists(st.integers(0, 255), min_size=3, max_size=3), st.integers(1, 5))
def test_brightness_is_the_value_of_hsv(colour: list[int], severity: int) -> None:
    hue, saturation, value = colorsys.rgb_to_hsv(*(channel / 255 for channel in colour))
    expected = colorsys.hsv_to_rgb(hue, saturation, min(1.0, value + 0.1 * severity))
    image = np.array(colour, np.uint8).reshape(1, 1, 3)
    assert corrupted(image, "brightness", severity)[0, 0] == pytest.approx(
        [255 * channel for channel in expected], abs=0.51
    )


def test_contrast_pixelate_and_weather() -> None:
    image = np.random.default_rng(1).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    narrowed = corrupted(image, "contrast", 4).astype(float)
    assert narrowed.std() == pytest.approx(0.1 * image.std(), rel=0.03)
    blocks = corrupted(image, "pixelate", 2)
    means = image.reshape(112, 2, 112, 2, 3).mean(axis=(1, 3))
    assert np.abs(blocks.reshape(112, 2, 112, 2, 3) - means[:, None, :, None]).max() <= 1.0
    dark = np.full((96, 96, 3), 30, np.uint8)
    for kind in ("snow", "frost"):
        assert 30 < corrupted(dark, kind, 1).mean() < corrupted(dark, kind, 5).mean() < 255, kind
        assert len(np.unique(corrupted(dark, kind, 3))) > 20, kind
    dark[:48] = 255
    apart = [int(np.subtract(*corrupted(dark, "fog", s).mean(axis=(1, 2))[[10, -10]])) for s in (1, 3, 5)]
    assert 225 > apart[0] > apart[1] > apart[2] > 0, "fog takes contrast away"


def test_the_benchmarks_name_is_taken_but_not_used() -> None:
    """These are not its images: no table may say so."""
    assert all(kind.startswith("imagenet-c-like/") for kind in kinds_of("imagenet-c") if kind)
    assert kinds_of("imagenet-c/fog, sketch") == ("imagenet-c-like/fog", "sketch")
    image = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    np.testing.assert_array_equal(
        corrupt(image, "imagenet-c/fog", 3, np.random.default_rng(1)), corrupted(image, "fog", 3, 1)
    )
    seen = corrupt_dataset(demo_dataset(), "imagenet-c/fog")
    assert seen.samples[0].note.endswith("imagenet-c-like/fog 3")
