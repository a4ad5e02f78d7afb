"""Objects found in their photos and taken out of them.

Photos are cluttered; drawings, and many product photos, show one thing on an empty page. The image
teacher says where in a photo its label is; places that look alike share that answer, and the photo's own
borders sharpen it. No mask was ever drawn by hand for this.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from augment import mild, sample
from drawings import clip_art, cut_out, line_drawing
from losses import amp
from teachers import FINE_BLOCKS, Lite2
from torch import Tensor

SIDE = 64  # of a mask, over the whole picture whatever its shape
LARGE = 128  # drawings are made at this side and shrunk, so that lines can be thin


def whole_transforms(size: Tensor, canvas: int) -> Tensor:
    """The whole picture squeezed into a square, as affine maps."""
    h, w = size[:, 0].float(), size[:, 1].float()
    zero = torch.zeros_like(h)
    return torch.stack([w, zero, w - canvas, zero, h, h - canvas], dim=1).view(-1, 2, 3) / canvas


def box_mean(x: Tensor, radius: int) -> Tensor:
    return F.avg_pool2d(F.pad(x, (radius,) * 4, mode="replicate"), 2 * radius + 1, 1)


def guided(guide: Tensor, x: Tensor, radius: int, eps: float) -> Tensor:
    """Guided filter: `x` (one channel) smoothed except where a channel of the guide has a border."""
    mean = box_mean(guide, radius)
    spread = box_mean(guide * guide, radius) - mean.square()
    slope = (box_mean(guide * x, radius) - mean * box_mean(x, radius)) / (spread + eps)
    offset = box_mean(x, radius) - slope * mean
    return (box_mean(slope, radius) * guide + box_mean(offset, radius)).mean(1, keepdim=True)


def by_colour(x: Tensor, mask: Tensor) -> Tensor:
    """Log-odds of belonging to the masked part by colour alone: one Gaussian for each side."""
    pixels = x.flatten(2)
    sides = []
    for part in (mask.flatten(2), 1 - mask.flatten(2)):
        weight = part / part.sum(2, keepdim=True).clamp_min(1e-3)
        off = pixels - (pixels * weight).sum(2, keepdim=True)
        spread = (off * weight) @ off.transpose(1, 2) + 0.003 * torch.eye(3, device=x.device)
        solved = torch.linalg.solve(spread, off)
        sides.append(-0.5 * (off * solved).sum(1) - 0.5 * torch.logdet(spread)[:, None])
    return (sides[0] - sides[1]).view_as(mask)


@torch.no_grad()
def object_masks(teacher: Lite2, x: Tensor, direction: Tensor) -> Tensor:
    """Where the thing is: `[N, 1, SIDE, SIDE]` in 0..1, from whole pictures `x` of 256 pixels.

    `direction` points, among the teacher's features, to what is looked for in each.
    """
    with amp(x.device):
        y = teacher.stem(((x - 127 / 255) * (255 / 128)).contiguous(memory_format=torch.channels_last))
        places = teacher.blocks[:FINE_BLOCKS](y)
        seen = teacher.head(teacher.blocks[FINE_BLOCKS:](places)).float()
    places = places.float()
    n, _, grid, _ = places.shape
    heat = torch.einsum("nchw,nc->nhw", seen, direction)[:, None]
    heat = F.interpolate(heat, size=(grid, grid), mode="bilinear").flatten(1)
    heat = (heat - heat.mean(1, keepdim=True)) / (heat.std(1, keepdim=True) + 1e-3)
    # Places share what they know with places that look alike, have the same colour and lie near.
    look = F.normalize((places - places.mean((2, 3), keepdim=True)).flatten(2), dim=1)
    tint = F.interpolate(x, size=(grid, grid), mode="area").flatten(2).transpose(1, 2)
    axis = torch.arange(grid, device=x.device) / grid
    where = torch.cartesian_prod(axis, axis)
    alike = look.transpose(1, 2) @ look / 0.25 - torch.cdist(tint, tint).square() / 0.06
    walk = F.softmax(alike - torch.cdist(where, where).square() / 0.08, dim=2)
    rim = (where.sub(axis[-1] / 2).abs().amax(1) > axis[-1] / 2 - 1e-3).float()
    start = torch.tanh(heat) - 0.5 * rim  # the border of a photo is background as a rule
    found = start
    for _ in range(12):
        found = 0.85 * (walk @ found[..., None])[..., 0] + 0.15 * start
    found = found - (found.amax(1, keepdim=True) + found.amin(1, keepdim=True)) / 2
    found = (found / (found.std(1, keepdim=True) + 1e-3)).view(n, 1, grid, grid)
    small = F.interpolate(x, size=SIDE, mode="area")
    rough = F.interpolate(found, size=SIDE, mode="bilinear").clamp(-1.5, 1.5)
    rough = guided(small, rough, 5, 0.004)
    colours = by_colour(small, torch.sigmoid(5 * rough)).clamp(-4, 4)
    return torch.sigmoid(5 * guided(small, rough + 0.25 * colours, 2, 0.002))


def label_directions(teacher: Lite2, label: Tensor) -> Tensor:
    return teacher.fc.weight[label] - teacher.fc.weight.mean(0)


def caption_directions(features: Tensor, named: Tensor) -> Tensor:
    """Directions to what the captions name, the teacher having no such class: one column of `named` each.

    Ridge regression on the teacher's features of the whole images; an image's direction is the sum of its
    columns'. A linear answer to pooled features is an answer place by place.
    """
    off = features - features.mean(0)
    ridge = 1000 * off.square().mean() * torch.eye(off.shape[1], device=off.device)
    weight = torch.linalg.solve(off.t() @ off + ridge, off.t() @ (named - named.mean(0)))
    return named @ weight.t()


def good(masks: Tensor) -> Tensor:
    """Masks that are neither nearly nothing nor nearly all, and decided."""
    area = masks.mean((1, 2, 3))
    decided = (masks - 0.5).abs().mean((1, 2, 3)) * 2
    return (area > 0.06) & (area < 0.72) & (decided > 0.6)


def object_transforms(masks: Tensor, size: Tensor, canvas: int) -> Tensor:
    """Views of nearly the whole object, filling the page or leaving room, as affine maps into the canvas."""
    n, device = len(masks), masks.device

    def extent(profile: Tensor) -> tuple[Tensor, Tensor]:
        share = profile.cumsum(1) / profile.sum(1, keepdim=True).clamp_min(1e-6)
        low, high = (share < 0.02).sum(1), (share < 0.98).sum(1) + 1
        return (low + high) / 2 / SIDE, (high - low) / SIDE

    solid = (masks[:, 0] > 0.5).float()
    cy, bh = extent(solid.sum(2))
    cx, bw = extent(solid.sum(1))
    h, w = size[:, 0].float(), size[:, 1].float()
    side = torch.maximum(bh * h, bw * w).clamp_min(16)
    side = side * torch.empty(n, device=device).uniform_(1.0, 1.6)
    ratio = torch.exp(torch.empty(n, device=device).uniform_(-0.2, 0.2))
    cw, ch = side * ratio.sqrt(), side / ratio.sqrt()
    px = cx * w + 0.07 * side * torch.randn(n, device=device).clamp(-1.5, 1.5)
    py = cy * h + 0.07 * side * torch.randn(n, device=device).clamp(-1.5, 1.5)
    turn = torch.randn(n, device=device) * 0.15
    cos, sin = turn.cos(), turn.sin()
    rows = [cos * cw, -sin * ch, 2 * px - canvas, sin * cw, cos * ch, 2 * py - canvas]
    return torch.stack(rows, dim=1).view(n, 2, 3) / canvas


def sample_masks(masks: Tensor, theta: Tensor, size: Tensor, canvas: int, out: int) -> Tensor:
    """Masks in the views that `theta` shows; nothing lies outside the picture."""
    grid = F.affine_grid(theta, [len(masks), 1, out, out], align_corners=False)
    # From the canvas's coordinates to the picture's own.
    scale = canvas / size.flip(1).float()[:, None, None, :]
    return F.grid_sample(masks, (grid + 1) * scale - 1, mode="bilinear", align_corners=False)


def isolated(
    canvas: Tensor, masks: Tensor, theta: Tensor, size: Tensor, large: int, small: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The objects cut out for the teacher (`large`) and the student, and drawn: as lines or as clip art.

    The teacher sees the same cut-out, so that where the mask is wrong its answer says so.
    """
    x = sample(canvas, theta, LARGE)
    mask = sample_masks(masks, theta, size, canvas.shape[-1], LARGE)
    photo = cut_out(x, mask)
    half = len(x) // 2
    drawn = torch.cat([line_drawing(x[:half], mask[:half]), clip_art(x[half:], mask[half:])])
    seen = F.interpolate(photo, size=(large, large), mode="area") if large != LARGE else photo
    return seen, mild(F.interpolate(photo, size=(small, small), mode="area")), drawn
