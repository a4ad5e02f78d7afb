"""A folder of images streamed through a service, no faster than people answer; what came of it as CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from taps.data import Dataset
from taps.data.names import shown
from taps.errors import DataError, ImageError, SettingsError
from taps.files import write_text
from taps.serve.export import as_csv
from taps.serve.live import Live
from taps.serve.records import OPEN, UNASKED, Row, Stream
from taps.serve.service import Beginning, Service

WHO = "folder"
AHEAD = 4  # questions that may wait: the model is to learn from the answers before it goes on
PAUSE = 0.1  # seconds between two looks whether somebody has answered
COLUMNS = ("path", "label", "by", "probability", "predicted_first", "asked")


@dataclass
class Folder:
    """Images on their way through a stream.

    Attributes:
        service: Open.
        stream: The name of the stream.
        dataset: The images.
        order: Indices into it, in the order in which they come.
        name: What an image is called, from its place in the order.
        broken: Images that could not be read, with the reason.
        final: What the model said of images in the end, and how sure it was.
    """

    service: Service
    stream: str
    dataset: Dataset
    order: Sequence[int]
    name: Callable[[int], str]
    broken: dict[str, str] = field(default_factory=dict)
    final: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, beginning: Beginning, *, given: bool) -> Stream:
        """Make the stream, or go on with the one that is there.

        Args:
            beginning: How it begins.
            given: Whether somebody named the classes: then they must be those it was begun with.
        """
        if self.stream not in self.service.owners:
            return self.service.create(beginning, WHO)
        found = self.service.stream(self.stream)
        if given and list(found.classes) != list(beginning.classes):
            raise SettingsError(
                f"These images were begun with other classes ({shown(found.classes, most=20)}); "
                "give those to go on, or another --store to begin anew."
            )
        return found

    def feed(self, progress: Callable[[int], None]) -> None:
        """Stream what has not been streamed yet; waits while enough questions are open."""
        there = {row.name for row in self._rows()}
        for t, index in enumerate(self.order):
            if self.name(t) not in there:
                self._wait_below(AHEAD, progress, t)
                self._predict(t, index)
            progress(t + 1)

    def finish(self, progress: Callable[[int], None]) -> None:
        """Wait until no question is open."""
        self._wait_below(1, progress, len(self.order))

    def _wait_below(self, limit: int, progress: Callable[[int], None], t: int) -> None:
        while self.service.store.counts(self.service.stream(self.stream).id).get(OPEN, 0) >= limit:
            progress(t)
            time.sleep(PAUSE)

    def _predict(self, t: int, index: int) -> None:
        name = self.name(t)
        try:
            data = self.dataset.read(index)
            act = partial(Live.predict, data=data, name=name, who=WHO, key=f"{WHO}:{name}"[:200])
            self.service.send(self.stream, act).result()
        except (DataError, ImageError, OSError) as error:
            self.broken[name] = str(error)

    def write(self, folder: Path, progress: Callable[[int], None] | None = None) -> tuple[Path, Path]:
        """Write labels.csv, and predictions.csv with every image.

        Args:
            folder: Where to.
            progress: Where given, images without a label are predicted anew by what was learnt to the end.
        """
        stream = self.service.stream(self.stream)
        labels, predictions = folder / "labels.csv", folder / "predictions.csv"
        write_text(labels, "".join(as_csv(self.service.store, stream, labels=True)))
        rows = {row.name: row for row in self._rows()}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for t, index in enumerate(self.order):
            if (row := rows.get(self.name(t))) is not None:
                if progress is not None and row.answer is None:
                    self._look_again(row, index)
                writer.writerow(self._line(row))
            elif self.name(t) in self.broken:
                writer.writerow([self.name(t), "", "nobody", "", "", 0])
            if progress is not None:
                progress(t + 1)
        write_text(predictions, text.getvalue())
        return labels, predictions

    def _look_again(self, row: Row, index: int) -> None:
        try:
            data = self.dataset.read(index)
        except (DataError, OSError):  # the image is gone since: what was said of it stays
            return
        act = partial(Live.look_again, row=row, data=data)
        said = self.service.send(self.stream, act).result()
        self.final[row.name] = (said.label, float(said.probs[said.index]))

    def _line(self, row: Row) -> list[object]:
        asked = int(row.state not in UNASKED)
        if row.answer is not None or row.none:
            return [row.name, row.answer or "", "person", "", row.label, asked]
        label, probability = self.final.get(row.name, (row.label, row.top[0][1]))
        return [row.name, label, "model", f"{probability:.4f}", row.label, asked]

    def _rows(self) -> list[Row]:
        return self.service.store.predictions(self.service.stream(self.stream).id)
