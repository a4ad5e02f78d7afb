"""Objects taken out of their photos: on white paper, as clip art, as a line drawing.

Photos are cluttered; drawings, and many product photos, show one thing on an empty page. The image
teacher says where in a photo its label is; places that look alike share that answer, and the photo's own
borders sharpen it. No mask was ever drawn by hand for this.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from augment import blur, colour, grey, kuwahara, mild, quantise, sample, uniform
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


def page(n: int, device: torch.device) -> Tensor:
    """What things are drawn on: white mostly, else light, black, or any colour."""
    kind = uniform(n, 0, 1, device)
    light = 0.8 + 0.2 * torch.rand(n, 3, 1, 1, device=device)
    any_colour = torch.rand(n, 3, 1, 1, device=device)
    paper = torch.where(kind < 0.75, light, torch.where(kind < 0.95, any_colour, torch.zeros_like(light)))
    return torch.where(kind < 0.6, torch.ones_like(light), paper)


def scene(n: int, side: int, device: torch.device) -> Tensor:
    """Two plain colours, one fading into the other or meeting at a horizon: sky above grass, say."""
    height = torch.linspace(0, 1, side, device=device).view(1, 1, side, 1)
    horizon, blend = uniform(n, 0.3, 0.9, device), uniform(n, 1.0, 30.0, device)
    low = torch.sigmoid((height - horizon) * blend)
    above = 0.45 + 0.55 * torch.rand(n, 3, 1, 1, device=device)
    return (above * (1 - low) + torch.rand(n, 3, 1, 1, device=device) * low).expand(n, 3, side, side)


def wobble(x: Tensor, strength: float, cells: int = 6) -> Tensor:
    """Smooth random bending, as of an unsteady hand; with few cells, as of one that changes proportions."""
    n, side = len(x), x.shape[-1]
    noise = torch.randn(n, 2, cells, cells, device=x.device)
    shift = F.interpolate(noise, size=(side, side), mode="bicubic")
    return F.grid_sample(
        x,
        still(x) + strength * shift.permute(0, 2, 3, 1) * uniform(n, 0, 1, x.device),
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )


def bulge(x: Tensor) -> Tensor:
    """One round part drawn too large, or too small."""
    n, device = len(x), x.device
    centre = torch.empty(n, 1, 1, 2, device=device).uniform_(-0.6, 0.6)
    radius, growth = uniform(n, 0.4, 1.0, device), uniform(n, -0.35, 0.55, device)
    off = still(x) - centre
    near = (1 - off.square().sum(3, keepdim=True) / radius.square()).clamp_min(0)
    return F.grid_sample(
        x, centre + off * (1 - growth * near), mode="bilinear", padding_mode="border", align_corners=False
    )


def still(x: Tensor) -> Tensor:
    """The grid that moves nothing."""
    n, side = len(x), x.shape[-1]
    same = torch.eye(2, 3, device=x.device).expand(n, 2, 3)
    return F.affine_grid(same, [n, 1, side, side], align_corners=False)


def redrawn(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Other proportions and a smoother outline, as somebody draws who does not trace."""
    both = wobble(bulge(torch.cat([x, mask], dim=1)), 0.07, cells=4)
    x, mask = both[:, :3], both[:, 3:]
    soft = blur(mask, float(torch.empty(1).uniform_(0.6, 2.4)))
    return x, torch.sigmoid((soft - 0.45) * 14)


def ridges(g: Tensor) -> tuple[Tensor, Tensor]:
    """Strength of the borders in a grey image, and the same kept only along their crests."""
    kx = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], device=g.device) / 4
    d = F.conv2d(F.pad(g, (1, 1, 1, 1), mode="replicate"), torch.stack([kx, kx.t()]).unsqueeze(1))
    strength = d.square().sum(1, keepdim=True).sqrt()
    flat, upright = d[:, :1].abs(), d[:, 1:].abs()
    padded = F.pad(strength, (1, 1, 1, 1))
    h, w = g.shape[-2:]

    def shifted(dy: int, dx: int) -> Tensor:
        return padded[..., 1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]

    same = (d[:, :1] * d[:, 1:]) > 0
    across = torch.where(
        same, torch.maximum(shifted(1, 1), shifted(-1, -1)), torch.maximum(shifted(1, -1), shifted(-1, 1))
    )
    across = torch.where(flat > 2.4 * upright, torch.maximum(shifted(0, 1), shifted(0, -1)), across)
    across = torch.where(upright > 2.4 * flat, torch.maximum(shifted(1, 0), shifted(-1, 0)), across)
    return strength, torch.where(strength >= across, strength, torch.zeros_like(strength))


def lines(x: Tensor, mask: Tensor) -> Tensor:
    """The outline of the masked part and the strongest lines inside it, 0..1, one or three pixels wide."""
    n, device = len(x), x.device
    sigma = float(torch.empty(1).uniform_(1.0, 2.6))
    _, inside = ridges(blur(grey(x), sigma))
    top = inside.flatten(1).topk(int(inside[0].numel() * 0.04), dim=1).values[:, -1].view(n, 1, 1, 1)
    level = torch.maximum(top * uniform(n, 0.6, 3.0, device), torch.tensor(0.012, device=device))
    inside = torch.sigmoid((inside / level - 1) * 6) * (inside > 0) * (mask > 0.5)
    _, border = ridges(blur(mask, 1.5))
    drawn = torch.maximum(inside, (border * 12).clamp(0, 1) * (border > 0.03))
    thick = F.max_pool2d(drawn, 3, 1, 1)
    return torch.where(uniform(n, 0, 1, device) < 0.65, thick, drawn)


def line_drawing(x: Tensor, mask: Tensor) -> Tensor:
    """Thin dark lines on white."""
    n, device = len(x), x.device
    drawn = wobble(lines(*redrawn(x, mask)), 0.02)
    drawn = drawn * uniform(n, 0.5, 1.0, device)
    drawn = F.avg_pool2d(drawn, 2) * uniform(n, 1.0, 1.6, device)
    return (1 - drawn.clamp(0, 1)).expand(-1, 3, -1, -1)


def masked_blur(x: Tensor, mask: Tensor, sigma: float) -> Tensor:
    """Blurred inside the mask alone: what lies behind does not bleed in."""
    return blur(x * mask, sigma) / (blur(mask, sigma) + 0.02)


def few_tones(x: Tensor, mask: Tensor) -> Tensor:
    """Two or three flat colours: the dark, the middle and the bright part, each at its mean colour."""
    n, device = len(x), x.device
    smooth = masked_blur(x, mask, float(torch.empty(1).uniform_(1.0, 3.0)))
    g = grey(smooth)
    weight = mask / mask.sum((2, 3), keepdim=True).clamp_min(1)
    mean = (g * weight).sum((2, 3), keepdim=True)
    spread = ((g - mean).square() * weight).sum((2, 3), keepdim=True).sqrt()
    low = mean - spread * uniform(n, 0.2, 1.2, device)
    high = mean + spread * uniform(n, 0.2, 2.0, device)
    out = torch.zeros_like(x)
    for part in (g < low, (g >= low) & (g <= high), g > high):
        share = weight * part
        tone = (x * share).sum((2, 3), keepdim=True) / share.sum((2, 3), keepdim=True).clamp_min(1e-4)
        out = torch.where(part, tone, out)
    return out


def flattened(x: Tensor, mask: Tensor) -> Tensor:
    """Without texture: by patches, by soft shades or in few tones."""
    kind = uniform(len(x), 0, 1, x.device)
    patches = kuwahara(kuwahara(x, 3), 2)
    shades = masked_blur(x, mask, float(torch.empty(1).uniform_(1.0, 4.0)))
    flat = torch.where(kind < 0.35, patches, torch.where(kind < 0.65, shades, few_tones(x, mask)))
    return torch.where(uniform(len(x), 0, 1, x.device) < 0.3, quantise(flat), flat)


def painted(flat: Tensor, mask: Tensor) -> Tensor:
    """Bright strong colours, near the thing's own or any, and rounded by a light from one side."""
    n, device = len(flat), flat.device
    g = grey(flat)
    vivid = (g + (flat - g) * uniform(n, 1.0, 3.5, device)) * uniform(n, 1.0, 1.6, device)
    vivid = vivid.clamp(0, 1)
    own = uniform(n, 0, 1, device) < 0.6
    vivid = torch.where(own, colour(vivid, 0.25), colour(vivid, 1.0))
    tint = torch.rand(n, 3, 1, 1, device=device)
    tinted = vivid + (tint - vivid.mean((2, 3), keepdim=True)) * uniform(n, 0.3, 1.0, device)
    vivid = torch.where(uniform(n, 0, 1, device) < 0.2, tinted.clamp(0, 1), vivid)
    thick = blur(mask, 7.0)
    lit = thick - thick.roll((5, 4), (2, 3))
    shade = 1 + uniform(n, -0.5, 2.0, device) * lit + uniform(n, 0.0, 0.5, device) * (thick - 0.8)
    shaded = (vivid * shade).clamp(0, 1)
    return torch.where(uniform(n, 0, 1, device) < 0.6, shaded, vivid)


def clip_art(x: Tensor, mask: Tensor) -> Tensor:
    """Flat strong colours inside a dark outline, on a plain page or before a plain scene."""
    n, device = len(x), x.device
    x, mask = redrawn(x, mask)
    flat = flattened(x, mask)
    traced = torch.where(uniform(n, 0, 1, device) < 0.5, x, flat)
    ink = lines(traced, mask) * (uniform(n, 0, 1, device) < 0.75)
    behind = torch.where(
        uniform(n, 0, 1, device) < 0.2, scene(n, x.shape[-1], device), page(n, device).expand_as(x)
    )
    out = (painted(flat, mask) * mask + behind * (1 - mask)) * (1 - ink * uniform(n, 0.4, 1.0, device))
    return F.avg_pool2d(out, 2)


def cut_out(x: Tensor, mask: Tensor) -> Tensor:
    """The object as photographed, on a plain page or in front of another picture."""
    n, device = len(x), x.device
    other = blur(x.roll(1, 0), 3.0)
    behind = torch.where(uniform(n, 0, 1, device) < 0.2, other, page(n, device).expand_as(x))
    edge = torch.sigmoid((mask - 0.5) * 12)
    return x * edge + behind * (1 - edge)


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
