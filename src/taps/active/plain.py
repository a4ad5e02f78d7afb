"""Policies for ablations: by chance, or by a threshold that never moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from taps.active.decision import Decision, check_number, check_rate, counters, is_usable, load_counters


class Random:
    """Asks about a sample with probability α whatever its entropy (an ablation); gives its threshold as 0.

    Args:
        rate: Query rate α; at 1 every sample is asked about.
        seed: Seed of its own generator, or a generator that is from now on its own.
    """

    def __init__(self, rate: float = 0.05, seed: int | np.random.Generator = 0) -> None:
        self.rate = check_rate(rate, every=True)
        self._rng = np.random.default_rng(seed)
        self.asked: float = 0
        self.seen = self.skipped = 0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` the coin is thrown all the same, but nothing asked."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, 0.0)
        self.seen += 1
        ask = bool(self._rng.random() < self.rate) and allowed
        self.asked += ask
        return Decision(ask, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, the generator included, in plain numbers."""
        return {**counters("random", self), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("random", self, state)
        self._rng.bit_generator.state = state["rng"]


class Fixed:
    """Asks about every sample whose entropy exceeds one threshold that never moves (an ablation)."""

    def __init__(self, threshold: float = 2.0) -> None:
        self.threshold = check_number("threshold", threshold)
        self.asked: float = 0
        self.seen = self.skipped = 0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, self.threshold)
        self.seen += 1
        ask = allowed and entropy > self.threshold
        self.asked += ask
        return Decision(ask, self.threshold)

    def state_dict(self) -> dict[str, Any]:
        """The counters."""
        return counters("fixed", self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("fixed", self, state)
