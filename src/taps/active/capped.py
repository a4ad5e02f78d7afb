"""A hard budget around any policy."""

from __future__ import annotations

import math
from typing import Any

from taps.active.decision import Decision, Policy, check_count, check_rate
from taps.errors import SettingsError


class Capped:
    """A hard budget around any policy: what would exceed it is not asked, however uncertain the sample is.

    Args:
        policy: The policy that decides within the budget.
        rate: Never more than ⌈rate·t⌉ questions after t samples.
        total: Never more than this many questions in all.

    Example:
        >>> from taps.active.plain import Fixed
        >>> policy = Capped(Fixed(threshold=1.0), rate=0.1)
        >>> sum(policy.decide(5.0).ask for _ in range(100))
        10
    """

    def __init__(self, policy: Policy, rate: float | None = None, total: int | None = None) -> None:
        if rate is None and total is None:
            raise SettingsError(
                "A hard budget needs a rate or a total number of questions; give one of them."
            )
        self.policy = policy
        self.rate = None if rate is None else check_rate(rate, every=True)
        self.total = None if total is None else check_count("total", total)

    @property
    def asked(self) -> float:
        """Questions put so far."""
        return self.policy.asked

    @property
    def seen(self) -> int:
        """Samples decided on so far."""
        return self.policy.seen

    @property
    def skipped(self) -> int:
        """Samples whose entropy was not finite."""
        return self.policy.skipped

    def charge(self, share: float) -> None:
        """Count a question, or a part of one, that was put without `decide`."""
        self.policy.charge(share)

    def refund(self, share: float) -> None:
        """Give a question, or a part of one, back to the budget."""
        self.policy.refund(share)

    def answer(self, label: int) -> None:
        """Take note of the class that was answered."""
        self.policy.answer(label)

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample, forbidding the question where the budget is used up."""
        return self.policy.decide(entropy, allowed and self.asked < self._limit(self.seen + 1))

    def _limit(self, samples: int) -> float:
        limit = math.inf if self.total is None else float(self.total)
        if self.rate is None:
            return limit
        # 0.07 · 100 is a hair above 7 in binary; without the 1e-9 it would buy an eighth question.
        return min(limit, math.ceil(self.rate * samples - 1e-9))

    def state_dict(self) -> dict[str, Any]:
        """The state of the policy inside; a cap has none of its own."""
        return self.policy.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        self.policy.load_state_dict(state)
