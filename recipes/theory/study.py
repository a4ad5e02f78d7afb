"""Both propositions measured: tables and curves from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study_balance import (
    BalanceSetting,
    Row,
    draw_curves,
    measure_datasets,
    measure_settings,
)
from study_rate import (
    draw_rate_curves,
    measure_convergence,
    measure_first_askable,
    measure_limits,
    measure_shapes,
    measure_warmup,
)

from taps.asking.base import check_rate
from taps.errors import SettingsError

SHORTEST = 200


@dataclass(frozen=True)
class Study:
    """What was measured.

    Attributes:
        settings: What it was measured with.
        tables: Rows by the name of their table.
        balance_curves: f over the labelled samples, for the figure.
        rate_curves: R_N over N, for the figure.
    """

    settings: dict[str, Any]
    tables: dict[str, list[Row]]
    balance_curves: list[tuple[BalanceSetting, NDArray[np.float64]]] | None = None
    rate_curves: tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]] | None = None


def study_balance(streams: int, length: int, seed: int, rate: float) -> Study:
    """Proposition 1. A quarter of the streams for each setting, a tenth for each data set."""
    settings = _checked(streams, length, seed, rate)
    fewer = max(1, streams // 4)
    tables = {
        "balance": measure_settings(np.random.default_rng([seed, 1]), fewer, length),
        "datasets": measure_datasets(np.random.default_rng([seed, 2]), max(1, streams // 10), rate),
    }
    curves = draw_curves(np.random.default_rng([seed, 3]), max(1, streams // 10), min(length, 1000))
    return Study(settings, tables, balance_curves=curves)


def study_rate(streams: int, length: int, seed: int, rate: float) -> Study:
    """Proposition 2. All streams for the case that is proved, half of them for each other shape."""
    settings = _checked(streams, length, seed, rate)
    half = max(1, streams // 2)
    tables = {
        "convergence": measure_convergence(np.random.default_rng([seed, 4]), streams, length, rate),
        "shapes": measure_shapes(np.random.default_rng([seed, 5]), half, length, rate),
        "limits": measure_limits(np.random.default_rng([seed, 8]), 200 * streams, rate),
        "warmup": measure_warmup(np.random.default_rng([seed, 6]), half, length, rate),
        "first_question": measure_first_askable(),
    }
    curves = draw_rate_curves(np.random.default_rng([seed, 7]), half, length, rate)
    return Study(settings, tables, rate_curves=curves)


def study_all(streams: int, length: int, seed: int, rate: float) -> Study:
    """Both; the numbers are those of each alone."""
    balance, of_rate = (study(streams, length, seed, rate) for study in (study_balance, study_rate))
    return Study(
        balance.settings, {**balance.tables, **of_rate.tables}, balance.balance_curves, of_rate.rate_curves
    )


def _checked(streams: int, length: int, seed: int, rate: float) -> dict[str, Any]:
    if streams < 1:
        raise SettingsError(f"streams={streams} leaves nothing to simulate; use at least 1.")
    if length < SHORTEST:
        raise SettingsError(
            f"length={length} is too short to show anything; use at least {SHORTEST} samples."
        )
    if seed < 0:
        raise SettingsError(f"seed={seed} is negative; use a whole number, 0 or more.")
    return {"streams": streams, "length": length, "seed": seed, "rate": check_rate(rate)}
