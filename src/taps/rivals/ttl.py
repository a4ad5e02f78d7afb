"""TTL (Imam et al., WACV 2025): one step of low-rank adapters on the views' weighted entropies."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from taps.learning.losses import entropies
from taps.methods import method, setting
from taps.model.prompts.families import Parameters
from taps.rivals.tower import TowerSettings, TowerTuner


class TtlSettings(TowerSettings):
    """TTL's published values.

    Attributes:
        rank: Of the changes.
        alpha: Their weight, over the rank.
        blocks: How many of the last vision blocks have them.
        margin: Entropy in nats at which a view has the weight 1.
    """

    lr: float = 5e-3
    weight_decay: float = 0.01
    rank: int = setting(16, at_least=1)
    alpha: float = setting(32.0, at_least=0)
    blocks: int = setting(3, at_least=1)
    margin: float = 0.4


@method("ttl", TtlSettings)
class Ttl(TowerTuner):
    settings: TtlSettings

    def tuned(self, tower: nn.Module, seed: int) -> Parameters:
        """For queries and values of each block a pair of matrices; their product starts at 0."""
        names = [name for name, _ in tower.named_parameters() if name.endswith("attn.in_proj_weight")]
        width, rank = tower.get_parameter(names[0]).shape[1], self.settings.rank
        self.originals = {name: tower.get_parameter(name).detach() for name in names[-self.settings.blocks :]}
        generator = torch.Generator().manual_seed(seed)
        found: Parameters = {}
        for name in self.originals:
            for part in ("query", "value"):
                down = nn.init.xavier_normal_(torch.empty(rank, width), generator=generator)
                found |= {f"{name}.{part}.down": down, f"{name}.{part}.up": torch.zeros(width, rank)}
        return {name: value.to(self.text) for name, value in found.items()}

    def weights(self, parameters: Parameters) -> Parameters:
        scale, found = self.settings.alpha / self.settings.rank, {}
        for name, original in self.originals.items():
            query, value = (
                scale * parameters[f"{name}.{part}.up"] @ parameters[f"{name}.{part}.down"]
                for part in ("query", "value")
            )
            change = torch.cat([query, torch.zeros_like(query), value])
            found[name] = original.to(change) + change
        return found

    def loss(self, logits: Tensor) -> Tensor:
        """Mean of e^(margin − H) · H over the views; the weights are taken as they are."""
        found = entropies(logits)
        return (torch.exp(self.settings.margin - found.detach()) * found).mean()
