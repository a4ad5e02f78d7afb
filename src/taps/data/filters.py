"""Corruptions of our own: what cameras, transmission and artists do to images.

Each is a pure function of pixels, severity (1 to 5) and a random generator, written for images of any size;
lengths such as a blur's radius grow with the short side, so that a small copy of a picture is hurt as much.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from taps.types import PixelArray

Rng = np.random.Generator
Corruption = Callable[[PixelArray, int, Rng], PixelArray]


def gaussian_noise(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Noise of a sensor in little light."""
    spread = (0.06, 0.10, 0.15, 0.21, 0.30)[severity - 1] * 255
    return clipped(image + rng.normal(0.0, spread, image.shape))


def shot_noise(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Noise of counted photons: the fewer arrive, the rougher."""
    photons = (80.0, 35.0, 16.0, 8.0, 4.0)[severity - 1]
    return clipped(rng.poisson(image / 255.0 * photons) / photons * 255.0)


def gaussian_blur(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Out of focus."""
    radius = (0.006, 0.010, 0.016, 0.023, 0.032)[severity - 1] * short_side(image)
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))


def motion_blur(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """The camera moves during the exposure, in a random direction."""
    length = max(2, round((0.04, 0.07, 0.10, 0.14, 0.19)[severity - 1] * short_side(image)))
    angle = rng.uniform(0.0, np.pi)
    steps = np.linspace(-length / 2, length / 2, length + 1)
    margin = length // 2 + 1
    padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)), mode="edge").astype(np.float32)
    height, width = image.shape[:2]
    total = np.zeros(image.shape, np.float32)
    for step in steps:
        top, left = margin + round(step * np.sin(angle)), margin + round(step * np.cos(angle))
        total += padded[top : top + height, left : left + width]
    return clipped(total / len(steps))


def contrast(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Fog, or a faded print: everything moves towards the mean."""
    keep = (0.55, 0.42, 0.30, 0.20, 0.12)[severity - 1]
    mean = image.mean(axis=(0, 1), keepdims=True)
    return clipped(mean + (image - mean) * keep)


def brightness(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Overexposure."""
    return clipped(image + (0.12, 0.22, 0.32, 0.42, 0.52)[severity - 1] * 255.0)


def jpeg(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Compressed too far."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=(25, 16, 10, 6, 3)[severity - 1])
    return np.asarray(Image.open(buffer).convert("RGB"))


def pixelate(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Shown much larger than it was stored."""
    height, width = image.shape[:2]
    blocks = max(2, round(short_side(image) * (0.5, 0.38, 0.28, 0.20, 0.14)[severity - 1]))
    scale = min(1.0, blocks / short_side(image))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    picture = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.asarray(picture.resize((width, height), Image.Resampling.NEAREST))


def sketch(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """A pencil drawing: grey divided by its own blur leaves lines on white; heavier means fainter."""
    grey = grey_of(image)
    radius = 0.025 * short_side(image) + 0.5
    blurred = np.asarray(Image.fromarray(clipped(grey)).filter(ImageFilter.GaussianBlur(radius)), np.float32)
    dodge = np.minimum(1.0, (grey + 8.0) / (blurred + 8.0))
    edges = np.minimum(1.0, edges_of(grey) / 300.0)
    lines = np.minimum(dodge, 1.0 - 0.8 * edges)
    strength = (2.2, 1.8, 1.4, 1.0, 0.7)[severity - 1]
    paper = 255.0 * lines**strength
    return clipped(np.repeat(paper[..., None], 3, axis=2))


def cartoon(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Flat areas of few colours with dark outlines."""
    size = 3 if severity < 3 else 5
    smooth = (
        Image.fromarray(image).filter(ImageFilter.MedianFilter(size)).filter(ImageFilter.MedianFilter(size))
    )
    colours = (24, 16, 12, 8, 5)[severity - 1]
    flat = smooth.quantize(colours, dither=Image.Dither.NONE).convert("RGB")
    outline = edges_of(grey_of(np.asarray(smooth))) > (150, 130, 110, 95, 80)[severity - 1]
    return np.where(outline[..., None], np.uint8(20), np.asarray(flat))


def invert(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """The negative, at every severity."""
    return np.asarray(255 - image, np.uint8)


def greyscale(image: PixelArray, severity: int, rng: Rng) -> PixelArray:
    """Colour washed out: a fifth of it at severity 1, all at severity 5."""
    grey = np.asarray(ImageOps.grayscale(Image.fromarray(image)), np.float32)[..., None]
    return clipped(image + (grey - image) * (severity / 5))


FILTERS: dict[str, Corruption] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        gaussian_blur,
        motion_blur,
        contrast,
        brightness,
        jpeg,
        pixelate,
        sketch,
        cartoon,
        invert,
        greyscale,
    )
}
"""Each by its name. `mix` draws from these."""


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
