"""Fifteen corruptions after ImageNet-C (Hendrycks & Dietterich, ICLR 2019), in an implementation of our own.

Kinds and strengths are the benchmark's; results with them are not comparable with its own. It defines them
for images of 224 × 224; here lengths in pixels (of a blur, a flake, a wave) are relative to the short side,
so that images of any size are corrupted as much. Other differences: the crystals of frost are random, not
photographs; glass takes each pixel from a random neighbour instead of swapping the two one after the other;
the clouds of fog and frost are layers of smooth noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from taps.data import filters
from taps.data.filters import Corruption, Floats, Rng, clipped, graded, grey_of, moved, short_side
from taps.types import PixelArray

Strength = tuple[float, ...]
SIDE = 224  # of the benchmark's images


def impulse_noise(image: PixelArray, share: float, rng: Rng) -> PixelArray:
    """Values that fail: some are black, as many white."""
    drawn = rng.random(image.shape)
    salted = np.where(drawn < share, np.uint8(255), image)
    return np.where(drawn < share / 2, np.uint8(0), salted)


def defocus_blur(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """Out of focus: every point becomes a disc."""
    radius, soft = strength
    scale = short_side(image) / SIDE
    reach = int(np.ceil(radius * scale + 3 * soft * scale))
    distance = np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1])
    disc = np.clip(radius * scale + 0.5 - distance, 0.0, 1.0)
    return clipped(_convolved(image, _smoothed(disc, soft * scale)))


def glass_blur(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """Behind frosted glass: blurred, pixels taken from neighbours, and blurred again."""
    sigma, reach, rounds = strength
    scale = short_side(image) / SIDE
    now = _smoothed(image, sigma * scale)
    far = max(1, round(reach * scale))
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    for _ in range(int(rounds)):
        down, across = rng.integers(-far, far + 1, (2, *image.shape[:2]))
        now = now[
            np.clip(rows + down, 0, image.shape[0] - 1), np.clip(columns + across, 0, image.shape[1] - 1)
        ]
    return clipped(_smoothed(now, sigma * scale))


def motion_blur(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """The camera moves during the exposure."""
    radius, sigma = strength
    return clipped(_moved(image, radius, sigma, rng.uniform(-45, 45), short_side(image) / SIDE))


def zoom_blur(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """The camera moves towards the scene: the mean of ever closer crops, and the image once more."""
    end, step = strength
    zooms = 1 + np.arange(0, end - 1e-9, step)
    total = image.astype(np.float64) + sum(_zoomed(image, zoom) for zoom in zooms)
    return clipped(total / (len(zooms) + 1))


def snow(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """Flakes blown across a whitened scene, from both sides."""
    mean, spread, zoom, least, radius, sigma, keep = strength
    scale = short_side(image) / SIDE
    flakes = _zoomed(rng.normal(mean, spread, image.shape[:2]), max(1.0, zoom * scale))
    flakes = np.clip(np.where(flakes < least, 0.0, flakes), 0.0, 1.0)
    blown = _moved(flakes, radius, sigma, rng.uniform(-135, -45), scale)[..., None]
    pixels = image / 255
    white = np.maximum(pixels, 1.5 * grey_of(image)[..., None] / 255 + 0.5)
    scene = keep * pixels + (1 - keep) * white
    return clipped(255 * (scene + blown + blown[::-1, ::-1]))


def frost(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """Ice on the window. Its veins are the ridges of smooth noise, not photographs as in the benchmark."""
    keep, ice = strength
    ridges = 1 - np.abs(2 * _clouds(image.shape[0], image.shape[1], 1.7, rng) - 1)
    grain = _clouds(image.shape[0], image.shape[1], 1.2, rng)
    crystals = (0.75 * ridges**3 + 0.25 * grain)[..., None] * np.array([0.88, 0.95, 1.0])
    return clipped(keep * image + ice * 255 * crystals)


def fog(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """Clouds before the scene."""
    thick, decay = strength
    pixels = image / 255
    brightest = max(float(pixels.max()), 1 / 255)
    hazy = pixels + thick * _clouds(image.shape[0], image.shape[1], decay, rng)[..., None]
    return clipped(255 * hazy * brightest / (brightest + thick))


def brightness(image: PixelArray, added: float, rng: Rng) -> PixelArray:
    """Overexposure: the value of every colour (the V of HSV) grows, its hue and saturation stay."""
    value = image.max(axis=2, keepdims=True) / 255
    colour = np.where(value > 0, image / np.maximum(255 * value, 1), 1.0)
    return clipped(255 * colour * np.minimum(value + added, 1.0))


def elastic_transform(image: PixelArray, strength: Strength, rng: Rng) -> PixelArray:
    """The image on a rubber sheet: a random affine map, then smooth waves (long ones first, then short)."""
    wave, smooth, affine = strength
    side = short_side(image) * 244 / SIDE  # the benchmark's constants are multiples of 244
    height, width = image.shape[:2]
    centre, third = np.array([height, width]) / 2, short_side(image) / 3
    corners = centre + third * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moved = corners + rng.uniform(-affine * side, affine * side, corners.shape)
    waves = [wave * side * _smoothed(rng.uniform(-1, 1, (height, width)), smooth * side) for _ in range(2)]
    matrix = np.linalg.lstsq(np.c_[moved, np.ones(3)], corners, rcond=None)[0]
    places = np.stack([*np.mgrid[:height, :width], np.ones((height, width))], axis=-1) @ matrix
    return clipped(_sampled(image, places[..., 0] + waves[0], places[..., 1] + waves[1]))


def pixelate(image: PixelArray, share: float, rng: Rng) -> PixelArray:
    """Shown much larger than it was stored."""
    scale = share * min(1.0, SIDE / short_side(image))
    height, width = image.shape[:2]
    small = max(1, int(width * scale)), max(1, int(height * scale))
    picture = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.asarray(picture.resize((width, height), Image.Resampling.BOX))


IMAGENET_C: dict[str, Corruption] = {
    f"imagenet-c-like/{name}": corruption
    for name, corruption in {
        "gaussian_noise": graded(filters.gaussian_noise, 0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": graded(filters.shot_noise, 60.0, 25.0, 12.0, 5.0, 3.0),
        "impulse_noise": graded(impulse_noise, 0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": graded(defocus_blur, (3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": graded(glass_blur, (0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": graded(motion_blur, (10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": graded(zoom_blur, (0.11, 0.01), (0.16, 0.01), (0.21, 0.02), (0.26, 0.02), (0.31, 0.03)),
        "snow": graded(
            snow,
            (0.1, 0.3, 3.0, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2.0, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4.0, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "frost": graded(frost, (1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        "fog": graded(fog, (1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
        "brightness": graded(brightness, 0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": graded(filters.contrast, 0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": graded(
            elastic_transform,
            (2.0, 0.7, 0.1),
            (2.0, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        ),
        "pixelate": graded(pixelate, 0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": graded(filters.jpeg, 25, 18, 15, 10, 7),
    }.items()
}
"""The fifteen, in the order of the benchmark: noise, blur, weather, digital."""


def _convolved(image: NDArray[np.generic], kernel: Floats) -> Floats:
    """Every channel with a kernel of odd sides, made to sum to one; the image goes on as in a mirror."""
    down, across = kernel.shape[0] // 2, kernel.shape[1] // 2
    values = np.asarray(image, np.float64).reshape(*image.shape[:2], -1)
    padded = np.pad(values, ((down, down), (across, across), (0, 0)), mode="symmetric")
    shape = padded.shape[0] + 2 * down, padded.shape[1] + 2 * across
    spectrum = np.fft.rfft2(kernel / kernel.sum(), shape)[..., None]
    full = np.fft.irfft2(np.fft.rfft2(padded, shape, axes=(0, 1)) * spectrum, shape, axes=(0, 1))
    part = full[2 * down : 2 * down + image.shape[0], 2 * across : 2 * across + image.shape[1]]
    return np.asarray(part.reshape(image.shape))


def _smoothed(image: NDArray[np.generic], sigma: float) -> Floats:
    """By a Gaussian, up to three times its width."""
    reach = max(1, int(np.ceil(3 * sigma)))
    bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(sigma, 1e-6)) ** 2)
    return _convolved(_convolved(image, bell[:, None]), bell[None])


def _moved(image: NDArray[np.generic], radius: float, sigma: float, angle: float, scale: float) -> Floats:
    """Blurred along a line to one side, weights falling like a bell."""
    reach = max(1, round(2 * radius * scale))
    steps = np.arange(reach + 1.0)
    weights = np.exp(-0.5 * (steps / max(sigma * scale, 1e-6)) ** 2)
    return moved(image, -steps, weights, np.deg2rad(angle), beyond="symmetric")


def _zoomed(image: NDArray[np.generic], zoom: float) -> Floats:
    """The middle of the image, enlarged to its size."""
    height, width = image.shape[:2]
    left, top = width * (1 - 1 / zoom) / 2, height * (1 - 1 / zoom) / 2
    box = (left, top, width - left, height - top)
    planes = np.asarray(image, np.float32).reshape(height, width, -1)
    enlarged = [
        np.asarray(
            Image.fromarray(planes[..., i]).resize((width, height), Image.Resampling.BILINEAR, box=box)
        )
        for i in range(planes.shape[2])
    ]
    return np.stack(enlarged, axis=2).reshape(image.shape).astype(np.float64)


def _clouds(height: int, width: int, decay: float, rng: Rng) -> Floats:
    """Noise from coarse to fine, each layer twice as fine and `decay` times as weak, from 0 to 1."""
    total = np.zeros((height, width))
    for layer in range(int(np.ceil(np.log2(max(height, width, 2))))):
        points = min(2 ** (layer + 1) + 1, 2 * max(height, width))
        noise = Image.fromarray(rng.uniform(-1, 1, (points, points)).astype(np.float32))
        total += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC)) / decay**layer
    low, high = total.min(), total.max()
    return (total - low) / (high - low) if high > low else np.full_like(total, 0.5)


def _sampled(image: PixelArray, down: Floats, across: Floats) -> Floats:
    """The image at places between its pixels; outside it goes on as in a mirror."""
    corners, parts = [], []
    for places, size in ((down, image.shape[0]), (across, image.shape[1])):
        folded = np.abs((places + 0.5) % (2 * size) - size)  # distance from the far edge of the mirrored pair
        inside = np.clip(size - folded - 0.5, 0, size - 1)
        low = np.minimum(inside.astype(int), max(size - 2, 0))
        corners.append((low, np.minimum(low + 1, size - 1)))
        parts.append((inside - low)[..., None])
    (top, bottom), (left, right) = corners
    upper = image[top, left] * (1 - parts[1]) + image[top, right] * parts[1]
    lower = image[bottom, left] * (1 - parts[1]) + image[bottom, right] * parts[1]
    return np.asarray(upper * (1 - parts[0]) + lower * parts[0])
