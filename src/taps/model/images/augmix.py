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

BILINEAR = Image.Resampling.BILINEAR
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
    chains, kinds = np.zeros(pixels.shape, dtype=np.float64), list(DISTORTIONS.values())
    for weight in weights:
        image = original
        for which in rng.integers(len(kinds), size=rng.integers(1, DEEPEST + 1)):
            image = kinds[which](image, rng)
        chains += weight * np.asarray(image)
    mixed: np.ndarray = (keep * pixels + (1 - keep) * chains).astype(np.float32)  # type: ignore[type-arg]
    return mixed


def _strength(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.1, 1) * STRENGTH)


def _signed(rng: np.random.Generator, value: float) -> float:
    return value if rng.random() < 0.5 else -value


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=BILINEAR)


def _pixels(rng: np.random.Generator, side: int) -> float:
    return _signed(rng, int(_strength(rng) * side / 3))


DISTORTIONS: dict[str, Distortion] = {
    "autocontrast": lambda image, rng: ImageOps.autocontrast(image),
    "equalize": lambda image, rng: ImageOps.equalize(image),
    # Keeps the high 4 bits, fewer at higher strengths.
    "posterize": lambda image, rng: ImageOps.posterize(image, 4 - int(_strength(rng) * 4)),
    # Whole degrees, up to 30.
    "rotate": lambda image, rng: image.rotate(_signed(rng, int(_strength(rng) * 30)), BILINEAR),
    "solarize": lambda image, rng: ImageOps.solarize(image, 256 - int(_strength(rng) * 256)),
    "shear_x": lambda image, rng: _affine(image, 1, _signed(rng, _strength(rng) * 0.3), 0, 0, 1, 0),
    "shear_y": lambda image, rng: _affine(image, 1, 0, 0, _signed(rng, _strength(rng) * 0.3), 1, 0),
    # Whole pixels, up to a third of the side.
    "translate_x": lambda image, rng: _affine(image, 1, 0, _pixels(rng, image.width), 0, 1, 0),
    "translate_y": lambda image, rng: _affine(image, 1, 0, 0, 0, 1, _pixels(rng, image.height)),
}
"""What a chain is made of, each up to its full range × strength."""
