"""What is measured of Proposition 1: whether, when and in which sense the buffer becomes balanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from balance import (
    BalanceTrace,
    draw_labels,
    draw_losses,
    first_time,
    lowest_imbalance,
    samples_until_bound_means_anything,
    simulate_balance,
    zipf,
)
from numpy.typing import NDArray

from taps.data.sets import named_sets

Row = dict[str, Any]

BLOCK = 500
"""Streams simulated together: more would not fit the processor's cache."""


@dataclass(frozen=True)
class BalanceSetting:
    """A kind of stream and the buffer it goes through.

    Attributes:
        classes: K.
        capacity: L.
        exponent: Classes are drawn with probability ∝ rank^−exponent; 0 is uniform.
        missing: How many of the classes never come.
        losses: "random", "by class" or "equal", as `draw_losses` has them.
    """

    classes: int
    capacity: int
    exponent: float = 0.0
    missing: int = 0
    losses: str = "random"

    @property
    def shares(self) -> NDArray[np.float64]:
        """Probability of each class."""
        return np.append(zipf(self.classes - self.missing, self.exponent), np.zeros(self.missing))

    @property
    def classes_drawn(self) -> str:
        """How classes are drawn, in two words."""
        shape = f"Zipf {self.exponent:g}" if self.exponent else "uniform"
        return f"{self.missing} missing" if self.missing else shape


SETTINGS = (
    BalanceSetting(10, 50),
    BalanceSetting(10, 50, losses="by class"),
    BalanceSetting(10, 50, losses="equal"),
    BalanceSetting(10, 51),
    BalanceSetting(10, 55),
    BalanceSetting(50, 150),
    BalanceSetting(47, 150),
    BalanceSetting(100, 150),
    BalanceSetting(200, 150),
    BalanceSetting(10, 50, exponent=1.0),
    BalanceSetting(10, 50, exponent=2.0),
    BalanceSetting(50, 150, exponent=1.0),
    BalanceSetting(10, 50, missing=1),
)


def measure_settings(rng: np.random.Generator, streams: int, length: int) -> list[Row]:
    """One row for each of SETTINGS; `length` labelled samples at most for each stream."""
    children = rng.spawn(len(SETTINGS))
    return [
        _measure(setting, child, streams, length) for setting, child in zip(SETTINGS, children, strict=True)
    ]


def _measure(setting: BalanceSetting, rng: np.random.Generator, streams: int, length: int) -> Row:
    traces = _traces(setting, rng, streams, setting.capacity + length, tail=200)
    even_at = np.concatenate([first_time(trace.is_most_even) for trace in traces])
    reached = even_at >= 0
    scale, rarest = setting.classes, float(setting.shares.min())
    return {
        "classes": setting.classes,
        "buffer": setting.capacity,
        "classes_drawn": setting.classes_drawn,
        "losses": setting.losses,
        "f_when_full": float(np.median(np.concatenate([trace.imbalance[0] for trace in traces]))) / scale,
        "f_lowest": lowest_imbalance(setting.classes, setting.capacity) / scale,
        "share_reaching_lowest": float(reached.mean()),
        "samples_median": float(np.median(even_at[reached])) if reached.any() else None,
        "samples_95": float(np.quantile(even_at[reached], 0.95)) if reached.any() else None,
        "share_reaching_2": float(np.mean(np.concatenate([_reaches_two(trace) for trace in traces]))),
        "rises_per_1000": _rises_per_1000(traces),
        "f_highest_after": _highest_after([trace.imbalance / scale for trace in traces], traces),
        "class_excess_after": _highest_after([t.largest - t.capacity / t.classes for t in traces], traces),
        "bound_needs": None
        if setting.missing
        else samples_until_bound_means_anything(rarest, setting.capacity),
        "streams": streams,
    }


def _traces(
    setting: BalanceSetting, rng: np.random.Generator, streams: int, samples: int, tail: int | None
) -> list[BalanceTrace]:
    traces = []
    for start in range(0, streams, BLOCK):
        labels = draw_labels(rng, setting.shares, min(BLOCK, streams - start), samples)
        losses = draw_losses(rng, setting.losses, labels, setting.classes)
        traces.append(simulate_balance(labels, losses, setting.classes, setting.capacity, tail))
    return traces


def _reaches_two(trace: BalanceTrace) -> NDArray[np.bool_]:
    return np.asarray((trace.imbalance <= 2 * trace.classes).any(axis=0))


def _rises_per_1000(traces: list[BalanceTrace]) -> float:
    """How often f rises from above 0."""
    rises = 0
    for trace in traces:
        rises += int(((np.diff(trace.imbalance, axis=0) > 0) & (trace.imbalance[:-1] > 0)).sum())
    return 1000 * rises / sum(trace.victims.size for trace in traces)


def _highest_after(values: list[NDArray[np.floating[Any]]], traces: list[BalanceTrace]) -> float | None:
    """The highest value in any stream after it has first been most even."""
    was_even = [np.maximum.accumulate(trace.is_most_even, axis=0) for trace in traces]
    highest = max(float(v[even].max(initial=-np.inf)) for v, even in zip(values, was_even, strict=True))
    return highest if np.isfinite(highest) else None


def measure_datasets(rng: np.random.Generator, streams: int, rate: float) -> list[Row]:
    """Whether the paper's sets give its buffer time: all classes equally likely, α of the images labelled."""
    sets = [named for named in named_sets().values() if named.buffer is not None]
    rows = []
    for named, child in zip(sets, rng.spawn(len(sets)), strict=True):
        setting = BalanceSetting(named.classes, named.buffer or 0)
        labelled = int(rate * named.images)
        rows.append(
            {
                "dataset": named.name,
                "classes": named.classes,
                "images": named.images,
                "labelled": labelled,
                "buffer": setting.capacity,
                "f_lowest": lowest_imbalance(setting.classes, setting.capacity) / setting.classes,
                **_within_budget(setting, child, streams, labelled),
                "streams": streams,
            }
        )
    return rows


def _within_budget(setting: BalanceSetting, rng: np.random.Generator, streams: int, labelled: int) -> Row:
    if labelled <= setting.capacity:
        return dict.fromkeys(("f_at_end", "share_reaching_lowest", "share_reaching_2"))
    traces = _traces(setting, rng, streams, labelled, tail=None)
    return {
        "f_at_end": float(np.median(np.concatenate([t.imbalance[-1] for t in traces]))) / setting.classes,
        "share_reaching_lowest": float(np.mean(np.concatenate([t.is_most_even.any(axis=0) for t in traces]))),
        "share_reaching_2": float(np.mean(np.concatenate([_reaches_two(t) for t in traces]))),
    }
