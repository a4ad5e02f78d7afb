"""Batched augmentation on the accelerator: crops, mixing, and the styles that stand in for drawings.

All functions take and give pixels in 0..1, `[N, 3, H, W]`, and draw their own random numbers, one
set per sample. The photo stays readable to the teacher; only the student sees the styles.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def uniform(n: int, low: float, high: float, device: torch.device) -> Tensor:
    """One number per sample, shaped to broadcast over pixels."""
    return torch.empty(n, 1, 1, 1, device=device).uniform_(low, high)


def crop_transforms(size: Tensor, canvas: int, smallest: float) -> Tensor:
    """Random resized crops (with flips and small turns) as affine maps into a square canvas.

    `size` holds each image's height and width inside the canvas, in pixels.
    """
    n, device = len(size), size.device
    h, w = size[:, 0].float(), size[:, 1].float()
    area = torch.empty(n, device=device).uniform_(smallest, 1.0) * torch.minimum(h, w) ** 2
    ratio = torch.exp(torch.empty(n, device=device).uniform_(-math.log(4 / 3), math.log(4 / 3)))
    cw, ch = torch.minimum((area * ratio).sqrt(), w), torch.minimum((area / ratio).sqrt(), h)
    cx = cw / 2 + (w - cw) * torch.rand(n, device=device)
    cy = ch / 2 + (h - ch) * torch.rand(n, device=device)
    turn = torch.randn(n, device=device) * 0.2 * (torch.rand(n, device=device) < 0.3)
    flip = torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    cos, sin = turn.cos(), turn.sin()
    rows = [cos * cw * flip, -sin * ch, 2 * cx - canvas, sin * cw * flip, cos * ch, 2 * cy - canvas]
    return torch.stack(rows, dim=1).view(n, 2, 3) / canvas


def centre_transforms(size: Tensor, canvas: int) -> Tensor:
    """The centre square of each image, as affine maps."""
    h, w = size[:, 0].float(), size[:, 1].float()
    side, zero = torch.minimum(h, w), torch.zeros_like(h)
    return torch.stack([side, zero, w - canvas, zero, side, h - canvas], dim=1).view(-1, 2, 3) / canvas


def sample(images: Tensor, theta: Tensor, out: int) -> Tensor:
    grid = F.affine_grid(theta, [len(images), 3, out, out], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


class Mixer:
    """Mixup or cutmix with a fixed partner per sample, the same at every resolution."""

    def __init__(self, n: int, rows: int, device: torch.device, share: float = 0.5) -> None:
        """Only the first `rows` of `n` samples are mixed (captioned images are left whole)."""
        partner = torch.arange(n, device=device)
        partner[:rows] = torch.randperm(rows, device=device)
        self.partner = partner
        kind = torch.rand(n, device=device)
        lam = torch.distributions.Beta(0.8, 0.8).sample((n,)).to(device)
        self.cut = (kind < share * 0.45).view(n, 1, 1, 1)
        self.lam = torch.where(
            (kind < share) & (torch.arange(n, device=device) < rows), lam, torch.ones_like(lam)
        )
        half = (1 - self.lam).sqrt() / 2
        cx, cy = torch.rand(n, device=device), torch.rand(n, device=device)
        box = torch.stack([cx - half, cx + half, cy - half, cy + half]).clamp(0, 1)
        inside = (box[1] - box[0]) * (box[3] - box[2])
        self.box = box.view(4, n, 1, 1)
        self.lam = torch.where(self.cut.flatten(), 1 - inside, self.lam)

    def keep_whole(self, rows: Tensor) -> None:
        """Take these samples out of the mix."""
        self.lam = torch.where(rows, torch.ones_like(self.lam), self.lam)
        self.cut = self.cut & ~rows.view(-1, 1, 1, 1)

    def pixels(self, x: Tensor) -> Tensor:
        side = (torch.arange(x.shape[-1], device=x.device) + 0.5) / x.shape[-1]
        u, v = side.view(1, 1, -1), side.view(1, -1, 1)
        hole = ((u >= self.box[0]) & (u < self.box[1]) & (v >= self.box[2]) & (v < self.box[3])).unsqueeze(1)
        keep = torch.where(self.cut, (~hole).to(x.dtype), self.lam.view(-1, 1, 1, 1).to(x.dtype))
        return x * keep + x[self.partner] * (1 - keep)

    def targets(self, y: Tensor) -> Tensor:
        lam = self.lam.view(-1, 1)
        return y * lam + y[self.partner] * (1 - lam)


def grey(x: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def blur(x: Tensor, sigma: float) -> Tensor:
    radius = max(1, round(2.5 * sigma))
    t = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
    k = torch.exp(-(t**2) / (2 * sigma**2))
    k = (k / k.sum()).expand(x.shape[1], 1, -1)
    x = F.conv2d(F.pad(x, (radius, radius, 0, 0), mode="replicate"), k.unsqueeze(2), groups=x.shape[1])
    return F.conv2d(F.pad(x, (0, 0, radius, radius), mode="replicate"), k.unsqueeze(3), groups=x.shape[1])


def edges(g: Tensor) -> Tensor:
    """Gradient strength of a grey image, scaled so that its strong edges are about 1."""
    kx = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], device=g.device, dtype=g.dtype)
    both = torch.stack([kx, kx.t()]).unsqueeze(1)
    d = F.conv2d(F.pad(g, (1, 1, 1, 1), mode="replicate"), both)
    strength = (d.square().sum(1, keepdim=True) + 1e-6).sqrt()
    return strength / (3.5 * strength.mean((2, 3), keepdim=True) + 0.05)


def kuwahara(x: Tensor, r: int) -> Tensor:
    """Each pixel takes the mean of its calmest quadrant: flat areas, crisp borders, as if painted."""
    padded = F.pad(x, (r, r, r, r), mode="replicate")
    mean = F.avg_pool2d(padded, r + 1, 1)
    g = grey(padded)
    var = F.avg_pool2d(g * g, r + 1, 1) - F.avg_pool2d(g, r + 1, 1).square()
    h, w = x.shape[-2:]
    corners = [(0, 0), (0, r), (r, 0), (r, r)]
    means = torch.stack([mean[..., i : i + h, j : j + w] for i, j in corners])
    calm = torch.stack([var[..., i : i + h, j : j + w] for i, j in corners]).argmin(0, keepdim=True)
    return means.gather(0, calm.expand(1, -1, 3, -1, -1)).squeeze(0)


def colour(x: Tensor, strength: float) -> Tensor:
    """Brightness, contrast, saturation and hue, each moved by up to `strength`."""
    n, device = len(x), x.device
    s = strength
    x = x * uniform(n, 1 - 0.6 * s, 1 + 0.6 * s, device)
    x = (x - x.mean((1, 2, 3), keepdim=True)) * uniform(n, 1 - 0.7 * s, 1 + 0.7 * s, device) + x.mean(
        (1, 2, 3), keepdim=True
    )
    g = grey(x)
    x = g + (x - g) * uniform(n, 1 - s, 1 + s, device)
    angle = uniform(n, -1.5 * s, 1.5 * s, device)
    # Turning about the grey axis changes hue alone.
    cos, sin = angle.cos(), angle.sin() / math.sqrt(3)
    third = x.mean(1, keepdim=True)
    turned = x * cos + third * (1 - cos) + (x.roll(1, 1) - x.roll(2, 1)) * sin
    return turned.clamp(0, 1)


def pencil(x: Tensor) -> Tensor:
    """Dodge-blended pencil drawing: dark lines on white paper."""
    g = grey(x)
    soft = blur(1 - g, float(torch.empty(1).uniform_(0.8, 2.5)))
    lines = (g / (1 - soft + 0.03)).clamp(0, 1) ** uniform(len(x), 1.0, 5.0, x.device)
    hard = torch.sigmoid((lines - uniform(len(x), 0.6, 0.9, x.device)) * 25)
    return torch.where(uniform(len(x), 0, 1, x.device) < 0.4, hard, lines).expand(-1, 3, -1, -1)


def outline(x: Tensor) -> Tensor:
    """Edges alone, ink on paper; now and then chalk on a board."""
    g = blur(grey(x), float(torch.empty(1).uniform_(0.4, 1.4)))
    e = (edges(g) * uniform(len(x), 0.6, 1.5, x.device)).clamp(0, 1)
    e = torch.where(uniform(len(x), 0, 1, x.device) < 0.6, torch.sigmoid((e - 0.5) * 14), e)
    return torch.where(uniform(len(x), 0, 1, x.device) < 0.15, e, 1 - e).expand(-1, 3, -1, -1)


def quantise(x: Tensor) -> Tensor:
    levels = torch.randint(2, 7, (len(x), 1, 1, 1), device=x.device).to(x.dtype)
    return (x * levels).round() / levels


def cartoon(x: Tensor) -> Tensor:
    """Flat, few, strong colours with dark contours."""
    flat = kuwahara(kuwahara(x, 2), 2)
    ink = (edges(grey(flat)) * uniform(len(x), 0.0, 1.0, x.device) - 0.25).clamp(0, 1)
    g = grey(flat)
    vivid = (g + (flat - g) * uniform(len(x), 1.0, 2.5, x.device)).clamp(0, 1)
    vivid = torch.where(uniform(len(x), 0, 1, x.device) < 0.6, quantise(vivid), vivid)
    return colour(vivid, 0.5) * (1 - ink)


def painting(x: Tensor) -> Tensor:
    strokes = kuwahara(x, 3 if torch.rand(1) < 0.4 else 2)
    texture = blur(torch.randn_like(strokes[:, :1]), 0.7) * uniform(len(x), 0.0, 0.12, x.device)
    return (colour(strokes, 0.7) + texture).clamp(0, 1)


def odd_tones(x: Tensor) -> Tensor:
    """Posterised, solarised, inverted or with channels swapped."""
    pick = uniform(len(x), 0, 4, x.device)
    solar = torch.where(x > uniform(len(x), 0.3, 0.8, x.device), 1 - x, x)
    out = torch.where(
        pick < 1, quantise(x), torch.where(pick < 2, solar, torch.where(pick < 3, 1 - x, x.flip(1)))
    )
    return out


def soften(x: Tensor) -> Tensor:
    noisy = blur(x, float(torch.empty(1).uniform_(0.6, 1.6)))
    return (noisy + torch.randn_like(x) * uniform(len(x), 0.0, 0.1, x.device)).clamp(0, 1)


STYLES = [
    (pencil, 0.17),
    (outline, 0.13),
    (cartoon, 0.22),
    (painting, 0.14),
    (odd_tones, 0.08),
    (soften, 0.08),
    (lambda x: grey(x).expand(-1, 3, -1, -1), 0.06),
]


def stylise(x: Tensor) -> Tensor:
    """Give each style its share of the batch, at random; the rest gets strong colour jitter."""
    order = torch.randperm(len(x), device=x.device)
    out = torch.empty_like(x)
    start = 0
    for style, share in STYLES:
        rows = order[start : start + int(share * len(x))]
        out[rows] = style(x[rows]).to(x.dtype)
        start += len(rows)
    rows = order[start:]
    out[rows] = colour(x[rows], 0.9)
    return out


def erase(x: Tensor, share: float) -> Tensor:
    """Cover a random box with noise in a share of the samples."""
    n, device = len(x), x.device
    side = (torch.arange(x.shape[-1], device=device) + 0.5) / x.shape[-1]
    u, v = side.view(1, 1, 1, -1), side.view(1, 1, -1, 1)
    hw, hh = uniform(n, 0.08, 0.28, device), uniform(n, 0.08, 0.28, device)
    cx, cy = uniform(n, 0, 1, device), uniform(n, 0, 1, device)
    hole = ((u - cx).abs() < hw) & ((v - cy).abs() < hh) & (uniform(n, 0, 1, device) < share)
    fill = torch.rand(n, 3, 1, 1, device=device, dtype=x.dtype) + 0.1 * torch.randn_like(x)
    return torch.where(hole, fill.clamp(0, 1), x)


def mild(x: Tensor) -> Tensor:
    """The student's photo view."""
    jittered = torch.where(uniform(len(x), 0, 1, x.device) < 0.6, colour(x, 0.35), x)
    jittered = torch.where(uniform(len(x), 0, 1, x.device) < 0.05, grey(x), jittered)
    return erase(jittered, 0.2)
