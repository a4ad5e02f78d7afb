"""AugMix: a view mixed with three short chains of mild distortions of itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

CHAINS = 3
DEEPEST = 3
"""Longest chain; each has 1 to `DEEPEST` distortions."""
STRENGTH = 0.1
"""Severity 1 of 10: the largest share of a distortion's full range."""

Distortion = Callable[[Image.Image, np.random.Generator], Image.Image]


def augmix(views: Tensor, generator: torch.Generator) -> Tensor:
    """Mix each view [count, 3, size, size], uint8, with distorted copies of itself.

    Returns:
        The same shape, float32, still on the 0..255 scale: mixing commutes with the model's normalisation.
    """
    seed = int(torch.randint(1 << 62, (1,), generator=generator))
    rng = np.random.default_rng(seed)
    pixels = views.permute(0, 2, 3, 1).cpu().numpy()
    mixed = (
        np.stack([mix_view(np.ascontiguousarray(each), rng) for each in pixels]) if len(pixels) else pixels
    )
    return torch.from_numpy(mixed.astype(np.float32)).permute(0, 3, 1, 2).to(views.device)


def mix_view(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:  # type: ignore[type-arg]
    """Mix one view H×W×3: chains weighted by Dirichlet(1, 1, 1), then kept or mixed by Beta(1, 1)."""
    original = Image.fromarray(pixels)
    weights, keep = rng.dirichlet(np.ones(CHAINS)), rng.beta(1, 1)
    chains = np.zeros(pixels.shape, dtype=np.float64)
    for weight in weights:
        image = original
        for which in rng.integers(len(DISTORTIONS), size=rng.integers(1, DEEPEST + 1)):
            image = DISTORTIONS[which](image, rng)
        chains += weight * np.asarray(image)
    mixed: np.ndarray = (keep * pixels + (1 - keep) * chains).astype(np.float32)  # type: ignore[type-arg]
    return mixed


def _strength(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.1, 1) * STRENGTH)


def _signed(rng: np.random.Generator, value: float) -> float:
    return value if rng.random() < 0.5 else -value


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


def autocontrast(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Stretch each channel to the full range."""
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Flatten each channel's histogram."""
    return ImageOps.equalize(image)


def posterize(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Keep the high 4 bits, fewer at higher strengths."""
    return ImageOps.posterize(image, 4 - int(_strength(rng) * 4))


def rotate(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Turn by up to 30° × strength, whole degrees."""
    return image.rotate(_signed(rng, int(_strength(rng) * 30)), resample=Image.Resampling.BILINEAR)


def solarize(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Invert the brightest pixels."""
    return ImageOps.solarize(image, 256 - int(_strength(rng) * 256))


def shear_x(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Shear sideways by up to 0.3 × strength."""
    return _affine(image, 1, _signed(rng, _strength(rng) * 0.3), 0, 0, 1, 0)


def shear_y(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Shear upwards by up to 0.3 × strength."""
    return _affine(image, 1, 0, 0, _signed(rng, _strength(rng) * 0.3), 1, 0)


def translate_x(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Shift sideways by up to a third of the side × strength, whole pixels."""
    return _affine(image, 1, 0, _signed(rng, int(_strength(rng) * image.width / 3)), 0, 1, 0)


def translate_y(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Shift upwards by up to a third of the side × strength, whole pixels."""
    return _affine(image, 1, 0, 0, 0, 1, _signed(rng, int(_strength(rng) * image.height / 3)))


DISTORTIONS: tuple[Distortion, ...] = (
    autocontrast,
    equalize,
    posterize,
    rotate,
    solarize,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)
