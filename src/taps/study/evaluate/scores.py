"""From the record of a run to the numbers of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import DataError
from taps.files import csv_rows
from taps.streams.log import ANSWERED
from taps.streams.record import COLUMNS, PREDICTIONS, columns_of, read_events, whole_lines
from taps.study.evaluate import measures

if TYPE_CHECKING:
    from taps.streams.score import RunningScore

Floats = NDArray[np.float64]
NUMBERS = (
    *("correct", "top5", "probability", "view_entropy", "threshold", "asked", "seconds"),
    *("of_truth", "squares", "reject", "truth_index", "final_correct", "outside", "phase"),
)
ADDED = "final_answered"  # a column that runs of 0.2 and before do not have
SUMMARY: dict[str, Any] = {"questions": {}, "seconds": 0.0, "notes": [], "buffer_fill": 0}
SUMMARY |= {"buffer_full": False, "buffer_classes": {}}
"""What a row has of a learner's summary, and its values where the method does not give them."""


@dataclass(frozen=True)
class Run:
    """The predictions of one run, one array a column, in the order of the stream.

    Attributes:
        paths: The images.
        truths: The image's class by name.
        correct: 1 where the prediction was right; so are `top5` and `asked`.
        probability: Of the predicted class.
        view_entropy: H_t in nats.
        threshold: What the query decision compared with; infinite where nothing is ever asked.
        seconds: From decoded image to prediction.
        of_truth: Probability of the image's class.
        squares: Sum of the squared probabilities of all classes.
        reject: Probability that the image is of no class, by the method.
        outside: 1 where the image is of no class; it is neither right nor wrong then.
        phase: Counts the changes of the stream so far.
        truth_index: The image's class by index: two classes may have one name.
        final_correct: 1 where it was right in the end, predicted again or answered; NaN where it was neither.
        final_answered: 1 where it was answered, 0 where it was predicted again.
    """

    paths: list[str]
    truths: list[str]
    correct: Floats
    top5: Floats
    probability: Floats
    view_entropy: Floats
    threshold: Floats
    asked: Floats
    seconds: Floats
    of_truth: Floats
    squares: Floats
    reject: Floats
    outside: Floats
    phase: Floats
    truth_index: Floats
    final_correct: Floats
    final_answered: Floats

    def __len__(self) -> int:
        return len(self.paths)

    def first(self, n: int) -> Run:
        """The same run as if it had stopped after `n` images."""
        if n >= len(self):
            return self
        cut = Run(*(getattr(self, name)[:n] for name in self.__dataclass_fields__))
        return replace(cut, final_correct=np.full(n, np.nan))  # later images had a say in it

    @cached_property
    def inside(self) -> Run:
        """The images that are of some class: those that accuracy and calibration are about."""
        if not self.outside.any():
            return self
        kept = self.outside == 0
        numbers = {name: getattr(self, name)[kept] for name in (*NUMBERS, ADDED)}
        return Run(list(compress(self.paths, kept)), list(compress(self.truths, kept)), **numbers)


def read_run(folder: Path) -> Run:
    """Read `predictions.csv` of one run, without a last line that was cut off by a kill."""
    path = folder / PREDICTIONS
    try:
        rows = list(csv_rows(whole_lines(path)))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); run the evaluation with --resume.") from error
    header = columns_of(rows[0] if rows else [])
    if not {"path", "truth", *NUMBERS} <= set(header):
        raise DataError(f"{path} does not begin with {','.join(COLUMNS)}; it was not made by `taps eval`.")
    try:
        # A run that an older version began has longer rows where this one continued it: the header counts.
        columns = list(zip(*(row[: len(header)] for row in rows[1:]), strict=True)) or [()] * len(header)
        named = dict(zip(header, columns, strict=True))
        numbers = {name: _numbers(named[name]) for name in NUMBERS}
        numbers[ADDED] = _numbers(named.get(ADDED, [""] * len(rows[1:])))
        numbers["threshold"][np.isnan(numbers["threshold"])] = np.inf  # an empty cell: nothing passes it
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); remove its folder and run with --resume.") from error
    return Run(list(named["path"]), list(named["truth"]), **numbers)


def _numbers(cells: Sequence[str]) -> Floats:
    """Cells as numbers; NaN where a cell is empty: an image of no class is neither right nor wrong."""
    return np.array([cell or "nan" for cell in cells], dtype=np.float64)


def answers_at(folder: Path) -> list[int]:
    """Places in the stream whose labels were given to the method, in the order they were given."""
    return [event["t"] for event in read_events(folder) if event["event"] == ANSWERED]


def measured(run: Run) -> dict[str, float]:
    """Every measure that can be read off the predictions of a run; see `taps.study.evaluate.measures`."""
    inside = run.inside
    classes = inside.truth_index
    found = {
        "top1": float(inside.correct.mean()),
        "final": _mean(inside.final_correct[inside.final_answered == 0]),
        "delivered": _mean(inside.final_correct),
        "top5": float(inside.top5.mean()),
        "per_class": measures.per_class(classes, inside.correct),
        "ece": measures.calibration_error(inside.probability, inside.correct),
        "adaptive_ece": measures.adaptive_calibration_error(inside.probability, inside.correct),
        "brier": measures.brier(inside.squares, inside.of_truth),
        "log_loss": measures.log_loss(inside.of_truth),
        **measures.drift(inside.phase, inside.correct),
        "rate": float(run.asked.mean()),
        "ms_p50": 1000 * float(np.percentile(run.seconds, 50)),
        "ms_p95": 1000 * float(np.percentile(run.seconds, 95)),
    }
    outside = run.outside > 0
    if outside.any():
        for name, score in (("max", -run.probability), ("entropy", run.view_entropy), ("reject", run.reject)):
            if np.isfinite(score).all() and score.any():
                found[f"auroc_{name}"] = measures.auroc(score, outside)
                found[f"fpr95_{name}"] = measures.fpr95(score, outside)
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def score(
    run: Run, running: RunningScore, summary: dict[str, Any], asked: int, zero_shot_ms: float | None = None
) -> dict[str, Any]:
    """The numbers of one row, from the predictions, the counts and the learner's summary.

    `zero_shot_ms` is the time of a zero-shot pass in the same process, where it was measured.
    """
    n = len(run)
    if len(run.inside) == 0:
        raise DataError("No image of this stream can be read; check the data set with `taps data check`.")
    values = {**measured(run), "rate": asked / n, "peak_mem_mb": running.peak_mem_mb}
    if zero_shot_ms is not None:
        values["adapt_ms"] = values["ms_p50"] - zero_shot_ms
    bins = measures.reliability(run.inside.probability, run.inside.correct)
    columns = ("top1", "top5", "ece", "rate", "ms_p50", "ms_p95", "peak_mem_mb")
    return {
        "n": n,
        "outside": n - len(run.inside),
        "broken": running.broken,
        "asked": asked,
        "answered": running.answered,
        **{name: values[name] for name in columns},
        **{name: summary.get(name, default) for name, default in SUMMARY.items()},
        "overhead": overhead(running),
        "measures": values,
        "reliability": {name: bins[i].tolist() for i, name in enumerate(("share", "confidence", "accuracy"))},
    }


def overhead(running: RunningScore) -> float:
    """Time of the evaluation itself as a share of the method's own."""
    spent = running.wall_s - running.decode_s - running.method_s
    return max(0.0, spent) / running.method_s if running.method_s else 0.0
