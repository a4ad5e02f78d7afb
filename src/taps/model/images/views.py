"""One image → N views: a centre crop, and random crops of the original."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from taps.errors import ImageError, SettingsError
from taps.model.images.augmix import augmix as mix_views
from taps.model.images.geometry import Boxes, Flips, Framing, sample_crops, sample_crops_of, sample_generator
from taps.model.images.tensor import cpu_views, device_views
from taps.types import PixelArray

__all__ = ["BACKENDS", "make_views", "make_views_of", "sample_crops", "sample_generator"]

BACKENDS = ("tensor", "pillow")


def make_views(
    image: PixelArray,
    *,
    views: int,
    size: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
    backend: str = "tensor",
    augmix: bool = False,
    resize: str = "shortest",
    interpolation: str = "bicubic",
) -> Tensor:
    """Make the views of one image.

    View 0 is the image as the model expects it: short side to `size` and centre crop, or squashed into the
    square. The others are random resized crops of the original (bilinear), every other one mirrored. Both
    backends draw the same crops.

    Args:
        image: Pixels H×W×3, uint8, as `taps.model.images.decode.load_image` gives them.
        views: How many, view 0 included.
        size: Side of a view in pixels.
        generator: CPU generator of all randomness, see `sample_generator`.
        device: Of the views; with `backend="tensor"` they are also made there.
        backend: "tensor" (fast) or "pillow" (reference).
        augmix: Mix views 1.. with mild distortions of themselves; slow, made by Pillow.
        resize: How view 0 becomes a square: "shortest" or "squash".
        interpolation: View 0's filter, "bicubic" or "bilinear".

    Returns:
        [views, 3, size, size], not yet normalised: uint8, or with `augmix` float32 on the same 0..255 scale.

    >>> image = np.full((30, 40, 3), 7, dtype=np.uint8)
    >>> made = make_views(image, views=4, size=8, generator=sample_generator(seed=0, step=0))
    >>> made.shape, made.dtype, int(made.min()), int(made.max())
    (torch.Size([4, 3, 8, 8]), torch.uint8, 7, 7)
    """
    (made,) = make_views_of(
        [image],
        [generator],
        views=views,
        size=size,
        device=device,
        backend=backend,
        augmix=augmix,
        resize=resize,
        interpolation=interpolation,
    )
    return made


def make_views_of(
    images: Sequence[PixelArray],
    generators: Sequence[torch.Generator],
    *,
    views: int,
    size: int,
    device: torch.device | str = "cpu",
    backend: str = "tensor",
    augmix: bool = False,
    resize: str = "shortest",
    interpolation: str = "bicubic",
) -> list[Tensor]:
    """`make_views` of several images of any sizes, each with its own generator; on CUDA by one launch."""
    for image in images:
        _check(image, views, size, backend)
    # torch takes neither read-only nor reversed arrays
    images = [np.require(image, requirements=["C", "W"]) for image in images]
    device, framing = torch.device(device), Framing(size, resize, interpolation)
    boxes, flips = sample_crops_of([image.shape[:2] for image in images], views - 1, generators)
    if backend == "tensor" and device.type != "cpu":
        made = device_views(images, boxes, flips, framing, device)
    else:
        make = cpu_views if backend == "tensor" else pillow_views
        made = [make(*each, framing).to(device) for each in zip(images, boxes, flips, strict=True)]
    if augmix:
        pairs = zip(made, generators, strict=True)
        made = [torch.cat([own[:1].float(), mix_views(own[1:], generator)]) for own, generator in pairs]
    return made


def pillow_views(image: PixelArray, boxes: Boxes, flips: Flips, framing: Framing) -> Tensor:
    """View 0, then each box cut, resized (bilinear) and flipped: [1 + count, 3, size, size], uint8.

    The reference that the other backends are measured against.
    """
    whole, size = Image.fromarray(image), framing.size
    crops = np.empty((len(boxes), size, size, 3), dtype=np.uint8)
    for view, (top, left, height, width), flip in zip(crops, boxes.tolist(), flips.tolist(), strict=True):
        crop = whole.crop((left, top, left + width, top + height))
        pixels = np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))
        view[:] = pixels[:, ::-1] if flip else pixels
    return torch.cat([framing.view(image)[None], torch.from_numpy(crops).permute(0, 3, 1, 2)])


def _check(image: PixelArray, views: int, size: int, backend: str) -> None:
    if views < 1 or size < 1:
        raise SettingsError(f"views={views} and size={size} must both be at least 1.")
    if backend not in BACKENDS:
        raise SettingsError(f"backend={backend!r} is unknown; use one of {', '.join(BACKENDS)}.")
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise ImageError(f"{image.shape} {image.dtype} is not H×W×3 uint8; pass it through load_image first.")
