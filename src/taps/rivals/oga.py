"""OGA (Fuchs et al., 2025): Gaussians of the surest images of each class, times zero-shot probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, Snapshot, State, TextSettings, method, setting
from taps.methods.features import ALIKE, empty_cache, ridge_precision


class OgaSettings(TextSettings):
    """OGA's published values, the same for all data sets.

    Attributes:
        shots: Surest images kept of each predicted class.
        power: τ, to which the Gaussians' densities are raised.
        as_published: Whether a mean is the sum over `shots` even where fewer images are held, as in the
            authors' code, which draws classes with few images towards 0.
    """

    shots: int = setting(8, at_least=2)
    power: float = setting(0.05, at_least=0)
    as_published: bool = False


@method("oga", OgaSettings)
class Oga(FeatureMethod):
    settings: OgaSettings
    fitted: tuple[Tensor, Tensor] | None = None  # follows from the memory, until that changes

    def start(self) -> State:
        return empty_cache(self.text, self.settings.shots)

    def adapt(self, seen: EncodedImage) -> Tensor:
        label = int(seen.logits[0].argmax())
        kept = self.cache().keep(label, seen.entropy, seen.feature)
        if kept is not None or self.fitted is None:
            self.fitted = self.gaussians()
        projected, offsets = self.fitted
        # Terms that are the same for every class are left out.
        density = projected @ seen.feature - offsets
        return torch.log_softmax(seen.logits[0], dim=-1) + self.settings.power * density

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.fitted = None

    def gaussians(self) -> tuple[Tensor, Tensor]:
        """Λμ_k [K, d] and ½ μ_kᵀΛμ_k [K]: μ_k is a class's text until it has two images, Λ is shared."""
        cache = self.cache()
        own, counts = cache.means(), cache.held.sum(dim=1)
        if self.settings.as_published:
            own = own * counts[:, None] / self.settings.shots
        means = torch.where(counts[:, None] >= 2, own, self.text)
        apart = (cache.features - means[:, None])[cache.held]
        apart = apart - apart.mean(dim=0)
        scatter = apart.T @ apart
        spread = float(scatter.trace()) / max(1, len(apart) - 1)
        if int(counts.max()) <= 2:
            spread = 0.0  # too few images to say anything of directions
        if spread >= ALIKE and len(apart) > 4 * apart.shape[1]:
            projected = means @ torch.linalg.pinv(scatter / (len(apart) - 1))
        else:
            projected = ridge_precision(means, scatter, spread)
        return projected, 0.5 * (projected * means).sum(dim=1)
