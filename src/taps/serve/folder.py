"""A folder of images in a service (`taps label`): encoded by its own thread, asked about, written as CSV.

All images are there from the start. So the next question is about the most telling one of those that are
encoded, whatever their order, and every image is predicted again at the end.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from pydantic import BaseModel, Field

from taps.data import Dataset
from taps.data.names import shown
from taps.errors import DataError, ImageError, SettingsError
from taps.files import write_text
from taps.learner.prepared import Prepared, ViewedImage
from taps.model.images.prefetch import prefetch
from taps.serve.errors import LostError, StoreDownError, TooManyError
from taps.serve.export import as_csv
from taps.serve.folder_files import FolderFiles
from taps.serve.learners import Learners
from taps.serve.opinions import ask_known
from taps.serve.records import Stream, StreamConfig
from taps.serve.replay import predict_command
from taps.serve.review import COLUMNS, Belief, beliefs_of, csv_text
from taps.serve.service import Service
from taps.serve.stream_session import Outcome, StreamSession
from taps.serve.tokens import Tokens
from taps.streams.log import ANSWERED, SKIPPED
from taps.streams.row import LABELLED, OPEN, UNQUERIED, Row

T = TypeVar("T")
X = TypeVar("X")
Ts = TypeVarTuple("Ts")
WHO = "folder"
PAGE_QUESTIONS = 3  # that may wait for each page: it holds so many, and answers count for the next choice
CHOICE = 5  # images to a question at least, while others are still encoded
DEPTH = 4  # images that are encoded before the stream's thread takes them in
DRAWN_OF = 5  # one question in so many is about an image drawn at random: they estimate the accuracy
MOST = 5000  # images that are kept to be asked about; further ones are only predicted
PAUSE = 0.05  # seconds between two checks for answers
LOOK = 0.2  # the same while images are encoded: a page has questions left, and each check costs a millisecond
RETRY_SECONDS = 1.0  # seconds until what a failing store refused is tried again


class FolderStatus(BaseModel):
    """How far the labelling of a folder is."""

    phase: str = Field(description="encoding, asking, predicting or done.")
    done: int = Field(description="Images that this is done for.")
    images: int
    answered: int
    wanted: int = Field(description="Answers that are wanted.")
    files: str = Field(description="Where labels.csv and predictions.csv are when all is done.")
    learner: str = Field(description="The command that predicts other images with the learner.")
    notes: list[str] = Field(description="What has become of images that are on record, in sentences.")


def pool_settings(questions: int, images: int) -> dict[str, Any]:
    """Settings of a method with a head whose questions are chosen here: it asks none by itself."""
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
    """The images of a folder on their way through a stream.

    Attributes:
        order: Indices into the data set, in the order in which images are encoded.
        name: The name of an image, from its place in the order.
        broken: Images that could not be read, with the reason.
        final: Label and probability, predicted at the end, of images that the learner does not keep, by id.
        known: Known answers, by name of the image: people are asked all the same.
        phase: "encoding", "asking", "predicting" or "done".
        done: Number of images that have passed the phase.
        replaced: Images whose file has become another picture since the last time, by name; whether they had
            an answer.
    """

    service: Service
    stream: str
    dataset: Dataset
    order: Sequence[int]
    name: Callable[[int], str]
    broken: dict[str, str] = field(default_factory=dict)
    final: dict[int, tuple[str, float]] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    phase: str = "encoding"
    done: int = 0
    replaced: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = FolderFiles(self.dataset, self.order, self.name)
        self._stale: Counter[str] = Counter()  # rows of pictures that were replaced, by state
        self._past: set[int] = set()  # rows of these, and of images that are gone: nobody is asked about them

    def begin(self, beginning: StreamConfig, *, given: bool, questions: int | None = None) -> Stream:
        """Create the stream, or continue the one of this name.

        Args:
            beginning: Of the stream, where it is created.
            given: Whether the user named the classes: then they must be those of the stream.
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

    @property
    def _id(self) -> int:
        return self.service.stream(self.stream).id

    def _rows(self) -> list[Row]:
        return self.service.store.predictions(self._id)

    def _do(self, act: Callable[[StreamSession], T]) -> T:
        """Have the stream's worker do something, however often the store fails."""
        return patiently(lambda: self.service.send(self.stream, act).result())

    def _report(self, progress: Callable[[int], None], done: int) -> None:
        self.done = done
        progress(done)

    # Questions

    @property
    def pooled(self) -> bool:
        """Whether questions are chosen here, among all images; else the method asks as images come."""
        return self.service.stream(self.stream).settings.get("neighbourhood") == "now"

    @property
    def wanted(self) -> int:
        """How many answers are wanted."""
        return int(self.service.store.note(f"questions of {self._id}") or 0)

    @property
    def budget(self) -> int | None:
        """The same where questions are chosen here; None where the method's own settings say it."""
        return self.wanted if self.pooled else None

    def want(self, questions: int) -> None:
        """Ask until there are so many answers."""
        self.service.store.set_note(f"questions of {self._id}", str(min(questions, len(self.order))))

    def more(self, questions: int) -> int:
        """Ask so many questions more than were answered; how many answers are wanted now."""
        self.want(self.counts()["answered"] + questions)
        return self.wanted

    def counts(self) -> dict[str, int]:
        """Recorded images, open questions, and answers to questions."""
        counts = self.service.store.counts(self._id)
        counts.pop("agreed")
        counts = {state: count - self._stale[state] for state, count in counts.items()}
        open, answered = counts.get(OPEN, 0), counts.get(ANSWERED, 0)
        return {"seen": sum(counts.values()), "open": open, "answered": answered}

    def ask(self) -> bool:
        """Ask the next questions, as many as may wait; whether any is open.

        While images are still encoded, the first is asked about, and one of every few that come after it, so
        that later images are asked about, too.
        """
        counts = patiently(self.counts)
        if not self.pooled:
            return counts["open"] > 0
        seen, open, total = counts["seen"], counts["open"], len(self.order) - len(self.broken)
        wanted = allowed = self.wanted
        if seen < total:
            allowed = min(wanted, max(math.ceil(seen / CHOICE), wanted * seen // total))
        pages = self.service.leases.pages(self._id)
        while open < PAGE_QUESTIONS * max(1, pages) and open + counts["answered"] < allowed:
            drawn = (open + counts["answered"]) % DRAWN_OF == DRAWN_OF - 1
            if self._do(partial(StreamSession.ask_next, who=WHO, drawn=drawn, without=self._past)) is None:
                break
            open += 1
        return open > 0

    def feed(self, progress: Callable[[int], None]) -> None:
        """Encode the images that are not recorded yet, and ask meanwhile.

        Features depend on no answer. So one thread reads images and makes views, another one encodes, and the
        stream's thread is free for answers.
        """
        self.phase = "encoding"
        self.broken.clear()  # they are read again: they may have been mended
        missing = self.look()
        self._report(progress, len(self.order) - len(missing))
        self._do(lambda session: session.learner_log.learner())
        viewed = prefetch(enumerate(missing, len(self._rows())), self._view_ahead, threads=1, depth=1)
        encoded = prefetch(viewed, self._encode_ahead, threads=1, depth=DEPTH)
        for t, coming in zip(missing, encoded, strict=True):
            while not wait([coming], LOOK).done:
                self.ask()
            while not self.pooled and patiently(self.counts)["open"] >= PAGE_QUESTIONS:
                self._report(progress, self.done)
                time.sleep(PAUSE)
            self._take(t, coming)
            self.ask()
            self._report(progress, self.done + 1)

    def look(self) -> list[int]:
        """Compare the files with the record; places of the images that are not on it as they are now.

        A row is of a picture, whatever its name: an answer to one that was replaced is no answer to the new
        one, and nobody is asked about a picture that is no more. One that was put back has its answer again.
        """
        rows = self._rows()
        self.files.look(rows)
        old = [row for row in rows if self.files.is_replaced(row)]
        there = {row.name for row in rows if not self.files.is_replaced(row)}
        self._past = {row.id for row in (*old, *(row for row in rows if self.files.is_gone(row)))}
        for row in rows:
            if row.state == OPEN and row.id in self._past:
                self._do(partial(StreamSession.skip, id=row.id, who=WHO))
        self._stale = Counter(SKIPPED if row.state == OPEN else row.state for row in old)
        answered = {row.name for row in old if row.state in LABELLED}
        self.replaced = {row.name: row.name in answered for row in old if row.name not in there}
        return [t for t in range(len(self.order)) if self.name(t) not in there]

    def _view_ahead(self, place: tuple[int, int]) -> tuple[bytes, ViewedImage | None]:
        """Read an image and make its views."""
        before, t = place  # how many images come before it, were all of them readable; its own in the order
        name = self.name(t)
        try:
            data = self.files.read(t)
            return data, self._ahead(Learners.view_one, data, name, before - len(self.broken))
        except (DataError, ImageError, OSError) as error:
            self.broken[name] = str(error)
            raise

    def _encode_ahead(
        self, viewed: Future[tuple[bytes, ViewedImage | None]]
    ) -> tuple[bytes, Prepared | None]:
        data, image = viewed.result()
        return data, None if image is None else self._ahead(Learners.encode_one, image)

    def _ahead(self, act: Callable[[Learners, int, *Ts], X], *args: *Ts) -> X | None:
        """What can be computed of an image before its turn; None on a GPU, which the stream's thread uses."""
        known: X | None = None
        if self.service.clip.device.type == "cpu":
            with suppress(LostError):  # its learner is being made anew
                known = self.service.executors.executor_of(self._id).call(act, self._id, *args)
        return known

    def _take(self, t: int, coming: Future[tuple[bytes, Prepared | None]]) -> None:
        """Predict an image until that is recorded: one without a row would be in no table."""
        name = self.name(t)
        try:
            data, known = coming.result()
            # One key for each picture of a name, all of one length.
            named = hashlib.sha256(name.encode("utf-8", "surrogateescape") + b"\0" + data)
            key = f"{WHO}:{named.hexdigest()}"
            act = partial(StreamSession.predict, data=data, name=name, who=WHO, key=key, known=known)
            outcome = patiently(lambda: self._recorded(act))
        except (DataError, ImageError, OSError) as error:
            self.broken[name] = str(error)
            return
        if name in self.known and not outcome.repeated:
            self._do(partial(ask_known, id=outcome.row.id, label=self.known[name], who=WHO))
        elif self.replaced.get(name) and outcome.row.state == UNQUERIED:
            self._do(partial(StreamSession.ask, id=outcome.row.id, who=WHO))

    def _recorded(self, predict: Callable[[StreamSession], Outcome]) -> Outcome:
        outcome = self.service.send(self.stream, predict).result()
        if not outcome.recorded:
            raise StoreDownError(f"{outcome.row.name} was not recorded.")
        return outcome

    def finish(self, progress: Callable[[int], None]) -> None:
        """Ask until there are as many answers as wanted, and no question is open."""
        self.phase = "asking"
        while self.ask():
            self._report(progress, len(self.order))
            time.sleep(PAUSE)
        self.want(min(self.wanted, patiently(self.counts)["answered"]))  # there is nothing else to ask about

    # Results

    def repredict_all(self, progress: Callable[[int], None]) -> None:
        """Predict again, with all that was learned, the images that the learner does not keep."""
        self.phase = "predicting"
        self._report(progress, 0)
        rows = {belief.row.name: belief.row for belief in self.beliefs() if belief.by == "first"}
        for t in range(len(self.order)):
            row = rows.get(self.name(t))
            if row is not None and row.answer is None:
                with suppress(DataError, OSError):  # the image is gone since: its first prediction stays
                    data = self.files.read(t)
                    if not self.files.is_replaced(row):
                        again = self._do(partial(StreamSession.repredict, row=row, data=data))
                        self.final[row.id] = (again.label, again.probability)
            self._report(progress, t + 1)
        self.phase = "done"

    def beliefs(self) -> list[Belief]:
        """The current label of each recorded image."""
        return patiently(lambda: beliefs_of(self.service, self.stream))

    def write(self, folder: Path, *, long: bool = False) -> tuple[Path, Path]:
        """Write labels.csv, if `long` with the columns of the service's export, and predictions.csv."""
        labels, predictions = folder / "labels.csv", folder / "predictions.csv"
        self.files.look(self._rows())
        found = self.beliefs()
        if long:
            write_text(labels, "".join(as_csv(each.row for each in found if each.row.state in LABELLED)))
        else:
            tokens = {token.id: token.name for token in patiently(Tokens(self.service.store).list)}
            answers = [
                [row.name, row.said.describe(), tokens.get(row.ended_by or "", row.ended_by),
                 time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(row.ended_at))]
                for row in (belief.row for belief in found) if row.state in LABELLED
            ]  # fmt: skip
            write_text(labels, csv_text(("path", "label", "who", "when"), answers))
        by_name = {belief.row.name: belief for belief in found}
        names = [self.name(t) for t in range(len(self.order))]
        rows = [by_name[name].cells() for name in names if name in by_name]
        broken = [[name, *[""] * 4, 0, "nobody", "", ""] for name in self.broken if name not in by_name]
        write_text(predictions, csv_text(COLUMNS, rows + broken))
        return labels, predictions

    def lacking(self) -> str:
        """What the tables lack, in a sentence; empty where they are complete."""
        found = self.beliefs()
        held = {belief.row.name for belief in found} | self.broken.keys()
        missing = sum(self.name(t) not in held for t in range(len(self.order)))
        first = sum(belief.by == "first" and not self.files.is_gone(belief.row) for belief in found)
        parts = [f"{missing:,} images are not encoded yet"] if missing > 0 else []
        parts += [f"{first:,} were not predicted again"] if first else []
        return f"{' and '.join(parts)}; the same command goes on." if parts else ""

    def gone(self) -> str:
        """A sentence on images that are on record and in the folder no more; empty without any."""
        count = len(self.files.gone - self.broken.keys())
        verb = "image is" if count == 1 else "images are"
        return f"{count:,} {verb} gone; labels.csv keeps what was answered." if count else ""

    def renewed(self) -> str:
        """A sentence on files that have become other pictures since the last time; empty without any."""
        if not self.replaced:
            return ""
        return (
            f"Other pictures under the same name since the last time: {len(self.replaced):,}. They are "
            "predicted anew, and asked about again where the earlier picture had an answer."
        )

    def status(self) -> FolderStatus:
        return FolderStatus(
            phase=self.phase,
            done=self.done,
            images=len(self.order),
            answered=self.counts()["answered"],
            wanted=self.budget or 0,
            files=str(self.service.store.files),
            learner=self.elsewhere,
            notes=[said for said in (self.gone(), self.renewed()) if said],
        )


def patiently(act: Callable[[], T]) -> T:
    """Do something until it succeeds: a store that fails heals by itself."""
    while True:
        with suppress(StoreDownError, LostError, TooManyError):
            return act()
        time.sleep(RETRY_SECONDS)
