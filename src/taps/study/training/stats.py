"""Collecting source statistics in one pass over a data set, which can be resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from taps.errors import DataError, ImageError, SettingsError
from taps.files import write_tensors
from taps.model.clip import Clip
from taps.model.images.views import make_views, sample_generator
from taps.model.prompts.base import Prompts, check_base, prompt_tokens
from taps.model.prompts.families import FAMILIES
from taps.model.prompts.source import RunningMoments, SourceStats, stats_from
from taps.study.training.passes import Images, in_batches, loaded_ahead, read_unfinished

log = logging.getLogger("taps")
SAVE_EVERY_S = 60.0
WHOLE = "whole"  # beside the keys of classes


class NothingReadableError(DataError):
    """No image of a set can be read."""


def collect_stats(
    clip: Clip,
    prompts: Prompts | None,
    images: Images,
    *,
    layers: Sequence[int] = (0, 1),
    per_class: bool = False,
    batch: int = 64,
    progress_file: Path | None = None,
    resume: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> SourceStats:
    """Mean and variance of the inputs of some vision blocks over a source set.

    Images that cannot be read are left out; a warning says how many.

    Args:
        clip: The frozen model.
        prompts: The prompts whose vision tokens stand in the image tower; None for none.
        images: The source set, labelled where `per_class`.
        layers: Vision blocks.
        per_class: Whether each class gets statistics of its own, too.
        batch: Images per forward.
        progress_file: Written every minute, so that a pass can be resumed.
        resume: Continue from that file.
        report: Called with images done and images in all.
    """
    check_layers(layers, clip)
    vision = None
    if prompts is not None:
        check_base(prompts, clip)
        if FAMILIES[prompts.kind].vision:  # the other families leave the image tower alone
            vision = prompt_tokens(prompts.kind, prompts.parameters).vision
    vision = None if vision is None else vision.to(clip.device)
    pass_ = Pass(clip, prompts, images, tuple(layers), per_class, batch)
    if resume and progress_file is not None:
        pass_.load(progress_file)
    saved = time.monotonic()
    rest = in_batches(range(pass_.done, len(images)), batch)
    for indices, loaded in zip(rest, loaded_ahead(rest, pass_.view), strict=True):
        pass_.add(indices, loaded, vision)
        report(pass_.done, len(images))
        if progress_file is not None and time.monotonic() - saved > SAVE_EVERY_S:
            pass_.save(progress_file)
            saved = time.monotonic()
    if not pass_.moments[WHOLE].count:
        raise NothingReadableError(f"{images.name} has no readable image; statistics need some.")
    if pass_.unreadable:
        log.warning("%d images of %s could not be read and were left out.", pass_.unreadable, images.name)
    return pass_.result()


class Pass:
    """A pass under way: the running moments of the whole set and of each class, and the images done."""

    def __init__(
        self,
        clip: Clip,
        prompts: Prompts | None,
        images: Images,
        layers: tuple[int, ...],
        per_class: bool,
        batch: int,
    ) -> None:
        if per_class and (not images.classes or None in images.labels):
            raise DataError(f"{images.name} has images without a label; statistics of classes need all.")
        self.clip, self.images, self.layers = clip, images, layers
        self.prompts = "" if prompts is None else prompts.fingerprint
        self.labels = images.labels if per_class else []
        self.done = self.unreadable = 0
        self.moments = {WHOLE: RunningMoments()}
        self.identity: dict[str, Any] = {
            "model": clip.fingerprint,
            "prompts": self.prompts,
            "data": images.name,
            "images": len(images),
            "layers": list(layers),
            "per_class": per_class,
            "batch": batch,
        }

    def view(self, index: int) -> Tensor | None:
        """View 0 of an image; None if it cannot be read."""
        try:
            pixels = self.images.image(index)
        except (ImageError, DataError):
            return None
        framing = self.clip.config.framing
        return make_views(pixels, views=1, **framing, generator=sample_generator(0, index))[0]

    @torch.no_grad()
    def add(self, indices: Sequence[int], loaded: list[Tensor | None], vision: Tensor | None) -> None:
        kept = [(index, view) for index, view in zip(indices, loaded, strict=True) if view is not None]
        self.done += len(indices)
        self.unreadable += len(indices) - len(kept)
        if not kept:
            return
        pixels = self.clip.preprocess(torch.stack([view for _, view in kept]))
        inputs = torch.stack(self.clip.image_layers(pixels, vision, self.layers), dim=1)  # [N, layers, T, C]
        self.moments[WHOLE].add(inputs)
        places: dict[int, list[int]] = {}
        for place, (index, _) in enumerate(kept if self.labels else ()):
            label = self.labels[index]
            assert label is not None
            places.setdefault(label, []).append(place)
        for label, rows in places.items():
            self.moments.setdefault(_key(label), RunningMoments()).add(inputs[rows])

    def result(self) -> SourceStats:
        names = self.images.classes
        by_class = {
            (name, list(names[:label]).count(name)): self.moments[_key(label)]
            for label, name in enumerate(names)
            if _key(label) in self.moments
        }
        return stats_from(
            self.moments[WHOLE],
            by_class,
            layers=self.layers,
            model=self.clip.fingerprint,
            prompts=self.prompts,
        )

    def save(self, path: Path) -> None:
        """Everything in full precision, so that a resumed pass ends with the same bits."""
        running = {name: part for name, part in self.moments.items() if part.count}
        tensors = {f"{name}|mean": part.mean for name, part in running.items()}
        tensors |= {f"{name}|spread": part.spread for name, part in running.items()}
        counts = {name: part.count for name, part in running.items()}
        meta = {"done": self.done, "unreadable": self.unreadable, "counts": counts}
        write_tensors(path, tensors, {"identity": self.identity, **meta})

    def load(self, path: Path) -> None:
        if not path.exists():
            return
        tensors, meta = read_unfinished(path, self.identity, "pass")
        self.done, self.unreadable = meta["done"], meta["unreadable"]
        for name, count in meta["counts"].items():
            mean, spread = (tensors[f"{name}|{part}"].to(self.clip.device) for part in ("mean", "spread"))
            self.moments.setdefault(name, RunningMoments()).merge(count, mean, spread)


def _key(label: int) -> str:
    return f"class {label}"


def parse_layers(text: str, clip: Clip) -> tuple[int, ...]:
    """Vision blocks from "0,1" or "all"."""
    if text.strip() == "all":
        return tuple(range(clip.config.vision_layers))
    try:
        layers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--layers is {text!r}; give numbers with commas between them, or all.") from None
    check_layers(layers, clip)
    return layers


def check_layers(layers: Sequence[int], clip: Clip) -> None:
    total = clip.config.vision_layers
    if clip.config.stages:
        raise SettingsError(
            f"The image tower of {clip.config.name} is made of convolutions and has no tokens to take "
            "statistics of; use a model with a vision transformer."
        )
    if not layers or len(set(layers)) < len(layers) or not all(0 <= layer < total for layer in layers):
        raise SettingsError(
            f"The blocks {list(layers)} are not different ones of 0 to {total - 1} of {clip.config.name}."
        )
