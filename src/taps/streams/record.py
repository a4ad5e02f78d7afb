"""The files of one run: events, predictions and checkpoints, consistent whenever the process is killed."""

from __future__ import annotations

import io
import json
import math
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from taps import disk
from taps.errors import DamagedError, StateError
from taps.files import AppendFile, check_mark, csv_line, csv_rows, holds, json_text
from taps.learner import checkpoint
from taps.learner.checkpoint import Saved
from taps.learner.learner import Learner, restored
from taps.model.clip import Clip
from taps.process import first_image_done, run_memory_mb
from taps.streams.log import ANSWERED, PREDICTED, SKIPPED, UNDONE
from taps.streams.row import Row
from taps.streams.score import ImageScore, RunningScore, row_of
from taps.types import FIRST_COLUMNS, OUTSIDE, Answer, FloatArray, Prediction

PREDICTIONS, EVENTS, STATE, SPEC = "predictions.csv", "events.jsonl", "state", "run.json"
ROWS = "rows.bin"  # what the learner needs of each image to predict it again
HEAD = struct.Struct("<qi")  # of each entry in it: the image's id, and how many numbers follow
ANEW = PREDICTIONS + ".new"  # the predictions with changed rows, until a checkpoint knows of them


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, of an older version too."""
    return holds(folder / SPEC, "fingerprint")


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
    """Writes the files of one run into a folder that exists.

    A checkpoint is a saved learner, with the size and checksum that each file had then. After a kill the
    files are cut back and the images after the checkpoint are done again, from the same state and so with the
    same result. Where a state or a file is damaged, the checkpoint before is used.
    """

    def __init__(self, folder: Path, pace: Pace = Pace()) -> None:
        disk.claim(folder, is_run)
        self.folder, self.pace = folder, pace
        self.replaced: dict[str, Mapping[str, Any]] = {}  # rows to be changed, by the image's place
        self._found = self._read_checkpoint()
        disk.remove(folder / ANEW)  # stopped before a checkpoint knew of it
        self.saved = None if self._found is None else self._found.extra
        marks = self.saved or {}
        self.files: dict[str, AppendFile] = {}
        with ExitStack() as opened:  # closes them where one cannot be opened or written
            for name in (PREDICTIONS, EVENTS, *([ROWS] if ROWS in marks else [])):
                self.files[name] = AppendFile(folder / name, marks.get(name))
                opened.callback(self.files[name].close)
            if self.files[PREDICTIONS].size == 0:
                self.files[PREDICTIONS].write(HEADER)
            self.columns = columns_of(self._header())  # a run of before goes on in its own order
            opened.pop_all()
        self.last_time, self.cost = time.perf_counter(), 0.0
        self._counts_memory = False

    def _read_checkpoint(self) -> Saved | None:
        """The last checkpoint whose state and files are undamaged."""
        if not checkpoint.exists(self.folder / STATE):
            return None
        try:
            return checkpoint.read(self.folder / STATE, self._check)
        except StateError as error:
            why = str(error).rstrip(".")
            raise StateError(f"{why}; remove {self.folder} to do this run again.") from error

    def _check(self, saved: dict[str, Any]) -> None:
        with suppress(DamagedError, OSError):  # stopped between a checkpoint and `_take_the_place`
            check_mark(self.folder / ANEW, saved[PREDICTIONS])
            disk.move(self.folder / ANEW, self.folder / PREDICTIONS)
        for name in (name for name in (PREDICTIONS, EVENTS, ROWS) if name in saved):  # 0.2 has no rows
            check_mark(self.folder / name, saved[name])

    @property
    def position(self) -> int:
        """Images up to the last checkpoint: what a resumed run will not do again."""
        return 0 if self.saved is None else int(self.saved["running"]["position"])

    @property
    def marks(self) -> dict[str, Any]:
        """Size and checksum of the files so far."""
        return {name: file.mark for name, file in self.files.items()}

    def learner(self, clip: Clip) -> Learner | None:
        """The learner of the checkpoint that was found at the start, once; None where there was none."""
        found, self._found = self._found, None
        return None if found is None else restored(found, clip)

    def running(self) -> RunningScore:
        """The counts of the last checkpoint; zeros where there is none."""
        return RunningScore(**self.saved["running"]) if self.saved else RunningScore()

    def event(self, kind: str, **values: Any) -> None:
        """Append an event, and hand it to the operating system at once."""
        self.files[EVENTS].write((json_text({"event": kind, **values}) + "\n").encode())
        self.files[EVENTS].flush()

    def commit(self, t: int, path: str, prediction: Prediction, classes: Sequence[str], **known: str) -> None:
        """Append a prediction to the events, with what is `known` of its file. Labels are read after this."""
        self.event(PREDICTED, t=t, path=path, **known, **prediction.to_json(classes))

    def row(self, *given: Any) -> None:
        """Append a row to the CSV; the arguments are those of `cells_of`."""
        self.files[PREDICTIONS].write(_line(cells_of(*given), self.columns))

    def replace_row(self, t: int, *given: Any) -> None:
        """Replace the row of image `t`; the file is changed at the next checkpoint."""
        self.replaced[str(t)] = cells_of(t, *given)

    def events(self) -> Iterator[dict[str, Any]]:
        """The events so far."""
        return read_events(self.folder)

    def keep(self, learner: Learner, id: int) -> None:
        """Keep what `Method.predict_rows` needs of an image, if the learner has that."""
        if (row := row_of(learner, id)) is None:
            return
        if ROWS not in self.files:
            self.files[ROWS] = AppendFile(self.folder / ROWS)
        self.files[ROWS].write(HEAD.pack(id, len(row)) + row.astype("<f2").tobytes())

    def kept(self) -> dict[int, FloatArray]:
        """What was kept of each image, by id."""
        if ROWS not in self.files:
            return {}
        self.files[ROWS].flush()
        data, found, at = self.files[ROWS].path.read_bytes(), {}, 0
        while at < len(data):
            id, size = HEAD.unpack_from(data, at)
            at += HEAD.size
            found[id] = np.frombuffer(data, "<f2", size, at).astype(np.float32)
            at += 2 * size
        return found

    def set_final(self, cells: Mapping[str, Final]) -> None:
        """Fill the last columns, by the image's place; the file is changed at the next checkpoint."""
        for row in self._written():
            held = self.replaced.get(row["t"], row)
            self.replaced[row["t"]] = {**held, **(cells[row["t"]]._asdict() if row["t"] in cells else {})}

    def _header(self) -> list[str]:
        self.files[PREDICTIONS].flush()
        with self.files[PREDICTIONS].path.open(encoding="utf-8", errors="replace", newline="") as file:
            return next(csv_rows(file))

    def _written(self) -> list[dict[str, str]]:
        """The rows of the CSV so far."""
        self.files[PREDICTIONS].flush()
        text = self.files[PREDICTIONS].path.read_bytes().decode("utf-8", "surrogateescape")
        return _dicts(io.StringIO(text, newline=""))

    def checkpoint_if_due(self, learner: Learner, running: RunningScore) -> None:
        """Save when enough images and enough time have passed since the last time."""
        self._count_memory(learner)
        waited = time.perf_counter() - self.last_time
        rested = not self.pace.pause or waited >= max(self.pace.pause, self.pace.worth * self.cost)
        if rested and running.position - self.position >= self.pace.every:
            self.checkpoint(learner, running)

    def checkpoint(self, learner: Learner, running: RunningScore) -> None:
        """Save everything as one step: the learner's index, which holds the rest, comes last."""
        if not self.pace.every:
            return
        self._count_memory(learner)
        began = time.perf_counter()
        running.peak_mem_mb = max(running.peak_mem_mb, run_memory_mb(learner.clip.device))
        for file in self.files.values():  # no file is shorter than the checkpoint says
            file.flush(sync=True)
        if self.replaced:
            self._write_anew()
        saved = {"running": asdict(running), **self.marks}
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
        """Write the changed predictions to a new file; the old one stays until a checkpoint knows of it."""
        written = self._written()
        self.files[PREDICTIONS].close()
        file = self.files[PREDICTIONS] = AppendFile(self.folder / ANEW)
        self.columns = COLUMNS
        file.write(HEADER)
        for row in written:
            file.write(_line(self.replaced.get(row["t"], row), COLUMNS))
        file.flush(sync=True)
        self.replaced.clear()

    def _take_the_place(self) -> None:
        """Rename predictions that were written anew."""
        file = self.files[PREDICTIONS]
        if file.path.name == ANEW:
            file.close()
            disk.move(self.folder / ANEW, self.folder / PREDICTIONS)
            self.files[PREDICTIONS] = AppendFile(self.folder / PREDICTIONS, file.mark)

    def forget(self) -> None:
        """Remove the checkpoints of a run that is over, and what was kept of its images."""
        disk.remove(self.folder / ROWS)
        disk.remove_tree(self.folder / STATE)

    def close(self) -> None:
        if self.replaced:  # a run without checkpoints
            self._write_anew()
            self._take_the_place()
        for file in self.files.values():
            file.close()


class NoRecord(Record):
    """Keeps nothing: `NO_RECORD`."""

    saved = None

    def __init__(self) -> None:
        pass

    def event(self, kind: str, **values: Any) -> None: ...
    def row(self, *given: Any) -> None: ...
    def replace_row(self, t: int, *given: Any) -> None: ...
    def keep(self, learner: Learner, id: int) -> None: ...
    def checkpoint(self, learner: Learner, running: RunningScore) -> None: ...
    def checkpoint_if_due(self, learner: Learner, running: RunningScore) -> None: ...
    def commit(self, *given: Any, **known: str) -> None: ...  # type: ignore[override]
    def events(self) -> Iterator[dict[str, Any]]:
        return iter(())


NO_RECORD = NoRecord()


class Final(NamedTuple):
    """The prediction of an image when the stream is over; empty cells where it is not predicted again.

    Attributes:
        final: The class: as it was answered, or as it is predicted again; empty where it is none of them.
        final_probability: 1 where somebody answered.
        final_correct: 1 or 0, where its class is known.
        final_answered: 1 where it is an answer, 0 where it is predicted.
    """

    final: str = ""
    final_probability: str = ""
    final_correct: int | str = ""
    final_answered: int | str = ""


COLUMNS = (
    *(*FIRST_COLUMNS, "final", "final_probability", "final_correct", "final_answered", "truth", "correct"),
    *("asked", "why", "t", "score", "threshold", "view_entropy", "reject", "seconds", "top5"),
    *("of_truth", "squares", "outside", "phase", "truth_index"),
)
BEFORE = {"label": "truth", "truth": "truth_index", "of_label": "of_truth", "entropy": "view_entropy"}
"""Columns of runs of before 0.3, and their names of today."""


HEADER = csv_line(COLUMNS).encode()


def columns_of(header: Sequence[str]) -> tuple[str, ...]:
    """The columns of a file, by their names of today."""
    return tuple(BEFORE.get(name, name) if "label" in header else name for name in header)


def cells_of(
    t: int, path: str, prediction: Prediction, score: ImageScore, classes: Sequence[str], phase: int = 0
) -> dict[str, Any]:
    """The cells of one image by their columns; those of what nobody knows stay empty."""
    truth = None if score.label in (None, OUTSIDE) else score.label
    probs = prediction.probs
    of_truth = "" if truth is None else f"{probs[truth] if truth < len(probs) else 0.0:.6g}"  # added later: 0
    return {
        "path": path,
        "predicted": classes[score.final],
        "probability": _number(prediction.probability),
        "truth": "" if truth is None else classes[truth],
        "correct": _flag(score.correct),
        "asked": int(prediction.ask),
        "why": prediction.why,
        "t": t,
        "score": _number(prediction.score),
        "threshold": _number(prediction.threshold),
        "view_entropy": _number(prediction.entropy),
        "reject": _number(prediction.reject),
        "seconds": f"{prediction.seconds:.6f}",
        "top5": _flag(score.hit),
        "of_truth": of_truth,
        "squares": f"{probs @ probs:.6g}",
        "outside": int(score.label == OUTSIDE),
        "phase": phase,
        "truth_index": "" if truth is None else truth,
    }


def _number(value: float) -> str:
    """A cell; empty where a number is not finite, as the threshold is that nothing can pass."""
    return f"{value:.6g}" if math.isfinite(value) else ""


def _flag(value: bool | None) -> int | str:
    return "" if value is None else int(value)


def read_predictions(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's `predictions.csv`, cells by the names of their columns."""
    return _dicts(whole_lines(folder / PREDICTIONS))


def _dicts(lines: io.StringIO) -> list[dict[str, str]]:
    rows = csv_rows(lines)
    columns = columns_of(next(rows, ()))
    return [dict(zip(columns, row, strict=False)) for row in rows if row]


def whole_lines(path: Path) -> io.StringIO:
    """A CSV file without a last line that was cut off by a kill."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    # Only "\n" ends a line: names may hold other characters that `splitlines` would break at.
    return io.StringIO(text[: text.rfind("\n") + 1], newline="")


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a run; a last line that was cut off by a kill is left out."""
    path = folder / EVENTS
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in text[: text.rfind("\n") + 1].split("\n")[:-1]:
        event = json.loads(line)
        if event.get("threshold", 0) is None:  # JSON has no infinity: everything passed it, or nothing
            event["threshold"] = -math.inf if event["asked"] else math.inf
        yield event


def read_rows(folder: Path) -> list[Row]:
    """The predictions of a run in the order in which they came, and what became of their questions."""
    rows: dict[int, Row] = {}
    for event in read_events(folder):
        kind, id = event["event"], event.get("id")
        if kind == PREDICTED:
            rows[event["id"]] = Row.of(event, seq=event["t"], name=event["path"])
        elif id in rows and kind in (ANSWERED, SKIPPED, UNDONE):
            answer = Answer.from_json(event) if kind == ANSWERED else Answer()
            rows[id] = replace(rows[id], **rows[id].changes(kind, answer))
    return list(rows.values())


def _line(cells: Mapping[str, Any], columns: Sequence[str]) -> bytes:
    return csv_line([cells.get(name, "") for name in columns]).encode("utf-8", "surrogateescape")
