"""Things taken out of their photos, drawn: on an empty page, as clip art, in lines.

Somebody who draws does not trace: proportions change, outlines are smooth, colours few and strong. All
functions take pixels in 0..1 and a mask of the thing, `[N, 1, H, W]`, and draw their own random numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from augment import blur, colour, grey, kuwahara, quantise, uniform
from torch import Tensor


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
