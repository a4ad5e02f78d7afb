"""Tip-Adapter (Zhang et al., ECCV 2022): a cache of labelled images votes beside zero-shot."""

from __future__ import annotations

from torch import Tensor

from taps.methods import EncodedImage, method, setting
from taps.methods.features import closeness
from taps.rivals.labelled import BufferSettings, LabelledImages


class TipSettings(BufferSettings):
    """Tip-Adapter's values before it searches them on a validation set.

    The scale of the logits is the model's (theirs: 100).

    Attributes:
        weight: α, of the votes.
        sharpness: β, how fast a vote fades with distance.
    """

    weight: float = setting(1.0, at_least=0)
    sharpness: float = setting(5.5, at_least=0)


@method("tip_adapter", TipSettings)
class TipAdapter(LabelledImages):
    settings: TipSettings

    def adapt(self, seen: EncodedImage) -> Tensor:
        known, labels = self.held()
        votes = closeness(known, seen.feature, self.settings.sharpness)
        return seen.logits[0].index_add(0, labels, self.settings.weight * votes)
