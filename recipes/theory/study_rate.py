"""What is measured of Proposition 2: the share of samples asked about, against the share that was meant."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rate import (
    MEAN,
    SHAPES,
    STD,
    FloatArray,
    RateTrace,
    draw_entropies,
    expected_rate_under_switch,
    first_askable,
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


def measure_warmup(rng: np.random.Generator, streams: int, length: int, rate: float) -> list[Row]:
    """How long a τ0 that does not fit the entropies is felt; normal entropies, Algorithm 1."""
    rows = []
    entropies = draw_entropies(rng, "normal", length, streams)
    for exceeding in (0.01, 0.05, 0.5, 0.95):
        tau0 = MEAN + STD * NormalDist().inv_cdf(1 - exceeding)
        asks = simulate_dynamic(entropies, rate, tau0=tau0).asks
        running = np.cumsum(asks, axis=0) / np.arange(1, length + 1)[:, None]
        # The first sample after the warm-up by which less than the rate has been asked about.
        back = np.where((running[29:] < rate).any(axis=0), 30 + (running[29:] < rate).argmax(axis=0), length)
        rows.append(
            {
                "share_above_tau0": exceeding,
                "asked_in_warmup": float(asks[:29].sum(axis=0).mean()),
                **{f"rate_{n}": float(asks[:n].mean()) for n in (100, 1000) if n <= length},
                "rate_end": float(asks.mean()),
                "samples_until_below_rate": float(np.median(back)),
            }
        )
    return rows


def measure_first_askable() -> list[Row]:
    """From which sample on Algorithm 1 can ask at all, since each sample is part of its own mean."""
    rows = []
    for rate in (0.1, 0.05, 0.01, 0.001):
        z, high = (NormalDist().inv_cdf(1 - share) for share in (rate, rate / 2))
        rows.append(
            {
                "rate": rate,
                "z": z,
                "first_sample": first_askable(z),
                "z_high": high,
                "first_strict": first_askable(high),
            }
        )
    return rows


def draw_rate_curves(
    rng: np.random.Generator, streams: int, length: int, rate: float
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """R_N of normal entropies at some N, by policy: 5 %, median, 95 % of the streams, and their mean."""
    entropies = draw_entropies(rng, "normal", length, streams)
    at = np.unique(np.geomspace(100, length, 60).astype(np.int64))
    curves = {}
    for name in ("Algorithm 1", "switch 1.5 α", "quantile"):
        decide, share = POLICIES[name]
        trace = decide(entropies[:, : max(1, round(share * streams))], rate)
        running = np.cumsum(trace.asks, axis=0)[at - 1] / at[:, None]
        curves[name] = np.vstack([np.quantile(running, (0.05, 0.5, 0.95), axis=1), running.mean(axis=1)])
    return at, curves
