"""Review: the current label of every image, accepted predictions, similar images, tables and archives."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, Field

from taps.asking.question import class_seconds
from taps.disk import MARKER
from taps.files import csv_line
from taps.serve.export import zip_images
from taps.serve.records import Event
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from taps.streams.class_folders import folder_name
from taps.streams.log import ACCEPTED
from taps.streams.predict import ZIPPED
from taps.streams.row import LABELLED, OPEN, UNQUERIED, Row
from taps.types import FIRST_COLUMNS

NONE = "none of the classes"
POWER = 0.7  # of the head's odds; docs/results/folder-order.md says what it was fitted to
COLUMNS = (
    *FIRST_COLUMNS, "final", "final_probability", "asked", "by", "accepted_by", "accepted_above",
)  # fmt: skip
BATCH_IMAGES = 100  # images predicted again in one message to the worker, while answers wait
GROUP = 12  # similar images that are labelled at once, at most: a screen of them
GLANCE = 1.0  # seconds in which a person sees that one of them belongs to the others


@dataclass(frozen=True)
class Belief:
    """The current label of an image.

    Attributes:
        label: Its class; empty where a person said that it is none.
        probability: That it is right, calibrated; 1 where a person named it.
        by: "person"; "model", which predicted it again; "first", where it was not predicted again.
        accepted: The event that accepted this prediction; its value is that of `accept`.
    """

    row: Row
    label: str
    probability: float
    by: str
    accepted: Event | None = None

    def cells(self) -> list[object]:
        """Its row in predictions.csv."""
        row = self.row
        first = [row.name, row.label, f"{row.probability:.4f}"]
        final = "1" if self.by == "person" else f"{self.probability:.4f}"
        by = "person" if self.by == "person" else "model"
        accepted = ["", ""]
        if self.accepted is not None:
            accepted = [self.accepted.who, f"{self.accepted.value['above']:.4f}"]
        return [*first, self.label, final, int(row.asked), by, *accepted]


def beliefs_of(service: Service, stream: str) -> list[Belief]:
    """The current label of every recorded image, by id."""
    rows, folder = service.store.predictions(service.stream(stream).id), service.folders.get(stream)
    if folder is not None:
        rows = [row for row in rows if not folder.files.is_replaced(row)]
    ids = [row.id for row in rows if not _named(row)]
    now: dict[int, tuple[str, float]] = {}
    for start in range(0, len(ids), BATCH_IMAGES):
        act = partial(StreamSession.repredict_kept, ids=ids[start : start + BATCH_IMAGES])
        kept = service.send(stream, act).result()
        now |= {id: (top[0][0], top[0][1]) for id, top in kept.items()}
    # Of a folder, images that the learner does not keep are predicted again at the end.
    final = {} if folder is None else folder.final
    events = service.store.events(service.stream(stream).id, kind=ACCEPTED)
    accepted = {id: event for event in events for id in event.value["ids"]}  # the last one of each image
    return [_belief(row, now.get(row.id) or final.get(row.id), accepted.get(row.id)) for row in rows]


def calibrated(probability: float, power: float = POWER) -> float:
    """The probability that a prediction is right: after few answers the head is too sure of itself.

    >>> [round(calibrated(p), 3) for p in (0.5, 0.9, 1.0)]
    [0.5, 0.823, 1.0]
    """
    odds: float = probability**power
    against: float = (1.0 - probability) ** power
    return odds / (odds + against)


def _named(row: Row) -> bool:
    """Whether a person named the class of an image, or said that it is none."""
    return row.state in LABELLED and (row.answer is not None or row.none)


def _belief(row: Row, now: tuple[str, float] | None, accepted: Event | None) -> Belief:
    if _named(row):
        return Belief(row, row.answer or "", 1.0, "person")
    label, probability = now or (row.label, row.probability)
    if accepted is not None and accepted.value["label"] != label:  # its prediction has changed since
        accepted = None
    return Belief(row, label, calibrated(probability), "first" if now is None else "model", accepted)


def accept(session: StreamSession, label: str, above: float, ids: Sequence[int], who: str) -> None:
    """Record that predictions are accepted; nothing is learned from it."""
    log = session.learner_log
    log.writable()
    value = {"label": label, "above": above, "ids": list(ids)}
    log.record(Event(log.seq + 1, ACCEPTED, None, value, who, time.time()))


class AlikeImages(BaseModel):
    """Images that one answer may label."""

    ids: list[int] = Field(description="The image, then similar ones, where that saves time.")
    seconds: float = Field(description="Labelling all at once: one question, and a glance at each.")
    singly: float = Field(description="Labelling each with a question.")

    @classmethod
    def of(cls, ids: list[int], question: float) -> AlikeImages:
        """A group where it saves time, else the first image alone.

        >>> AlikeImages.of([4, 7, 9], question=1.6), AlikeImages.of([4, 7], question=1.6).ids
        (AlikeImages(ids=[4, 7, 9], seconds=4.6, singly=4.8), [4])
        """
        together, singly = question + GLANCE * len(ids), question * len(ids)
        if together < singly:
            return cls(ids=ids, seconds=round(together, 1), singly=round(singly, 1))
        return cls(ids=ids[:1], seconds=question, singly=question)


def alike_to(session: StreamSession, id: int) -> AlikeImages:
    """The nearest images without an answer that are now predicted as the same class."""
    learner, stream = session.learner_log.learner(), session.stream
    session.store.prediction(stream.id, id)  # raises where there is none
    free = [row.id for row in session.store.predictions(stream.id, states=[UNQUERIED, OPEN])]
    near = session.step(lambda: learner.nearest(id, free, BATCH_IMAGES)) if id in free else []
    now = session.repredict_kept([id, *near])
    same = [each for each in near if each in now and now[each][0][0] == now[id][0][0]]
    question = stream.settings.get("class_seconds") or class_seconds(len(learner.classes))
    return AlikeImages.of([id, *same[: GROUP - 1]], question)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "".join(map(csv_line, [columns, *rows]))


def as_zip(store: Store, beliefs: Sequence[Belief], path: Path) -> None:
    """The images, one folder a class as it is now."""

    def name(row: Row, data: bytes) -> str:
        return f"{row.id:06d}-{folder_name(row.name.rpartition('/')[2])}"

    zip_images(store, ((each.row, each.label or NONE) for each in beliefs), path, name)


def learner_zip(service: Service, stream: str, path: Path) -> None:
    """Write the learner as `taps predict --learner` reads it; its folder beside it is left to the caller."""
    folder = path.with_name(ZIPPED)
    service.send(stream, lambda session: session.learner_log.learner().save(folder)).result()
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(each for each in folder.rglob("*") if each.is_file() and each.name != MARKER):
            archive.write(file, file.relative_to(path.parent))
