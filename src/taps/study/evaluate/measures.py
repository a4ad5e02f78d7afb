"""Every measure of a run by its name, and as a function of arrays with one value an image. Numpy only.

A row of `results.json` has them under `measures`, name → number. A measure that does not apply is absent:
there is no AUROC where every image is of some class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import SettingsError
from taps.registry import nearest

Floats = NDArray[np.float64]
BINS = 15
WINDOW = 20  # images after a change
LEAST = 1e-12  # probability below which a loss grows no further
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
        found = [row["measures"].get(self.of or self.name) for row in rows]
        return [] if None in found else found

    def pooled(self, rows: Sequence[Mapping[str, Any]]) -> float | None:
        """One number for several runs of a method on a data set; None where one does not have it."""
        values = self.values(rows)
        return self.pool(values) if values else None


_ALL = (
    Measure("top1", "top-1", "%", "higher", "Images whose predicted class is right."),
    Measure("final", "in the end", "%", "higher", "Images without an answer, right when predicted again."),
    Measure("delivered", "delivered", "%", "higher", "Labels right in the end, the answered ones too."),
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
    Measure("after_change", "after change", "%", "higher", "Top-1 of the 20 images after each change."),
    Measure("drift_drop", "drop", "%", "lower", "How much lower that is than later in the same phase."),
    Measure("recovery", "recovery", "images", "lower", "Images until accuracy has recovered.", digits=0),
    Measure("rate", "asked", "%", "lower", "Images asked about."),
    Measure("ms_p50", "time", "ms", "lower", "From pixels to prediction, median image.", median, digits=1),
    Measure("ms_p95", "time p95", "ms", "lower", "95 % of images take less.", median, digits=1),
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
        every, meant = ", ".join(MEASURES), nearest(unknown[0], MEASURES)
        raise SettingsError(f"Unknown measure {unknown[0]!r}: use some of {every}, or all.{meant}")
    return [MEASURES[name] for name in (MEASURES if "all" in names else names)]


def per_class(labels: Sequence[str] | Floats, correct: Floats) -> float:
    """Mean of the accuracies of the classes that occurred.

    >>> per_class(["a", "a", "b"], np.array([1.0, 0.0, 1.0]))
    0.75
    """
    _, place = np.unique(np.asarray(labels), return_inverse=True)
    return float((np.bincount(place, weights=correct) / np.bincount(place)).mean())


def bins_of(probability: Floats, count: int = BINS) -> NDArray[np.int64]:
    """The index of each probability among `count` equal bins of (0, 1]."""
    return np.clip(np.ceil(probability * count).astype(np.int64) - 1, 0, count - 1)


def reliability(probability: Floats, correct: Floats, count: int = BINS) -> tuple[Floats, Floats, Floats]:
    """Share of images, mean confidence and accuracy of each bin; zeros where a bin is empty."""
    place = bins_of(probability, count)
    size = np.bincount(place, minlength=count).astype(np.float64)
    safe = np.maximum(size, 1)
    confidence = np.bincount(place, weights=probability, minlength=count) / safe
    accuracy = np.bincount(place, weights=correct, minlength=count) / safe
    return size / max(len(probability), 1), confidence, accuracy


def calibration_error(probability: Floats, correct: Floats, count: int = BINS) -> float:
    """Expected calibration error: mean distance between confidence and accuracy over bins, weighted by size.

    >>> calibration_error(np.array([0.9, 0.9]), np.array([1.0, 0.0]))
    0.4
    """
    share, confidence, accuracy = reliability(probability, correct, count)
    return float(share @ np.abs(confidence - accuracy))


def adaptive_calibration_error(probability: Floats, correct: Floats, count: int = BINS) -> float:
    """The same over bins of equally many images, or of one more: sorted by confidence and cut."""
    order = np.argsort(probability, kind="stable")
    gaps = np.array_split((probability - correct)[order], count)
    return float(sum(abs(gap.sum()) for gap in gaps) / len(probability))


def brier(squares: Floats, of_label: Floats) -> float:
    """Mean over images of Σ_k (p_k − [k is the class])².

    Args:
        squares: Σ_k p_k² of each image.
        of_label: Probability of its class.
    """
    return float((squares - 2 * of_label + 1).mean())


def log_loss(of_label: Floats) -> float:
    """Mean of −log of the probability of the class, in nats; a probability counts as 1e-12 at least."""
    return float(-np.log(np.maximum(of_label, LEAST)).mean())


def auroc(score: Floats, outside: NDArray[np.bool_]) -> float:
    """Chance that an image of no class has a higher score than one of a class; ties count half."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]  # from 1 on, ties share theirs
    n = int(outside.sum())
    return float((rank[outside].sum() - n * (n + 1) / 2) / (n * (len(score) - n)))


def fpr95(score: Floats, outside: NDArray[np.bool_]) -> float:
    """Share of the images of no class that are let in by the lowest limit that lets in 95 % of the others."""
    inside = np.sort(score[~outside])
    limit = inside[int(np.ceil(0.95 * len(inside) - 1e-9)) - 1]
    return float((score[outside] <= limit).mean())


def drift(phase: Floats, correct: Floats, window: int = WINDOW) -> dict[str, float]:
    """What a change of the stream does; nothing where there is none.

    A phase is a run of images between two changes: a class, a domain, a time of other shares. After every
    change but the first phase's beginning, `after_change` is the accuracy of the next `window` images (or the
    first half of a shorter phase); `drift_drop` is how much higher it is in the rest of the phase; `recovery`
    is how many images pass until the mean of the last `window` reaches that of the rest, all of them where it
    never does. Phases of one image say nothing; the others count alike.
    """
    starts = np.flatnonzero(np.diff(phase)) + 1
    parts = [part for part in np.split(correct, starts)[1:] if len(part) > 1]
    found = [_after(part, min(window, len(part) // 2)) for part in parts]
    if not found:
        return {}
    return dict(zip(("after_change", "drift_drop", "recovery"), np.mean(found, axis=0).tolist(), strict=True))


def _after(part: Floats, window: int) -> tuple[float, float, float]:
    first, settled = float(part[:window].mean()), float(part[window:].mean())
    sums = np.cumsum(np.concatenate([[0.0], part]))
    # Differences of running sums round: a mean equal to `settled` must count as reached.
    reached = np.flatnonzero((sums[window:] - sums[:-window]) / window >= settled - 1e-12)
    return first, settled - first, float(window + reached[0] if len(reached) else len(part))
