"""What is measured of Proposition 2: the share of samples asked about, against the share that was meant."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from rate import (
    SHAPES,
    FloatArray,
    RateTrace,
    draw_entropies,
    expected_rate_under_switch,
    limit_rate,
    simulate_dynamic,
    simulate_quantile,
)

Row = dict[str, Any]
WINDOW = 500

# name: (what decides, what share of the streams it gets; the quantiles take longer)
POLICIES: dict[str, tuple[Callable[[FloatArray, float], RateTrace], float]] = {
    "Algorithm 1": (simulate_dynamic, 1.0),
    "switch 1.5 α": (lambda x, rate: simulate_dynamic(x, rate, switch_at=1.5 * rate), 1.0),
    "hard budget": (lambda x, rate: simulate_dynamic(x, rate, hard=True), 1.0),
    "quantile": (simulate_quantile, 0.1),
    f"quantile {WINDOW}": (lambda x, rate: simulate_quantile(x, rate, window=WINDOW), 0.04),
}


def measure_shapes(rng: np.random.Generator, streams: int, length: int, rate: float) -> list[Row]:
    """The achieved rate of every policy on every shape of entropies."""
    rows = []
    for shape, child in zip(SHAPES, rng.spawn(len(SHAPES)), strict=True):
        entropies = draw_entropies(child, shape, length, streams)
        for name, (decide, share) in POLICIES.items():
            used = max(1, round(share * streams))
            rows.append(
                {"entropies": shape, "policy": name, **_summary(decide(entropies[:, :used].copy(), rate))}
            )
    return rows


def _summary(trace: RateTrace) -> Row:
    rates = trace.rate_after(len(trace.asks))
    return {
        "rate": float(rates.mean()),
        "low_95": float(np.quantile(rates, 0.025)),
        "high_95": float(np.quantile(rates, 0.975)),
        "rate_last_fifth": float(trace.asks[-math.ceil(len(trace.asks) / 5) :].mean()),
        "share_strict": float(trace.strict.mean()),
        "streams": trace.asks.shape[1],
    }


def measure_limits(rng: np.random.Generator, samples: int, rate: float) -> list[Row]:
    """What the rate of Algorithm 1 tends to on each shape that does not drift, from its tails alone."""
    rows = []
    steady = [shape for shape in SHAPES if not shape.endswith("std")]
    for shape, child in zip(steady, rng.spawn(len(steady)), strict=True):
        entropies = draw_entropies(child, shape, samples, 1)
        scores = (entropies - entropies.mean()) / entropies.std()
        share, strict = (float(np.mean(scores > NormalDist().inv_cdf(1 - p))) for p in (rate, rate / 2))
        rows.append(
            {
                "entropies": shape,
                "share_above": share,
                "share_above_strict": strict,
                "limit": limit_rate(rate, share, strict),
                "limit_appendix": limit_rate(1.5 * rate, share, strict),
            }
        )
    return rows


def measure_convergence(rng: np.random.Generator, streams: int, length: int, rate: float) -> list[Row]:
    """R_N over N for normal entropies: the case that is proved."""
    entropies = draw_entropies(rng, "normal", length, streams)
    printed = simulate_dynamic(entropies, rate)
    appendix = simulate_dynamic(entropies, rate, switch_at=1.5 * rate)
    rows = []
    for samples in sorted({n for n in (100, 300, 1000, 3000, 10_000, 30_000) if n < length} | {length}):
        row: Row = {"samples": samples, "expected": expected_rate_under_switch(rate, samples)}
        for name, trace in (("printed", printed), ("appendix", appendix)):
            rates = trace.rate_after(samples)
            row[f"{name}_rate"] = float(rates.mean())
            row[f"{name}_off_by_a_fifth"] = float(np.mean(np.abs(rates - rate) >= 0.2 * rate))
            row[f"{name}_strict"] = float(trace.strict[:samples].mean())
        rows.append(row)
    return rows
