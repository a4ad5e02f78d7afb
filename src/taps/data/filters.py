"""Corruptions of our own: noise, blur, compression and drawing styles.

Each is a pure function of pixels, a strength and a random generator; `graded` gives it the strengths of the
severities 1 to 5. Lengths such as a blur's radius are relative to the short side, so that a small copy of a
picture is corrupted as much.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from taps.types import PixelArray

Floats = NDArray[np.float64]
Rng = np.random.Generator
Corruption = Callable[[PixelArray, int, Rng], PixelArray]
"""An image, a severity from 1 to 5 and a generator → the image corrupted."""
S = TypeVar("S")


def graded(function: Callable[[PixelArray, S, Rng], PixelArray], *strengths: S) -> Corruption:
    """A corruption by severity, from one by strength and the strength of each severity."""
    return lambda image, severity, rng: function(image, strengths[severity - 1], rng)


def gaussian_noise(image: PixelArray, spread: float, rng: Rng) -> PixelArray:
    """Noise of a sensor in little light."""
    return clipped(image + rng.normal(0.0, spread * 255, image.shape))


def shot_noise(image: PixelArray, photons: float, rng: Rng) -> PixelArray:
    """Noise of counted photons: the fewer arrive, the rougher."""
    return clipped(rng.poisson(image / 255.0 * photons) / photons * 255.0)


def gaussian_blur(image: PixelArray, radius: float, rng: Rng) -> PixelArray:
    """Out of focus."""
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius * short_side(image))))


def motion_blur(image: PixelArray, share: float, rng: Rng) -> PixelArray:
    """The camera moves during the exposure, in a random direction."""
    length = max(2, round(share * short_side(image)))
    angle = rng.uniform(0.0, np.pi)
    steps = np.linspace(-length / 2, length / 2, length + 1)
    return clipped(moved(image, steps, np.ones(len(steps)), angle, beyond="edge"))


def contrast(image: PixelArray, keep: float, rng: Rng) -> PixelArray:
    """Fog, or a faded print: everything moves towards the mean."""
    mean = image.mean(axis=(0, 1), keepdims=True)
    return clipped(mean + (image - mean) * keep)


def brightness(image: PixelArray, added: float, rng: Rng) -> PixelArray:
    """Overexposure."""
    return clipped(image + added * 255.0)


def jpeg(image: PixelArray, quality: int, rng: Rng) -> PixelArray:
    """Compressed too far."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=quality)
    return np.asarray(Image.open(buffer).convert("RGB"))


def pixelate(image: PixelArray, share: float, rng: Rng) -> PixelArray:
    """Shown much larger than it was stored."""
    height, width = image.shape[:2]
    blocks = max(2, round(short_side(image) * share))
    scale = min(1.0, blocks / short_side(image))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    picture = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.asarray(picture.resize((width, height), Image.Resampling.NEAREST))


def sketch(image: PixelArray, strength: float, rng: Rng) -> PixelArray:
    """A pencil drawing: grey divided by its own blur leaves lines on white; heavier means fainter."""
    grey = grey_of(image)
    radius = 0.025 * short_side(image) + 0.5
    blurred = np.asarray(Image.fromarray(clipped(grey)).filter(ImageFilter.GaussianBlur(radius)), np.float32)
    dodge = np.minimum(1.0, (grey + 8.0) / (blurred + 8.0))
    edges = np.minimum(1.0, edges_of(grey) / 300.0)
    lines = np.minimum(dodge, 1.0 - 0.8 * edges)
    return clipped(np.repeat(255.0 * lines[..., None] ** strength, 3, axis=2))


def cartoon(image: PixelArray, strength: tuple[int, int, int], rng: Rng) -> PixelArray:
    """Flat areas of few colours with dark outlines."""
    size, colours, edge = strength
    median = ImageFilter.MedianFilter(size)
    smooth = Image.fromarray(image).filter(median).filter(median)
    flat = smooth.quantize(colours, dither=Image.Dither.NONE).convert("RGB")
    outline = edges_of(grey_of(np.asarray(smooth))) > edge
    return np.where(outline[..., None], np.uint8(20), np.asarray(flat))


def invert(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """The negative, at every severity."""
    return np.asarray(255 - image, np.uint8)


def greyscale(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Colour washed out: a fifth of it at severity 1, all at severity 5."""
    grey = np.asarray(ImageOps.grayscale(Image.fromarray(image)), np.float32)[..., None]
    return clipped(image + (grey - image) * (severity / 5))


FILTERS: dict[str, Corruption] = {
    "gaussian_noise": graded(gaussian_noise, 0.06, 0.10, 0.15, 0.21, 0.30),
    "shot_noise": graded(shot_noise, 80.0, 35.0, 16.0, 8.0, 4.0),
    "gaussian_blur": graded(gaussian_blur, 0.006, 0.010, 0.016, 0.023, 0.032),
    "motion_blur": graded(motion_blur, 0.04, 0.07, 0.10, 0.14, 0.19),
    "contrast": graded(contrast, 0.55, 0.42, 0.30, 0.20, 0.12),
    "brightness": graded(brightness, 0.12, 0.22, 0.32, 0.42, 0.52),
    "jpeg": graded(jpeg, 25, 16, 10, 6, 3),
    "pixelate": graded(pixelate, 0.5, 0.38, 0.28, 0.20, 0.14),
    "sketch": graded(sketch, 2.2, 1.8, 1.4, 1.0, 0.7),
    "cartoon": graded(cartoon, (3, 24, 150), (3, 16, 130), (5, 12, 110), (5, 8, 95), (5, 5, 80)),
    "invert": invert,
    "greyscale": greyscale,
}
"""Each by its name. `mix` draws from these."""


def moved(
    image: NDArray[np.generic],
    steps: Floats,
    weights: Floats,
    angle: float,
    *,
    beyond: Literal["edge", "symmetric"],
) -> Floats:
    """The weighted mean of copies of an image [height, width, ...] that are moved along a line.

    Args:
        image: Any number of channels.
        steps: Of each copy, in pixels; to the right and down where the angle is 0 to π/2.
        weights: Of each copy.
        angle: Of the line.
        beyond: How the image goes on beyond its border: a mode of `np.pad`.
    """
    down, across = (np.rint(steps * part).astype(int) for part in (np.sin(angle), np.cos(angle)))
    margin = int(np.abs(steps).max()) + 1
    around = [(margin, margin)] * 2 + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(np.asarray(image, np.float64), around, mode=beyond)
    height, width = image.shape[:2]
    total = np.zeros(image.shape)
    for top, left, weight in zip(margin + down, margin + across, weights, strict=True):
        total += weight * padded[top : top + height, left : left + width]
    return np.asarray(total / weights.sum())


def clipped(values: NDArray[np.floating]) -> PixelArray:
    return np.asarray(np.clip(np.rint(values), 0, 255), np.uint8)


def short_side(image: PixelArray) -> int:
    height, width = image.shape[:2]
    return min(int(height), int(width))


def grey_of(image: PixelArray) -> NDArray[np.float32]:
    return image.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)


def edges_of(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sobel's measure of how fast the brightness changes, sharp to the border."""
    p = np.pad(grey, 1, mode="edge")
    across = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    down = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    return np.asarray(np.hypot(across, down), np.float32)
