"""BoostAdapter (Zhang et al., NeurIPS 2024): TDA whose cache also holds the image's confident views."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, ViewSettings, method, setting
from taps.methods.features import EMPTY, Cache
from taps.rivals.tda import Tda, TdaSettings


class BoostSettings(TdaSettings, ViewSettings):
    """TDA's values; `more` is δ, further places of each class while an image is predicted."""

    more: int = setting(1, at_least=0)


@method("boostadapter", BoostSettings)
class BoostAdapter(Tda):
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
        kept, more = self.cache("positive"), self.settings.more
        features = F.pad(kept.features, (0, 0, 0, more)).clone()
        cache = Cache(features, F.pad(kept.entropies, (0, more), value=EMPTY).clone())
        for view in seen.chosen.tolist():
            logits = seen.logits[view]
            cache.keep(int(logits.argmax()), self.entropy(logits), seen.features[view])
        return self.count_votes(cache, seen.feature)
