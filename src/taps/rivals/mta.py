"""MTA (Zanella & Ben Ayed, CVPR 2024): classifies the mode of the views' features, found by mean shift."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, ViewSettings, method, setting

Floats = NDArray[np.float64]
NEAREST = 0.3  # share of the other views that set the bandwidth of one
NARROW = 1e-6  # bandwidth at least, well above the rounding of a cosine: views may be all the same
ROUNDS = 5  # of the weights, of the mode, and of both by turns


class MtaSettings(ViewSettings):
    """MTA's published values.

    Attributes:
        affinity: λ_q, how much views that predict alike support each other.
        temperature: λ_y, of the views' weights.
    """

    affinity: float = setting(4.0, at_least=0)
    temperature: float = setting(0.2, above=0)


@method("mta", MtaSettings)
class Mta(FeatureMethod):
    settings: MtaSettings
    stateless = True

    def adapt(self, seen: EncodedImage) -> Tensor:
        probs = torch.softmax(seen.logits, dim=-1)
        # The mode is a weighted mean of the views, so cosines between them are all that is needed: the many
        # small rounds take place on the host, where they wait for nobody.
        pairs = torch.stack([seen.features @ seen.features.T, probs @ probs.T]).double().cpu().numpy()
        weights = mode_weights(pairs[0], pairs[1], self.settings.affinity, self.settings.temperature)
        mode = torch.from_numpy(weights).to(seen.features) @ seen.features
        return self.logits(F.normalize(mode, dim=0)[None])[0]


def mode_weights(cosines: Floats, alike: Floats, affinity: float, temperature: float) -> Floats:
    """Weights of n unit features in their mode, by mean shift from the first one [n].

    Args:
        cosines: Between the features [n, n].
        alike: Products of their predictions [n, n].
        affinity: How much features that predict alike support each other.
        temperature: Of the views' weights.
    """
    widths = bandwidths(cosines)
    support = affinity / temperature * alike
    views = np.full(len(cosines), 1 / len(cosines))
    pull, near = views, cosines[0]  # the mode's cosine to each
    for _ in range(ROUNDS):
        density = np.exp((near - 1) / widths) / temperature
        for _ in range(ROUNDS):
            scores = density + support @ views
            views = np.exp(scores - scores.max())
            views /= views.sum()
        for _ in range(ROUNDS):
            pull = np.exp((near - 1) / widths) * views
            near = cosines @ pull
            near /= np.sqrt(pull @ near)
    return pull


def bandwidths(cosines: Floats) -> Floats:
    """Half the mean squared distance of each view to its nearest 30 % of the others, itself left out [n]."""
    count = max(1, int(NEAREST * (len(cosines) - 1)))
    others = np.partition(-cosines, min(count, len(cosines) - 1), axis=1)[:, : count + 1]
    own = others.min(axis=1)
    widths: Floats = np.maximum((others.sum(axis=1) - own + len(others[0]) - 1) / count, NARROW)
    return widths
