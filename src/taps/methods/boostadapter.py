"""BoostAdapter: TDA, whose cache also holds the confident views of the image that is being predicted."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from taps.methods.features import EMPTY, EncodedImage, keep_surest
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import ViewSettings
from taps.methods.tda import Tda, TdaSettings


@dataclass(frozen=True)
class BoostSettings(TdaSettings, ViewSettings):
    """TDA's values.

    Attributes:
        more: δ, further places of each class while an image is predicted.
    """

    more: int = setting(1, at_least=0)


@method("boostadapter", BoostSettings)
class BoostAdapter(Tda):
    """TDA, with the image's own confident views in its cache."""

    settings: BoostSettings

    def keep_unsure(self, label: int, entropy: float, feature: Tensor, mask: Tensor) -> None:
        """The last ones are kept; TDA keeps the surest."""
        empty = self.state["negative_entropies"][label] >= EMPTY
        gone = int(empty.int().argmax())  # the first empty place, else the oldest image
        for name, value in (("negative", feature), ("negative_entropies", entropy), ("masks", mask)):
            places = self.state[name][label]
            places[gone:] = places[gone:].roll(-1, dims=0)
            places[-1] = value

    def votes_for(self, seen: EncodedImage) -> Tensor:
        features = F.pad(self.state["positive"], (0, 0, 0, self.settings.more))
        entropies = F.pad(self.state["positive_entropies"], (0, self.settings.more), value=EMPTY)
        features, entropies = features.clone(), entropies.clone()
        for view in seen.chosen.tolist():
            logits = seen.logits[view]
            keep_surest(features, entropies, int(logits.argmax()), self.entropy(logits), seen.features[view])
        return self.count_votes(features, entropies, seen.feature)
