"""The views that the vision tower learns from, each judged by the teacher once."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field

import torch
from augment import Mixer, crop_transforms, mild, sample, stylise
from data import CANVAS, SHARES, Images
from isolate import (
    caption_directions,
    good,
    isolated,
    label_directions,
    object_masks,
    object_transforms,
    whole_transforms,
)
from losses import amp
from model import PocketConfig
from teachers import FINE_CHANNELS, Lite2
from torch import Tensor


@dataclass(frozen=True)
class Diet:
    """What a stage of the training sees."""

    shares: dict[str, float]  # of each source in a batch
    views: dict[str, int]  # kept of each image
    mixed: float = 0.5  # of the views of labelled images, with another image
    isolated: float = 0.0  # of all views, the object alone
    styled: float = 0.4  # of the samples, as drawings


DIETS = {
    "photos": Diet(SHARES, dict.fromkeys(SHARES, 16)),
    # Six images of each of 1,000 classes hold more kinds of things than the other 85,000 together.
    "objects": Diet(
        {"tiny": 0.36, "in6": 0.32, "fine": 0.10, "flickr": 0.22},
        {"tiny": 8, "in6": 72, "fine": 12, "flickr": 32},
        mixed=0.27,
        isolated=0.45,
        styled=0.6,
    ),
}


@dataclass
class Source:
    """Where the views of one source of images lie in the bank."""

    first: int  # slot
    images: int
    views: int
    label: Tensor = field(repr=False)

    @property
    def slots(self) -> int:
        return self.images * self.views


class Bank:
    """Views of every image, as pixels for the student and as answers of the teacher.

    A view is a crop, a mixture of two, or an object taken out of its photo. Each is kept as a photo and as
    a drawing, and the teacher's answer is the photo's.
    """

    def __init__(
        self,
        images: dict[str, Images],
        named: Tensor,
        teacher: Lite2,
        diet: Diet,
        args: Namespace,
        device: torch.device,
    ) -> None:
        """`named`: what living things the captions of each captioned image name, in columns."""
        self.sources: dict[str, Source] = {}
        total, side = 0, PocketConfig().image_size
        for name in SHARES:
            if name in images:
                source = Source(total, len(images[name]), diet.views[name], images[name].label)
                self.sources[name] = source
                total += source.slots
        grid = args.teacher_side // 16
        byte = {"dtype": torch.uint8, "device": device}
        half = {"dtype": torch.float16, "device": device}
        self.photo = torch.empty(total, 3, side, side, **byte)
        self.drawn = torch.empty(total, 3, side, side, **byte)
        self.logits = torch.empty(total, len(teacher.fc.bias), **half)
        self.features = torch.empty(total, teacher.fc.in_features, **half)
        self.places = torch.empty(total, FINE_CHANNELS, grid, grid, **half)
        self.label = torch.empty(total, dtype=torch.long, device=device)
        self.whole = torch.ones(total, dtype=torch.bool, device=device)
        row = []
        pixels = torch.cat([images[n].pixels for n in self.sources])
        size = torch.cat([images[n].size for n in self.sources])
        label = torch.cat([images[n].label for n in self.sources])
        before = 0
        for source in self.sources.values():
            row.append(before + torch.arange(source.slots, device=device) // source.views)
            before += source.images
        rows_of = torch.cat(row)
        self.label[:] = label[rows_of]
        kind = torch.rand(total, device=device)
        self.whole[:] = (kind >= diet.mixed) | (self.label < 0)
        self.alone = alone = torch.zeros(total, dtype=torch.bool, device=device)
        masks = None
        if diet.isolated:
            masks, usable = find_objects(teacher, pixels, size, label, named, args.chunk // 2)
            alone[:] = (kind >= 1 - diet.isolated) & usable[rows_of]
            print(f"{usable.float().mean():.2f} of the images have an object to take out", flush=True)
        # Shuffled, so that partners in a mix come from anywhere.
        for slots in torch.randperm(total, device=device).split(args.chunk):
            slots = torch.cat([slots[~alone[slots]], slots[alone[slots]]])
            rows, few = rows_of[slots], int(alone[slots].sum())
            cut = len(slots) - few
            theta = crop_transforms(size[rows], CANVAS, args.smallest_crop)
            canvas = pixels[rows].float() / 255
            mix = Mixer(len(rows), cut, device, share=1.0)
            mix.keep_whole(self.whole[slots])
            large = mix.pixels(sample(canvas, theta, args.teacher_side))
            small = mix.pixels(sample(canvas, theta, side)).float()
            drawn = stylise(small)
            small = mild(small)
            if few and masks is not None:
                mask = masks[rows[cut:]].float() / 255
                theta = object_transforms(mask, size[rows[cut:]], CANVAS)
                large[cut:], small[cut:], drawn[cut:] = isolated(
                    canvas[cut:], mask, theta, size[rows[cut:]], args.teacher_side, side
                )
            with torch.no_grad(), amp(device):
                places, features = teacher.places_and_features(
                    large.contiguous(memory_format=torch.channels_last)
                )
                self.logits[slots] = teacher.fc(features).half()
            self.features[slots] = features.half()
            self.places[slots] = places.half()
            self.photo[slots] = (small * 255).round().byte()
            self.drawn[slots] = (drawn * 255).round().byte()


def find_objects(
    teacher: Lite2, pixels: Tensor, size: Tensor, label: Tensor, named: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """A mask of every image, in bytes, and whether it can be used."""

    def whole(rows: Tensor) -> Tensor:
        return sample(pixels[rows].float() / 255, whole_transforms(size[rows], CANVAS), 256)

    direction = label_directions(teacher, label.clamp_min(0))
    something = label >= 0
    captioned = (label < 0).nonzero().flatten()
    if len(captioned):
        with torch.no_grad(), amp(pixels.device):
            features = torch.cat([teacher.features(whole(rows)) for rows in captioned.split(chunk)])
        named = named[: len(captioned)]
        direction[captioned] = caption_directions(features.float(), named)
        something[captioned] = named.any(1)
    masks = []
    for rows in torch.arange(len(pixels), device=pixels.device).split(chunk):
        found = object_masks(teacher, whole(rows), direction[rows])
        masks.append((found * 255).round().byte())
    found = torch.cat(masks)
    decided = torch.cat([good(part.float() / 255) for part in found.split(chunk)])
    return found, decided & something
