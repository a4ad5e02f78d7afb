"""One learner over one stream of images, with a record on disk that survives being killed at any moment."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from taps.data.dataset import Dataset
from taps.errors import DataError, ImageError
from taps.files import write_text
from taps.learner import Learner
from taps.types import Prediction, Query

PREDICTIONS, EVENTS, SUMMARY, STATE = "predictions.csv", "events.jsonl", "summary.json", "state"
COLUMNS = ("path", "predicted", "probability", "entropy", "threshold", "asked", "label")


class Oracle(Protocol):
    """Whoever answers: the folder's own labels, a person, nobody."""

    def answer(self, query: Query) -> int | str | None: ...


@dataclass
class Tally:
    """Counts of a run so far."""

    position: int = 0  # samples of the stream dealt with, broken ones too
    broken: int = 0
    known: int = 0  # predictions whose label is known
    correct: int = 0
    answered: int = 0

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.known if self.known else None


class Record:
    """The files of one run. `commit` makes everything so far durable as one step."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.predictions = (out / PREDICTIONS).open("ab")
        self.events = (out / EVENTS).open("ab")
        if self.predictions.tell() == 0:
            self._row(COLUMNS)

    def _row(self, values: Sequence[Any]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(values)
        self.predictions.write(line.getvalue().encode())

    def event(self, kind: str, **values: Any) -> None:
        """Append an event; it is on its way to the disk before this returns."""
        self.events.write((json.dumps({"event": kind, **values}) + "\n").encode())
        self.events.flush()

    def row(self, path: str, predicted: str, prediction: Prediction, label: str) -> None:
        self._row(
            (
                path,
                predicted,
                f"{prediction.probs[prediction.index]:.6f}",
                f"{prediction.entropy:.6f}",
                f"{prediction.threshold:.6f}",
                int(prediction.ask),
                label,
            )
        )

    def commit(self, learner: Learner, tally: Tally) -> None:
        """Rows, then the learner; its index, renamed last, says which progress file belongs to it."""
        for file in (self.predictions, self.events):
            file.flush()
            os.fsync(file.fileno())
        sizes = {"predictions": self.predictions.tell(), "events": self.events.tell()}
        progress = _progress_file(self.out, learner)
        progress.parent.mkdir(parents=True, exist_ok=True)
        write_text(progress, json.dumps({"tally": vars(tally), **sizes}))
        learner.save(self.out / STATE)
        for old in progress.parent.glob("progress-*"):
            if old != progress:
                old.unlink()

    def close(self) -> None:
        self.predictions.close()
        self.events.close()


def _progress_file(out: Path, learner: Learner) -> Path:
    return out / STATE / f"progress-{learner.seen}-{learner.answered}.json"


def open_run(
    out: Path, make_learner: Callable[[], Learner], *, resume: bool
) -> tuple[Learner, Tally, Record]:
    """Start a run in an empty directory, or go on with one that was stopped."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise DataError(
            f"The output directory {out} cannot be written ({error.strerror}); choose another."
        ) from error
    saved = (out / STATE / "learner.json").is_file()
    if not resume:
        if saved or (out / PREDICTIONS).exists():
            raise DataError(
                f"{out} holds a run already; add --resume to go on with it, or choose another directory."
            )
        return make_learner(), Tally(), Record(out)
    if not saved:  # killed before the first commit: nothing to go on with, so the run starts again
        for file in (PREDICTIONS, EVENTS):
            (out / file).unlink(missing_ok=True)
        return make_learner(), Tally(), Record(out)
    fresh = make_learner()
    learner = Learner.load(out / STATE, clip=fresh.clip)
    _check_same(fresh, learner, out)
    progress = json.loads(_progress_file(out, learner).read_text())
    for file, size in ((PREDICTIONS, progress["predictions"]), (EVENTS, progress["events"])):
        os.truncate(out / file, size)
    return learner, Tally(**progress["tally"]), Record(out)


def _check_same(asked: Learner, saved: Learner, out: Path) -> None:
    """Refuse to go on with other settings than the run began with."""
    for name in ("method_name", "classes", "seed"):
        if getattr(asked, name) != getattr(saved, name):
            raise DataError(
                f"The run in {out} was begun with another {name.removesuffix('_name')}; choose another --out."
            )
    for field in fields(asked.settings):
        if field.name not in ("prompts", "source"):
            mine, theirs = getattr(asked.settings, field.name), getattr(saved.settings, field.name)
            if mine != theirs:
                raise DataError(
                    f"The run in {out} was begun with {field.name}={theirs!r}, not {mine!r}; "
                    "choose another --out."
                )


def run_stream(
    learner: Learner,
    dataset: Dataset,
    order: Sequence[int],
    oracle: Oracle | None,
    record: Record,
    tally: Tally,
    *,
    every: int = 25,
    progress: Callable[[Prediction | None, Tally], None] = lambda prediction, tally: None,
) -> list[float]:
    """Predict, commit the prediction, then look at the label; the seconds of each prediction made here."""
    seconds: list[float] = []
    for position in range(tally.position, len(order)):
        sample = dataset.samples[order[position]]
        prediction = None
        try:
            prediction = learner.predict_one(dataset.image(order[position]))
        except ImageError as error:
            tally.broken += 1
            record.event("broken", path=sample.key, error=str(error))
        if prediction is not None:
            seconds.append(prediction.seconds)
            _settle(learner, prediction, sample.key, sample.label, oracle, record, tally)
        tally.position = position + 1
        if tally.position % every == 0 or tally.position == len(order):
            record.commit(learner, tally)
        progress(prediction, tally)
    return seconds


def _settle(
    learner: Learner,
    prediction: Prediction,
    path: str,
    label: int | None,
    oracle: Oracle | None,
    record: Record,
    tally: Tally,
) -> None:
    record.event(
        "predicted",
        id=prediction.id,
        path=path,
        predicted=prediction.label,
        entropy=prediction.entropy,
        threshold=prediction.threshold,
        asked=prediction.ask,
        seconds=prediction.seconds,
    )
    answer = oracle.answer(Query(prediction.id, path, prediction)) if oracle and prediction.ask else None
    predicted, index = prediction.label, prediction.index
    if answer is not None:
        learner.learn_one(prediction.id, answer)
        tally.answered += 1
        given = learner.class_index(answer)
        record.event("answered", id=prediction.id, label=learner.classes[given])
        if label is None:
            label = given
        if learner.order == "ask_first":
            predicted, index = learner.classes[given], given
    if label is not None:
        tally.known += 1
        tally.correct += index == label
    record.row(path, predicted, prediction, "" if label is None else learner.classes[label])


def summarise(learner: Learner, tally: Tally, out: Path, seconds: Sequence[float]) -> dict[str, Any]:
    """What `summary.json` holds. Latencies are read back from the events, so a resumed run counts whole."""
    times = np.array(_all_seconds(out) or list(seconds) or [0.0]) * 1000
    plain = {
        field.name: value
        if isinstance(value := getattr(learner.settings, field.name), (int, float, str, type(None)))
        else str(value)
        for field in fields(learner.settings)
        if field.name not in ("prompts", "source")
    }
    rate = learner.asked / learner.seen if learner.seen else 0.0
    return {
        "n": learner.seen,
        "broken": tally.broken,
        "top1": tally.accuracy,
        "asked": learner.asked,
        "answered": tally.answered,
        "rate": rate,
        "ms_p50": float(np.percentile(times, 50)),
        "ms_p95": float(np.percentile(times, 95)),
        "peak_rss_mb": peak_rss_mb(),
        "model": learner.clip.config.name,
        "method": learner.method_name,
        "classes": len(learner.classes),
        "seed": learner.seed,
        "settings": plain,
        "learner": learner.summary(),
    }


def _all_seconds(out: Path) -> list[float]:
    if not (out / EVENTS).is_file():
        return []
    events = (json.loads(line) for line in (out / EVENTS).read_text().splitlines())
    return [event["seconds"] for event in events if event["event"] == "predicted"]


def peak_rss_mb() -> float:
    """Highest resident memory of this process; Linux counts kilobytes, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
