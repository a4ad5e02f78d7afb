"""Stage 4: average snapshots, and take out of the tower what all its answers have in common.

Whatever is shown, part of the answer is the same, the more so for drawings; a name that happens to lie on
that side is then said of everything. The mean answer, over photos of all 1,000 classes and the same objects
cut out, drawn as clip art and in lines, is subtracted: it goes into the bias of the last layer norm.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from augment import centre_transforms, sample
from data import CANVAS, Images
from drawings import clip_art, cut_out, line_drawing
from isolate import (
    LARGE,
    good,
    label_directions,
    object_masks,
    object_transforms,
    sample_masks,
    whole_transforms,
)
from model import MEAN, STD, PocketConfig, Vision
from teachers import Lite2
from torch import Tensor
from torch.nn import functional as F


def kinds(pixels: Tensor, size: Tensor, label: Tensor, teacher: Lite2) -> list[Tensor]:
    """Photo, cut-out, clip art and line drawing of the same images."""
    canvas = pixels.float() / 255
    whole = sample(canvas, whole_transforms(size, CANVAS), 256)
    masks = object_masks(teacher, whole, label_directions(teacher, label))
    keep = good(masks)
    canvas, masks, size = canvas[keep], masks[keep], size[keep]
    theta = object_transforms(masks, size, CANVAS)
    x, mask = sample(canvas, theta, LARGE), sample_masks(masks, theta, size, CANVAS, LARGE)
    photo = sample(canvas, centre_transforms(size, CANVAS), LARGE // 2)
    return [photo, F.avg_pool2d(cut_out(x, mask), 2), clip_art(x, mask), line_drawing(x, mask)]


@torch.inference_mode()
def mean_answer(visual: Vision, views: Tensor) -> Tensor:
    mean, std = (torch.tensor(t, device=views.device).view(1, 3, 1, 1) for t in (MEAN, STD))
    return torch.cat([visual.trunk((part - mean) / std) for part in views.split(256)]).mean(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="what prepare.py wrote, and teacher.pt")
    parser.add_argument(
        "--vision",
        type=Path,
        nargs="+",
        required=True,
        help="files that vision.py wrote; their mean is taken",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.time()
    several = [torch.load(path, weights_only=True, map_location="cpu") for path in args.vision]
    stored = several[-1]
    for key in stored["ema"]:
        stored["ema"][key] = sum(s["ema"][key].float() for s in several).div(len(several)).half()
    fields = {k: stored["config"][k] for k in PocketConfig.__dataclass_fields__}
    visual = Vision(PocketConfig(**fields), 0.0).to(device).eval()
    visual.load_state_dict({k.removeprefix("visual."): v.float() for k, v in stored["ema"].items()})
    weights = torch.load(args.data / "teacher.pt", weights_only=True, map_location="cpu")
    teacher = Lite2(len(weights["fc.bias"])).to(device).eval()
    teacher.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in weights.items()})
    images = Images([args.data / "images-in6.npz"], device, 0, 1)
    views: list[list[Tensor]] = []
    for rows in torch.randperm(len(images), device=device)[: args.images].split(40):
        views.append(kinds(images.pixels[rows], images.size[rows], images.label[rows], teacher))
        print(f"{time.time() - began:4.0f}s {len(views)} batches", end="\r", flush=True)
    with torch.no_grad():
        means = torch.stack([mean_answer(visual, torch.cat(kind)) for kind in zip(*views, strict=True)])
    stored["ema"]["visual.ln_post.bias"] = (visual.ln_post.bias.detach() - means.mean(0)).half().cpu()
    torch.save(stored, args.out)
    common = F.normalize(means @ visual.proj.detach(), dim=1)
    cosines = (common @ common.t()).cpu().numpy().round(2)
    print(f"\nphoto, cut-out, clip art, lines: cosines of the mean answers\n{cosines}")


if __name__ == "__main__":
    main()
