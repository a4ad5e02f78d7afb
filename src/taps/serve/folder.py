"""A folder of images in a service: encoded as they come, asked about as people answer, and written as CSV.

All images are there from the beginning. So the next question is about the most telling one of those that are
encoded, whatever their order, and every image is predicted again at the end.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from taps.data import Dataset
from taps.data.names import shown
from taps.errors import DataError, ImageError, SettingsError
from taps.files import write_text
from taps.images.prefetch import prefetch
from taps.methods.known import Prepared
from taps.serve.errors import LostError, StoreDownError, TooManyError
from taps.serve.export import as_csv
from taps.serve.opinions import ask_known
from taps.serve.records import Stream, StreamConfig
from taps.serve.replay import predict_command
from taps.serve.review import COLUMNS, Belief, beliefs_of, csv_text
from taps.serve.service import Service
from taps.serve.stream_session import Outcome, StreamSession
from taps.serve.tokens import ANYBODY, Tokens
from taps.session.log import ANSWERED
from taps.session.row import LABELLED, OPEN, Row

T = TypeVar("T")
WHO = "folder"
AHEAD = 3  # questions that may wait for each page: it holds so many, and answers count for the next choice
CHOICE = 5  # images to a question at least, while others are still encoded
DEPTH = 4  # images that are encoded before the stream's thread takes them in
DRAWN_OF = 5  # one question in so many is about an image drawn at random: they tell how good the model is
MOST = 5000  # images that are kept to be asked about; further ones are predicted alone
PAUSE = 0.05  # seconds between two looks whether somebody has answered
LOOK = 0.2  # the same while images are encoded: a page has questions left, and each look costs a millisecond
AGAIN = 1.0  # seconds until what a failing store did not take in is tried again
LABEL_COLUMNS = ("path", "label", "who", "when")


def pool_settings(questions: int, images: int) -> dict[str, Any]:
    """Of a method with a head whose questions are chosen among all images: it asks about none by itself."""
    return {
        "acquisition": "margin",
        "policy": "fixed",
        "tau0": 1e6,
        "explore": 0.0,
        "budget": questions,
        "neighbourhood": "now",
        "recent": min(images, MOST),
    }


@dataclass
class Folder:
    """Images on their way through a stream.

    Attributes:
        service: Open.
        stream: The name of the stream.
        dataset: The images.
        order: Indices into it, in the order in which they are encoded.
        name: What an image is called, from its place in the order.
        broken: Images that could not be read, with the reason.
        final: What the model said in the end of images that it does not keep, and how sure it was.
        known: Answers of a file, by name of the image: people are asked all the same.
        phase: What is done now: "encoding", "asking", "predicting" or "done".
        done: How many images that is done for.
    """

    service: Service
    stream: str
    dataset: Dataset
    order: Sequence[int]
    name: Callable[[int], str]
    broken: dict[str, str] = field(default_factory=dict)
    final: dict[str, tuple[str, float]] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    phase: str = "encoding"
    done: int = 0

    def begin(self, beginning: StreamConfig, *, given: bool, questions: int | None = None) -> Stream:
        """Make the stream, or go on with the one that is there.

        Args:
            beginning: How it begins.
            given: Whether somebody named the classes: then they must be those it was started with.
            questions: How many answers are wanted; those of the last time unless given.
        """
        self.service.folders[self.stream] = self
        if self.stream not in self.service.workers:
            found = self.service.create(beginning, WHO)
        else:
            found = self.service.stream(self.stream)
        if given and list(found.classes) != list(beginning.classes):
            raise SettingsError(
                f"These images were started with other classes ({shown(found.classes, most=20)}); "
                "give those to continue, or another --store to start afresh."
            )
        if questions is not None:
            self.want(questions)
        return found

    @property
    def elsewhere(self) -> str:
        """The command that predicts other images with this learner."""
        several = len(self.service.workers) > 1
        return predict_command(self.service.store.files, self.stream if several else None)

    # Questions

    @property
    def pooled(self) -> bool:
        """Whether questions are chosen here, among all images; else the method asks as images come."""
        return self.service.stream(self.stream).settings.get("neighbourhood") == "now"

    @property
    def _note(self) -> str:
        return f"questions of {self.service.stream(self.stream).id}"

    @property
    def wanted(self) -> int:
        """How many answers are wanted."""
        return int(self.service.store.note(self._note) or 0)

    @property
    def budget(self) -> int | None:
        """The same where questions are chosen here; else the method's own settings say it."""
        return self.wanted if self.pooled else None

    def want(self, questions: int) -> None:
        """Ask until there are so many answers."""
        self.service.store.set_note(self._note, str(min(questions, len(self.order))))

    def more(self, questions: int) -> int:
        """Ask so many questions more than were answered; how many answers are wanted now."""
        self.want(self.counts()["answered"] + questions)
        return self.wanted

    def counts(self) -> dict[str, int]:
        """Images on record, open questions, and answers to questions."""
        counts = self.service.store.counts(self.service.stream(self.stream).id)
        counts.pop("agreed")
        open, answered = counts.get(OPEN, 0), counts.get(ANSWERED, 0)
        return {"seen": sum(counts.values()), "open": open, "answered": answered}

    def ask(self) -> bool:
        """Ask the next questions, as many as may wait; whether any is open or was put.

        While images are still encoded, the first is asked about, and one of every few that come after it: the
        later ones are to be asked about, too. Whoever answers waits for no more than these few.
        """
        counts = patiently(self.counts)
        if not self.pooled:
            return counts["open"] > 0
        seen, open, total = counts["seen"], counts["open"], len(self.order) - len(self.broken)
        wanted = allowed = self.wanted
        if seen < total:
            allowed = min(wanted, max(math.ceil(seen / CHOICE), wanted * seen // total))
        pages = self.service.leases.pages(self.service.stream(self.stream).id)
        while open < AHEAD * max(1, pages) and open + counts["answered"] < allowed:
            drawn = (open + counts["answered"]) % DRAWN_OF == DRAWN_OF - 1
            act = partial(StreamSession.ask_next, who=WHO, drawn=drawn)
            if patiently(lambda act=act: [self.service.send(self.stream, act).result()])[0] is None:  # type: ignore[misc]
                break
            open += 1
        return open > 0

    def feed(self, progress: Callable[[int], None]) -> None:
        """Encode what is not on record yet, and ask meanwhile.

        Features depend on no answer. So one thread reads images and makes views, another one encodes, and the
        stream's thread is there for those who answer.
        """
        self.phase = "encoding"
        there = {row.name for row in self._rows()}
        missing = [t for t in range(len(self.order)) if self.name(t) not in there]
        self._tell(progress, len(self.order) - len(missing))
        patiently(lambda: self.service.send(self.stream, lambda live: live.learner_log.learner()).result())
        viewed = prefetch(enumerate(missing, len(there)), self._view_ahead, threads=1, depth=1)
        encoded = prefetch(viewed, self._encode_ahead, threads=1, depth=DEPTH)
        for t, coming in zip(missing, encoded, strict=True):
            while not wait([coming], LOOK).done:
                self.ask()
            while not self.pooled and patiently(self.counts)["open"] >= AHEAD:
                self._tell(progress, self.done)
                time.sleep(PAUSE)
            self._take(t, coming)
            self.ask()
            self._tell(progress, self.done + 1)

    def _view_ahead(self, place: tuple[int, int]) -> tuple[bytes, Prepared | None]:
        """Read an image, and make its views where the stream's thread need not do so itself.

        Args:
            place: How many images come before it, were all of them whole; and its own in the order.
        """
        before, t = place
        name = self.name(t)
        try:
            data = self.dataset.read(self.order[t])
            return data, self._ahead("view_one", data, name, before - len(self.broken))
        except (DataError, ImageError, OSError) as error:
            self.broken[name] = str(error)
            raise

    def _encode_ahead(self, viewed: Future[tuple[bytes, Prepared | None]]) -> tuple[bytes, Prepared | None]:
        data, image = viewed.result()
        return data, None if image is None else self._ahead("do", "encode_one", image)

    def _ahead(self, act: str, *args: Any) -> Prepared | None:
        """What can be known of an image before its turn; a GPU is the stream's thread's alone."""
        id = self.service.stream(self.stream).id
        known: Prepared | None = None
        if self.service.clip.device.type == "cpu":
            with suppress(LostError):  # its learner is being made anew
                known = self.service.executors.executor_of(id).call(act, id, *args)
        return known

    def _take(self, t: int, coming: Future[tuple[bytes, Prepared | None]]) -> None:
        """Predict an image until that is on record: one without a row would be in no table."""
        name = self.name(t)
        try:
            data, known = coming.result()
            key = key_of(name)
            act = partial(StreamSession.predict, data=data, name=name, who=WHO, key=key, known=known)
            patiently(lambda: self._recorded(act))
        except (DataError, ImageError, OSError) as error:
            self.broken[name] = str(error)

    def finish(self, progress: Callable[[int], None]) -> None:
        """Ask until all answers that are wanted are there, and no question is open."""
        self.phase = "asking"
        while self.ask():
            self._tell(progress, len(self.order))
            time.sleep(PAUSE)
        self.want(min(self.wanted, patiently(self.counts)["answered"]))  # there is nothing else to ask about

    def _tell(self, progress: Callable[[int], None], done: int) -> None:
        self.done = done
        progress(done)

    def _recorded(self, act: Callable[[StreamSession], Outcome]) -> Outcome | None:
        outcome = self.service.send(self.stream, act).result()
        if outcome.recorded and outcome.row.name in self.known and not outcome.repeated:
            ask = partial(ask_known, id=outcome.row.id, label=self.known[outcome.row.name], who=WHO)
            self.service.send(self.stream, ask).result()
        return outcome if outcome.recorded else None

    # What came of it

    def repredict_all(self, progress: Callable[[int], None]) -> None:
        """Predict by all that was learned those images that the learner does not keep."""
        self.phase = "predicting"
        self._tell(progress, 0)
        known = {belief.row.name for belief in self.beliefs() if belief.by != "first"}
        rows = {row.name: row for row in self._rows()}
        for t, index in enumerate(self.order):
            row = rows.get(self.name(t))
            if row is not None and row.name not in known and row.answer is None:
                self._look_again(row, index)
            self._tell(progress, t + 1)
        self.phase = "done"

    def _look_again(self, row: Row, index: int) -> None:
        try:
            data = self.dataset.read(index)
        except (DataError, OSError):  # the image is gone since: what was said of it stays
            return
        act = partial(StreamSession.repredict, row=row, data=data)
        said = patiently(lambda: self.service.send(self.stream, act).result())
        self.final[row.name] = (said.label, said.probability)

    def beliefs(self) -> list[Belief]:
        """What is known of each image that is on record."""
        return patiently(lambda: beliefs_of(self.service, self.stream, self.final))

    def write(self, folder: Path, *, long: bool = False) -> tuple[Path, Path]:
        """Write labels.csv, and predictions.csv with every image.

        Args:
            folder: Where to.
            long: Whether labels.csv has all that the service knows of each.
        """
        labels, predictions = folder / "labels.csv", folder / "predictions.csv"
        found = self.beliefs()
        names = patiently(lambda: {**Tokens(self.service.store).names(), ANYBODY.id: ANYBODY.id})
        write_text(labels, self._long() if long else labels_csv(found, names))
        write_text(predictions, self._table(found))
        return labels, predictions

    def _long(self) -> str:
        return "".join(as_csv(self.service.store, self.service.stream(self.stream), labels=True))

    def _table(self, found: list[Belief]) -> str:
        by_name = {belief.row.name: belief for belief in found}
        lines = [by_name[name].cells() for t in range(len(self.order)) if (name := self.name(t)) in by_name]
        broken = [[name, "", "nobody", "", "", 0, "", ""] for name in self.broken if name not in by_name]
        return csv_text(COLUMNS, lines + broken)

    def lacking(self) -> str:
        """What the tables lack, in a sentence; nothing where they are whole."""
        found = self.beliefs()
        missing = len(self.order) - len(found) - len(self.broken)
        first = sum(belief.by == "first" for belief in found)
        parts = [f"{missing:,} images are not encoded yet"] if missing > 0 else []
        parts += [f"{first:,} were not predicted again"] if first else []
        return f"{' and '.join(parts)}; the same command goes on." if parts else ""

    def status(self) -> dict[str, Any]:
        """How far it is, for the page."""
        counts = self.counts()
        return {
            "phase": self.phase,
            "done": self.done,
            "images": len(self.order),
            "answered": counts["answered"],
            "wanted": self.budget or 0,
            "files": str(self.service.store.files),
            "learner": self.elsewhere,
        }

    def _rows(self) -> list[Row]:
        return self.service.store.predictions(self.service.stream(self.stream).id)


def labels_csv(found: Sequence[Belief], names: Mapping[str, str]) -> str:
    """What people said: path, label, who, and when.

    Args:
        found: What is known of the images.
        names: What those who answered are called, by the id of their token.
    """
    rows = [belief.row for belief in found if belief.row.state in LABELLED]
    return csv_text(
        LABEL_COLUMNS,
        [
            [row.name, row.said.describe(), names.get(row.ended_by or "", row.ended_by),
             time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(row.ended_at))]
            for row in rows
        ],
    )  # fmt: skip


def key_of(name: str) -> str:
    """The idempotency key of an image: of one length, and another one for each name."""
    return f"{WHO}:{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()}"


def patiently(act: Callable[[], T | None]) -> T:
    """Do something again until something comes of it: a store that fails heals by itself."""
    while True:
        with suppress(StoreDownError, LostError, TooManyError):
            if (done := act()) is not None:
                return done
        time.sleep(AGAIN)
