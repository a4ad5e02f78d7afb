"""The files of one run: events, predictions and checkpoints, consistent whenever the process is killed."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taps import checkpoint
from taps.checkpoint import Saved
from taps.clip import Clip
from taps.errors import DamagedError, StateError
from taps.files import AppendFile, check_mark
from taps.learner import Learner
from taps.stream.peak import first_image_done, run_memory_mb
from taps.stream.tally import Tally
from taps.types import OUTSIDE, Prediction

PREDICTIONS, EVENTS, STATE, SPEC = "predictions.csv", "events.jsonl", "state", "run.json"
ANEW = PREDICTIONS + ".new"  # the same with rows that were changed, until a checkpoint knows of it
COLUMNS = (
    "t",
    "path",
    "predicted",
    "label",
    "correct",
    "probability",
    "entropy",
    "score",
    "threshold",
    "asked",
    "seconds",
    "top5",
    "of_label",
    "squares",
    "reject",
    "outside",
    "phase",
)


@dataclass(frozen=True)
class Pace:
    """How often a run is saved.

    Attributes:
        every: Images between two checkpoints, at least; 0 for no checkpoints.
        pause: Seconds between them, at least; 0 to look at images alone.
        worth: And so many times the time a checkpoint takes: with 50, saving costs 2 % at most.
    """

    every: int = 1
    pause: float = 2.0
    worth: float = 50.0


class Record:
    """Writes one run down, into a folder that exists.

    A checkpoint is a saved learner, and with it size and checksum of what the files held then. After a kill
    the files are cut back and the images after them are done again, from the same state and so with the same
    result. Where a state or a file is damaged, the checkpoint before is used.

    Args:
        folder: Of this run alone.
        pace: How often it is saved.
    """

    def __init__(self, folder: Path, pace: Pace = Pace()) -> None:
        self.folder, self.pace = folder, pace
        self.replaced: dict[str, Sequence[Any]] = {}  # rows to be changed, by the image's place
        self._found = self._read_checkpoint()
        (folder / ANEW).unlink(missing_ok=True)  # stopped before a checkpoint knew of it
        self.saved = None if self._found is None else self._found.extra
        marks = self.saved or {}
        with ExitStack() as opened:  # closes them where one cannot be opened or written
            self.predictions = AppendFile(folder / PREDICTIONS, marks.get(PREDICTIONS))
            opened.callback(self.predictions.close)
            self.events = AppendFile(folder / EVENTS, marks.get(EVENTS))
            opened.callback(self.events.close)
            if self.predictions.size == 0:
                self.predictions.write(_line(COLUMNS))
            opened.pop_all()
        self.last_time, self.cost = time.perf_counter(), 0.0
        self._counts_memory = False

    def _read_checkpoint(self) -> Saved | None:
        """The last checkpoint whose state and files are whole."""
        if not checkpoint.exists(self.folder / STATE):
            return None
        try:
            return checkpoint.read(self.folder / STATE, self._check)
        except StateError as error:
            why = str(error).rstrip(".")
            raise StateError(f"{why}; remove {self.folder} to do this run again.") from error

    def _check(self, saved: dict[str, Any]) -> None:
        with suppress(DamagedError, OSError):  # stopped before what was written anew had its name
            check_mark(self.folder / ANEW, saved[PREDICTIONS])
            os.replace(self.folder / ANEW, self.folder / PREDICTIONS)
        for name in (PREDICTIONS, EVENTS):
            check_mark(self.folder / name, saved[name])

    @property
    def position(self) -> int:
        """Images up to the last checkpoint: what a resumed run will not do again."""
        return 0 if self.saved is None else int(self.saved["tally"]["position"])

    @property
    def marks(self) -> dict[str, Any]:
        """Size and checksum of the files so far."""
        return {PREDICTIONS: self.predictions.mark, EVENTS: self.events.mark}

    def learner(self, clip: Clip) -> Learner | None:
        """The learner that was found when the record was opened, once; None where there was none."""
        found, self._found = self._found, None
        return None if found is None else Learner.from_saved(found, clip)

    def tally(self) -> Tally:
        """The counts of the last checkpoint; zeros where there is none."""
        return Tally(**self.saved["tally"]) if self.saved else Tally()

    def event(self, kind: str, **values: Any) -> None:
        """Append an event, and hand it to the operating system before going on."""
        self.events.write((json.dumps({"event": kind, **values}) + "\n").encode())
        self.events.flush()

    def commit(self, t: int, path: str, prediction: Prediction, best: list[int]) -> None:
        """Put a prediction on record. Whoever reads a label reads it after this."""
        self.event(
            "predicted",
            t=t,
            id=prediction.id,
            path=path,
            predicted=prediction.label,
            top5=best,
            entropy=prediction.entropy,
            score=prediction.score,
            threshold=prediction.threshold,
            asked=prediction.ask,
            seconds=prediction.seconds,
            **({"question": prediction.question} if prediction.ask else {}),
        )

    def row(self, t: int, path: str, prediction: Prediction, **known: Any) -> None:
        """Append a prediction to the CSV; the arguments are those of `row_of`."""
        self.predictions.write(_line(row_of(t, path, prediction, **known)))

    def replace_row(self, t: int, path: str, prediction: Prediction, **known: Any) -> None:
        """Put another row in the place of one that is written; the file is changed at the next checkpoint."""
        self.replaced[str(t)] = row_of(t, path, prediction, **known)

    def checkpoint_if_due(self, learner: Learner, tally: Tally) -> None:
        """Save when enough images and enough time have passed since the last time."""
        self._count_memory(learner)
        waited = time.perf_counter() - self.last_time
        rested = not self.pace.pause or waited >= max(self.pace.pause, self.pace.worth * self.cost)
        if rested and tally.position - self.position >= self.pace.every:
            self.checkpoint(learner, tally)

    def checkpoint(self, learner: Learner, tally: Tally) -> None:
        """Save everything as one step: the learner's index, which holds the rest, comes last."""
        if not self.pace.every:
            return
        self._count_memory(learner)
        began = time.perf_counter()
        tally.peak_mem_mb = max(tally.peak_mem_mb, run_memory_mb(learner.clip.device))
        for file in (self.predictions, self.events):  # no file is shorter than the checkpoint says
            file.flush(sync=True)
        if self.replaced:
            self._write_anew()
        saved = {"tally": asdict(tally), **self.marks}
        learner.save(self.folder / STATE, saved)
        self.saved = saved
        self._take_the_place()
        self.last_time = time.perf_counter()
        self.cost = self.last_time - began

    def _count_memory(self, learner: Learner) -> None:
        if not self._counts_memory:
            first_image_done(learner.clip.device)
        self._counts_memory = True

    def _write_anew(self) -> None:
        """Write the changed predictions beside the old ones, which stay until a checkpoint knows of them."""
        self.predictions.flush()
        text = self.predictions.path.read_bytes().decode("utf-8", "surrogateescape")
        self.predictions.close()
        self.predictions = AppendFile(self.folder / ANEW)
        for row in csv.reader(io.StringIO(text, newline="")):
            self.predictions.write(_line(self.replaced.get(row[0], row)))
        self.predictions.flush(sync=True)
        self.replaced.clear()

    def _take_the_place(self) -> None:
        """Give predictions that were written anew the name of the old ones."""
        if self.predictions.path.name == ANEW:
            mark = self.predictions.mark
            self.predictions.close()
            os.replace(self.folder / ANEW, self.folder / PREDICTIONS)
            self.predictions = AppendFile(self.folder / PREDICTIONS, mark)

    def forget(self) -> None:
        """Remove the checkpoints of a run that is over."""
        shutil.rmtree(self.folder / STATE, ignore_errors=True)

    def close(self) -> None:
        if self.replaced:  # a run without checkpoints
            self._write_anew()
            self._take_the_place()
        self.predictions.close()
        self.events.close()


def row_of(
    t: int,
    path: str,
    prediction: Prediction,
    *,
    predicted: str,
    label: str = "",
    correct: bool | None = None,
    top5: bool | None = None,
    truth: int | None = None,
    phase: int = 0,
) -> tuple[Any, ...]:
    """The cells of an image's row in the CSV; those that nobody knows stay empty.

    Args:
        t: Place in the stream.
        path: Of the image.
        prediction: What was predicted.
        predicted: The class it counts as, by name.
        label: The image's class by name.
        correct: Whether that is the predicted one.
        top5: Whether it is among the five likeliest.
        truth: The image's class by index, or `OUTSIDE`.
        phase: Changes of the stream so far.
    """
    probs = prediction.probs
    return (
        t,
        path,
        predicted,
        label,
        "" if correct is None else int(correct),
        f"{probs[prediction.index]:.6g}",
        f"{prediction.entropy:.6g}",
        f"{prediction.score:.6g}",
        f"{prediction.threshold:.6g}",
        int(prediction.ask),
        f"{prediction.seconds:.6f}",
        "" if top5 is None else int(top5),
        "" if truth is None or truth == OUTSIDE else f"{probs[truth]:.6g}",
        f"{probs @ probs:.6g}",
        f"{prediction.reject:.6g}",
        int(truth == OUTSIDE),
        phase,
    )


def read_predictions(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's `predictions.csv`, cells by the names of their columns."""
    with (folder / PREDICTIONS).open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return list(csv.DictReader(file))


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a run, in order; a line that was cut off by a kill is left out."""
    path = folder / EVENTS
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in text[: text.rfind("\n") + 1].split("\n")[:-1]:
        yield json.loads(line)


def _line(values: Sequence[Any]) -> bytes:
    text = io.StringIO()
    # Python's writer does not see that a lone carriage return in a file's name must be quoted.
    if any("\r" in str(value) for value in values):
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(values)
    else:
        csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode("utf-8", "surrogateescape")
