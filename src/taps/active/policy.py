"""Query policies by name: Algorithm 1 of the paper, its rivals, and a hard budget around any of them."""

from __future__ import annotations

import math

from taps.active.capped import Capped
from taps.active.decision import Counting, Policy, check_rate, first_threshold
from taps.active.dynamic import Dynamic
from taps.active.plain import Fixed, Random
from taps.active.query_rate import Paced
from taps.active.running_quantile import Quantile
from taps.errors import SettingsError


def make_policy(
    name: str,
    *,
    rate: float = 0.05,
    warmup: int = 30,
    tau0: float | None = None,
    switch_at: float | None = None,
    budget: str | int = "soft",
    seed: int = 0,
    classes: int | None = None,
    tau0_relative: float | None = None,
    pace: str | float = "even",
    expected: int | None = None,
    explore: float = 0.0,
) -> Policy:
    """Makes a policy by name, with its budget.

    Args:
        name: "dynamic" (Algorithm 1), "quantile", "random", "fixed" (its threshold is τ0) or "paced" (the
            highest, at an exact rate).
        rate: Query rate α; at 1 every sample is asked about, whatever the policy (but "fixed").
        warmup: T_min, the first sample whose threshold is no longer τ0.
        tau0: τ0 in nats; see `first_threshold` where neither this nor `tau0_relative` is given.
        switch_at: For "dynamic", the share of questions from which on it is stricter; α unless given.
        budget: "soft" (the policy alone), "hard" (never more than ⌈α·t⌉ after t samples) or a total.
        seed: For "random".
        classes: Number of classes, for `tau0_relative`.
        tau0_relative: τ0 as a fraction of ln(classes), the largest entropy there can be; replaces `tau0`.
        pace: For "paced": "even", "front" or an exponent; see `Paced`. A hard budget is spent evenly.
        expected: Images to come, where that is known; a total budget then has the rate that spends it.
        explore: Share of the questions that are put at random, whatever the policy says.

    Raises:
        SettingsError: A value is out of range, or a name is unknown.
    """
    check_rate(rate, every=True)
    if budget == "hard":
        expected = None
    rate = planned_rate(rate, budget, expected)
    first = first_threshold(tau0, tau0_relative, classes)
    policy: Counting
    if name == "random" or (rate == 1 and name in ("dynamic", "quantile", "paced")):
        policy = Random(rate, seed)
    elif name == "dynamic":
        policy = Dynamic(rate, warmup, first, switch_at)
    elif name == "quantile":
        policy = Quantile(rate, warmup, first)
    elif name == "fixed":
        policy = Fixed(first)
    elif name == "paced":
        policy = Paced(rate, max(200, math.ceil(2 / rate)), None, pace, expected, classes or 2)
    else:
        raise SettingsError(f"policy={name!r} is unknown; choose dynamic, quantile, random, fixed or paced.")
    policy.explore, policy.seed = explore * rate, seed
    return _within(budget, policy, rate)


def planned_rate(rate: float, budget: str | int, expected: int | None) -> float:
    """Share of the images to ask about: of a total budget, the one that spends it on what is expected.

    >>> planned_rate(0.05, "soft", 400), planned_rate(0.05, 40, 400), planned_rate(0.05, 40, None)
    (0.05, 0.1, 0.05)
    """
    total = expected and isinstance(budget, int) and not isinstance(budget, bool) and budget > 0
    return min(1.0, int(budget) / expected) if total and expected else rate


def _within(budget: str | int, policy: Policy, rate: float) -> Policy:
    if budget == "soft":
        return policy
    if budget == "hard":
        return Capped(policy, rate=rate)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return Capped(policy, total=budget)
    raise SettingsError(
        f'budget={budget!r} is not a budget; use "soft", "hard" or a total number of questions.'
    )
