"""The files of one run: events, predictions and checkpoints, consistent whenever the process is killed."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps import checkpoint
from taps.errors import StateError
from taps.learner import Learner
from taps.stream.peak import peak_memory_mb
from taps.types import Prediction

if TYPE_CHECKING:
    from taps.stream.protocol import Tally

PREDICTIONS, EVENTS, CHECKPOINT = "predictions.csv", "events.jsonl", "checkpoint.json"
COLUMNS = (
    "t",
    "key",
    "predicted",
    "label",
    "correct",
    "probability",
    "entropy",
    "threshold",
    "asked",
    "seconds",
    "top5",
)
EVERY = 100  # images between two checkpoints, at least
PAUSE = 2.0  # and seconds
WORTH = 50  # and so many times the time a checkpoint takes: saving then costs 2 % at most


class Record:
    """Writes one run down, into a folder that exists.

    A checkpoint is a saved learner plus the sizes the files had then. After a kill the files are cut back to
    these sizes and the images after them are done again, from the same state and so with the same result.

    Args:
        folder: Of this run alone.
        every: Images between two checkpoints, at least.
        pause: Seconds between them, at least, and more where saving takes long; 0 to look at images alone.
    """

    def __init__(self, folder: Path, *, every: int = EVERY, pause: float = PAUSE) -> None:
        self.folder, self.every, self.pause = folder, every, pause
        self.saved = _read_checkpoint(folder)
        for file in (PREDICTIONS, EVENTS):
            if (folder / file).exists():
                os.truncate(folder / file, self.saved[file] if self.saved else 0)
        self.predictions = (folder / PREDICTIONS).open("ab")
        self.events = (folder / EVENTS).open("ab")
        if self.predictions.tell() == 0:
            self.predictions.write(_line(COLUMNS))
        self.last = self.saved["tally"]["position"] if self.saved else 0
        self.last_time, self.cost = time.perf_counter(), 0.0

    def resume(self, learner: Learner) -> dict[str, Any]:
        """Bring the learner to the last checkpoint, if there is one; the tally saved with it."""
        if self.saved is None:
            return {}
        learner.load_state_dict(checkpoint.load(self.folder / self.saved["state"], learner.clip).state)
        tally: dict[str, Any] = self.saved["tally"]
        return tally

    def event(self, kind: str, **values: Any) -> None:
        """Append an event, and hand it to the operating system before going on."""
        self.events.write((json.dumps({"event": kind, **values}) + "\n").encode())
        self.events.flush()

    def commit(self, t: int, key: str, prediction: Prediction, best: list[int]) -> None:
        """Put a prediction on record. Whoever reads a label reads it after this."""
        self.event("predicted", t=t, id=prediction.id, key=key, top5=best, asked=prediction.ask)

    def row(self, t: int, key: str, prediction: Prediction, label: str, correct: bool, hit: bool) -> None:
        """Append the scored prediction to the CSV."""
        values = (
            t,
            key,
            prediction.label,
            label,
            int(correct),
            f"{prediction.probs[prediction.index]:.6g}",
            f"{prediction.entropy:.6g}",
            f"{prediction.threshold:.6g}",
            int(prediction.ask),
            f"{prediction.seconds:.6f}",
            int(hit),
        )
        self.predictions.write(_line(values))

    def checkpoint_if_worth(self, learner: Learner, tally: Tally) -> None:
        """Save when enough images and enough time have passed since the last time."""
        if tally.position - self.last < self.every:
            return
        waited = time.perf_counter() - self.last_time
        if not self.pause or waited >= max(self.pause, WORTH * self.cost):
            self.checkpoint(learner, tally)

    def checkpoint(self, learner: Learner, tally: Tally) -> None:
        """Save everything as one step: the small file that names the state is renamed into place last."""
        began = time.perf_counter()
        tally.peak_mem_mb = max(tally.peak_mem_mb, peak_memory_mb(learner.clip.device))
        state = f"state-{tally.position}"
        learner.save(self.folder / state)
        self.predictions.flush()  # a file must not be shorter than the checkpoint says
        self.events.flush()
        self.saved = {
            "state": state,
            "tally": asdict(tally),
            PREDICTIONS: self.predictions.tell(),
            EVENTS: self.events.tell(),
        }
        write_json(self.folder / CHECKPOINT, self.saved)
        for old in self.folder.glob("state-*"):
            if old.name != state:
                shutil.rmtree(old, ignore_errors=True)
        self.last, self.last_time = tally.position, time.perf_counter()
        self.cost = self.last_time - began

    def forget(self) -> None:
        """Remove the checkpoints of a run that is over."""
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
        for state in self.folder.glob("state-*"):
            shutil.rmtree(state, ignore_errors=True)

    def close(self) -> None:
        self.predictions.close()
        self.events.close()


def write_json(path: Path, value: Any) -> None:
    """Write a file that is either the old one or the new one, never half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


def _read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The last checkpoint whose state is there and whose files are at least as long as it says."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    try:
        saved: dict[str, Any] = json.loads(path.read_text())
        whole = (folder / saved["state"]).is_dir() and all(
            (folder / file).stat().st_size >= saved[file] for file in (PREDICTIONS, EVENTS)
        )
    except (ValueError, KeyError, OSError) as error:
        raise StateError(f"{path} is damaged ({error}); remove {folder} to do this run again.") from error
    if not whole:
        raise StateError(f"Files of the run in {folder} are missing or cut; remove it to do this run again.")
    return saved


def _line(values: Sequence[Any]) -> bytes:
    text = io.StringIO()
    # Python's writer does not see that a lone carriage return in a file's name must be quoted.
    if any("\r" in str(value) for value in values):
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(values)
    else:
        csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()
