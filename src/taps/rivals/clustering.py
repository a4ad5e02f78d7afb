"""Questions of a batch by clusters: one for each cluster that has no labelled image yet (SimATTA).

Labelled images stay as anchors, with the weight of the images that they have stood for. So clusters of a
later batch form around what is known, and of what is new the image nearest to the centre is asked about.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TRIES = 10  # beginnings, of which the best is kept
ROUNDS = 300  # at most


def questions(
    anchors: Tensor, weights: Tensor, images: Tensor, clusters: int, generator: torch.Generator
) -> tuple[list[int], list[float], Tensor]:
    """Which images of a batch to ask about, the weights that they will have, and the anchors' new ones.

    Args:
        anchors: Features of the labelled images [m, d].
        weights: Of these [m].
        images: Features of the images that may be asked about [n, d].
        clusters: How many there are to be.
        generator: Of the beginnings.
    """
    if not len(images):
        return [], [], weights
    points, known = torch.cat([anchors, images]), len(anchors)
    counts = torch.cat([weights, torch.ones(len(images)).to(weights)])
    centres, nearest = kmeans(points, counts, clusters, generator)
    sizes = torch.bincount(nearest, minlength=len(centres))
    held = torch.bincount(nearest[:known], minlength=len(centres))
    central = torch.cdist(centres, points).argmin(dim=1)
    # The point nearest to a centre may be an anchor of another cluster: nobody is asked then.
    new = [k for k in range(len(centres)) if not held[k] and sizes[k] and central[k] >= known]
    heavier = weights + (sizes / held.clamp_min(1))[nearest[:known]].to(weights)
    return [int(central[k]) - known for k in new], [float(sizes[k]) for k in new], heavier


def kmeans(
    points: Tensor, weights: Tensor, clusters: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Centres [k, d] and each point's cluster [n]: the least weighted squared distance of some tries."""
    best, found = float("inf"), (points[:0], torch.zeros(len(points), dtype=torch.long))
    for _ in range(TRIES):
        centres = beginning(points, weights, min(clusters, len(points)), generator)
        nearest = torch.full((len(points),), -1)
        for _ in range(ROUNDS):
            before, nearest = nearest, torch.cdist(centres, points).argmin(dim=0).cpu()
            if torch.equal(before, nearest):
                break
            shares = F.one_hot(nearest, len(centres)).to(points).T * weights
            total = shares.sum(dim=1, keepdim=True)
            centres = torch.where(total > 0, shares @ points / total.clamp_min(1e-12), centres)
        spread = float((weights * (points - centres[nearest]).square().sum(dim=1)).sum())
        if spread < best:
            best, found = spread, (centres, nearest)
    return found


def beginning(points: Tensor, weights: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++: points drawn one by one, by weight times squared distance to the nearest one drawn."""
    chances, chosen = weights, []
    for _ in range(clusters):
        chances = chances if float(chances.sum()) > 0 else weights
        chosen.append(int(torch.multinomial(chances.float().cpu(), 1, generator=generator)))
        chances = weights * torch.cdist(points, points[chosen]).amin(dim=1).square()
    return points[chosen]
