"""From the record of a run to the numbers of a row."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import DataError
from taps.stream.record import COLUMNS, PREDICTIONS, read_events

if TYPE_CHECKING:
    from taps.stream.tally import Tally

Floats = NDArray[np.float64]
BINS = 15
# As `taps eval` wrote them once.
OLD_COLUMNS = ("t", "key", *(name for name in COLUMNS[2:] if name != "score"))
NUMBERS = ("correct", "top5", "probability", "entropy", "threshold", "asked", "seconds")


@dataclass(frozen=True)
class Run:
    """The predictions of one run, one array a column, in the order of the stream.

    Attributes:
        keys: Which image.
        labels: Its class, by name.
        correct: 1 where the prediction was right.
        top5: 1 where the class was among the five likeliest.
        probability: Of the predicted class.
        entropy: What the query decision was made on, nats.
        threshold: What it was compared with; infinite where nothing is ever asked.
        asked: 1 where the expert was asked.
        seconds: From decoded image to prediction.
    """

    keys: list[str]
    labels: list[str]
    correct: Floats
    top5: Floats
    probability: Floats
    entropy: Floats
    threshold: Floats
    asked: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.keys)

    def first(self, n: int) -> Run:
        """The same run as if it had stopped after `n` images."""
        return Run(*(getattr(self, name)[:n] for name in self.__dataclass_fields__))


def read_run(folder: Path) -> Run:
    """Read `predictions.csv` of one run; a line that was cut off by a kill is left out."""
    path = folder / PREDICTIONS
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); run the evaluation with --resume.") from error
    # Only "\n" ends a line here: names may hold other characters that `splitlines` would break at.
    rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
    if not rows or tuple(rows[0]) not in (COLUMNS, OLD_COLUMNS):
        raise DataError(f"{path} does not begin with {','.join(COLUMNS)}; it was not made by `taps eval`.")
    try:
        columns = list(zip(*rows[1:], strict=True)) or [()] * len(rows[0])
        named = dict(zip(["path" if name == "key" else name for name in rows[0]], columns, strict=True))
        numbers = {name: np.array(named[name], dtype=np.float64) for name in NUMBERS}
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); remove its folder and run with --resume.") from error
    return Run(list(named["path"]), list(named["label"]), **numbers)


def answers_at(folder: Path) -> list[int]:
    """Places in the stream whose labels were given to the method, in the order they were given."""
    return [event["t"] for event in read_events(folder) if event["event"] == "answered"]


def score(run: Run, tally: Tally, summary: dict[str, Any], asked: int) -> dict[str, Any]:
    """The numbers of one row."""
    n = len(run)
    if n == 0:
        raise DataError(
            "Not one image of this stream could be read; check the data set with `taps data check`."
        )
    return {
        "n": n,
        "broken": tally.broken,
        "top1": float(run.correct.mean()),
        "top5": float(run.top5.mean()),
        "asked": asked,
        "answered": tally.answered,
        "rate": asked / n,
        "buffer_fill": summary.get("buffer_fill", 0),
        "buffer_full": summary.get("buffer_full", False),
        "buffer_classes": summary.get("buffer_classes", {}),
        "ms_p50": 1000 * float(np.percentile(run.seconds, 50)),
        "ms_p95": 1000 * float(np.percentile(run.seconds, 95)),
        "peak_mem_mb": tally.peak_mem_mb,
        "ece": calibration_error(run.probability, run.correct),
        "overhead": overhead(tally),
        "notes": summary.get("notes", []),
    }


def overhead(tally: Tally) -> float:
    """Time of the evaluation itself as a share of the method's own."""
    spent = tally.wall_s - tally.decode_s - tally.method_s
    return max(0.0, spent) / tally.method_s if tally.method_s else 0.0


def bins_of(probability: Floats, count: int = BINS) -> NDArray[np.int64]:
    """Which of `count` equal bins of (0, 1] each probability falls into."""
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
