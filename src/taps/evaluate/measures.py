"""Every measure of a run by its name: its title, its unit, which way is better, how runs are pooled.

A row of `results.json` has them under `measures`, name → number. A measure that does not apply is absent:
there is no AUROC where every image is of some class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.errors import SettingsError

INTERVALS = (50, 250, 1000)  # ms from image to image, under Tempora's clock
Pool = Callable[[Sequence[float]], float]


def mean(values: Sequence[float]) -> float:
    """The mean over orders."""
    return float(np.mean(values))


def median(values: Sequence[float]) -> float:
    """The median over orders: one slow moment of the machine does not count."""
    return float(np.median(values))


def mean_of_lowest_tenth(values: Sequence[float]) -> float:
    """Mean of the lowest tenth of the orders, of one at least: what to expect when luck is bad.

    >>> mean_of_lowest_tenth([0.5, 0.75, 0.25])
    0.25
    """
    return float(np.mean(sorted(values)[: math.ceil(len(values) / 10)]))


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes:
        name: In `results.json` and for `--measures`.
        title: In tables.
        unit: "%" (numbers are stored as shares from 0 to 1), "ms", "MB", "images", or "" for plain numbers.
        better: "higher" or "lower".
        description: In one sentence.
        pool: From the numbers of a method's orders to the one in a table.
        of: The measure whose numbers are pooled; by default this one.
        digits: After the point, in tables.
    """

    name: str
    title: str
    unit: str
    better: str
    description: str
    pool: Pool = mean
    of: str = ""
    digits: int = 2

    @property
    def sign(self) -> int:
        """1 where higher is better, else −1."""
        return 1 if self.better == "higher" else -1

    @property
    def scale(self) -> int:
        """From the number that is stored to the one that is shown."""
        return 100 if self.unit == "%" else 1

    @property
    def heading(self) -> str:
        """Title with the unit, for the head of a column: "top-1 %"."""
        return f"{self.title} {self.unit}".strip()

    def text(self, value: float) -> str:
        """A number as tables show it, without the unit."""
        return f"{self.scale * value:z,.{self.digits}f}"

    def values(self, rows: Sequence[Mapping[str, Any]]) -> list[float]:
        """The numbers of rows of `results.json`, one a run; none where a run does not have the measure."""
        # Rows of older versions have no `measures`; some of them are in the row itself.
        found = [row.get("measures", row).get(self.of or self.name) for row in rows]
        return [] if None in found else found

    def pooled(self, rows: Sequence[Mapping[str, Any]]) -> float | None:
        """One number for several runs of a method on a data set; None where one does not have it."""
        values = self.values(rows)
        return self.pool(values) if values else None


_ALL = (
    Measure("top1", "top-1", "%", "higher", "Images whose predicted class is right."),
    Measure("final", "in the end", "%", "higher", "Images right when all are predicted again, or answered."),
    Measure("top5", "top-5", "%", "higher", "Images whose class is among the five likeliest."),
    Measure("per_class", "per class", "%", "higher", "Mean accuracy of the classes that occurred."),
    Measure(
        *("worst_tenth", "worst tenth", "%", "higher"),
        "Top-1 in the tenth of the orders where it is lowest, one at least.",
        mean_of_lowest_tenth,
        of="top1",
    ),
    Measure("ece", "ECE", "%", "lower", "Expected calibration error, 15 bins of equal width."),
    Measure("adaptive_ece", "adaptive ECE", "%", "lower", "The same over 15 bins of equally many images."),
    Measure("brier", "Brier", "", "lower", "Squared distance from the probabilities to the class.", digits=3),
    Measure("log_loss", "log-loss", "", "lower", "−log of the probability of the class, nats.", digits=3),
    Measure("auroc_max", "AUROC max p", "%", "higher", "Images of no class found by low top probability."),
    Measure("auroc_entropy", "AUROC entropy", "%", "higher", "Images of no class found by high entropy."),
    Measure("auroc_reject", "AUROC reject", "%", "higher", "The same, by the method's own score."),
    Measure("fpr95_max", "FPR95 max p", "%", "lower", "Images of no class let in with 95 % of the others."),
    Measure("fpr95_entropy", "FPR95 entropy", "%", "lower", "The same, by entropy."),
    Measure("fpr95_reject", "FPR95 reject", "%", "lower", "The same, by the method's own score."),
    Measure("acc_known", "known", "%", "higher", "Images of a class that are let in and right (ROSITA)."),
    Measure("acc_unknown", "unknown", "%", "higher", "Images of no class that are rejected (ROSITA)."),
    Measure("acc_hm", "harmonic mean", "%", "higher", "Harmonic mean of both (ROSITA's Acc_HM)."),
    Measure("after_change", "after change", "%", "higher", "Top-1 of the 20 images after each change."),
    Measure("drift_drop", "drop", "%", "lower", "How much lower that is than later in the same phase."),
    Measure("recovery", "recovery", "images", "lower", "Images until accuracy has recovered.", digits=0),
    Measure("mce", "mCE", "%", "lower", "Error under 15 corruptions relative to zero_shot's, mean."),
    Measure("rate", "asked", "%", "lower", "Images asked about."),
    Measure("ms_p50", "time", "ms", "lower", "From pixels to prediction, median image.", median, digits=1),
    Measure("ms_p95", "time p95", "ms", "lower", "95 % of images take less.", median, digits=1),
    *(
        Measure(
            *(f"utility_{ms}", f"utility {ms} ms", "%", "higher"),
            f"Images served in time and right when one comes every {ms} ms (Tempora).",
        )
        for ms in INTERVALS
    ),
    Measure("adapt_ms", "adaptation", "ms", "lower", "Time beyond a zero-shot pass.", median, digits=1),
    Measure("peak_mem_mb", "memory", "MB", "lower", "Highest memory of the run.", digits=0),
)
MEASURES = {measure.name: measure for measure in _ALL}
SHORT = ("top1", "final", "ece", "rate", "ms_p50")
"""What tables show unless others are asked for."""


def find_measures(names: Sequence[str]) -> list[Measure]:
    """Measures by name; `all` means every one."""
    unknown = [name for name in names if name not in MEASURES and name != "all"]
    if unknown:
        raise SettingsError(f"Unknown measure {unknown[0]!r}: use some of {', '.join(MEASURES)}, or all.")
    return [MEASURES[name] for name in (MEASURES if "all" in names else names)]
