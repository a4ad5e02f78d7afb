"""Policies for ablations: by chance, or by a threshold that never moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from taps.active.decision import NATS, Counting, Decision, check_number, check_rate


class Random(Counting):
    """Asks about a sample with probability α whatever its entropy (an ablation); gives its threshold as 0.

    Args:
        rate: Query rate α; at 1 every sample is asked about.
        seed: Seed of its own generator, or a generator that is from now on its own.
    """

    kind = "random"

    def __init__(self, rate: float = 0.05, seed: int | np.random.Generator = 0) -> None:
        super().__init__(0.0)
        self.rate = check_rate(rate, every=True)
        self._rng = np.random.default_rng(seed)

    def judge(self, entropy: float) -> Decision:
        ask = bool(self._rng.random() < self.rate)
        return Decision(ask, self.threshold, self.rate, random=ask)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._rng.bit_generator.state = state["rng"]


class Fixed(Counting):
    """Asks about every sample whose entropy exceeds one threshold that never moves (an ablation)."""

    kind = "fixed"

    def __init__(self, threshold: float = NATS) -> None:
        super().__init__(check_number("threshold", threshold))

    def judge(self, entropy: float) -> Decision:
        return Decision(entropy > self.threshold, self.threshold)
