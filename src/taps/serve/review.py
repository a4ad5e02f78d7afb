"""What is believed of every image of a stream now, and which predictions people accept as they are."""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from taps.active.question import class_seconds
from taps.aliases import current_settings
from taps.files import csv_line
from taps.serve.export import harmless, zip_images
from taps.serve.records import Event
from taps.serve.service import Service
from taps.serve.stream_session import StreamSession
from taps.session.log import ACCEPTED
from taps.session.predict import ZIPPED
from taps.session.row import LABELLED, OPEN, UNQUERIED, Row
from taps.session.sorting import folder_name

NONE = "none of the classes"
POWER = 0.7  # of the head's odds; docs/results/folder-order.md says what it was fitted to
COLUMNS = (
    "path", "label", "by", "probability", "predicted_first", "asked", "accepted_by", "accepted_above",
)  # fmt: skip
TOGETHER = 100  # images predicted again in one go, while answers wait
GROUP = 12  # images alike that are labelled at once, at most: a screen of them
GLANCE = 1.0  # seconds in which a person sees that one of them belongs to the others


@dataclass(frozen=True)
class Acceptance:
    """Predictions that somebody took as they were.

    Attributes:
        who: Who did.
        at: When, in seconds since 1970.
        label: The class they were predicted as.
        above: From which probability on.
        ids: Which they are.
    """

    who: str
    at: float
    label: str
    above: float
    ids: Sequence[int]


@dataclass(frozen=True)
class Belief:
    """What is believed of an image.

    Attributes:
        row: What is on record of it.
        label: Its class; nothing where a person said that it is none.
        probability: That it is right, calibrated; 1 where a person named it.
        by: "person"; "model", which predicted it again; "first", which did not.
        accepted: Where somebody accepted this prediction.
    """

    row: Row
    label: str
    probability: float
    by: str
    accepted: Acceptance | None = None

    def cells(self) -> list[object]:
        """Its row in predictions.csv."""
        asked = int(self.row.asked)
        said = "" if self.by == "person" else f"{self.probability:.4f}"
        by = "person" if self.by == "person" else "model"
        accepted = ["", ""] if self.accepted is None else [self.accepted.who, f"{self.accepted.above:.4f}"]
        return [self.row.name, self.label, by, said, self.row.label, asked, *accepted]


def beliefs_of(
    service: Service, stream: str, final: Mapping[str, tuple[str, float]] | None = None
) -> list[Belief]:
    """What is believed of every image on record, by id.

    Args:
        service: Open.
        stream: The stream's name.
        final: What was predicted again of images that the learner does not keep, by name.
    """
    rows = service.store.predictions(service.stream(stream).id)
    ids = [row.id for row in rows if not _said(row)]
    now: dict[int, tuple[str, float]] = {}
    for start in range(0, len(ids), TOGETHER):
        act = partial(StreamSession.repredict_kept, ids=ids[start : start + TOGETHER])
        kept = service.send(stream, act).result()
        now |= {id: (top[0][0], top[0][1]) for id, top in kept.items()}
    accepted = accepted_of(service, stream)
    return [
        _belief(row, now.get(row.id) or (final or {}).get(row.name), accepted.get(row.id)) for row in rows
    ]


def calibrated(probability: float, power: float = POWER) -> float:
    """The probability that a prediction is right: few answers make the head too sure of itself.

    >>> [round(calibrated(p), 3) for p in (0.5, 0.9, 1.0)]
    [0.5, 0.823, 1.0]
    """
    odds: float = probability**power
    against: float = (1.0 - probability) ** power
    return odds / (odds + against)


def _said(row: Row) -> bool:
    """Whether a person said of which class an image is, or that it is of none."""
    return row.state in LABELLED and (row.answer is not None or row.none)


def _belief(row: Row, now: tuple[str, float] | None, accepted: Acceptance | None) -> Belief:
    if _said(row):
        return Belief(row, row.answer or "", 1.0, "person")
    label, said = now or (row.label, row.probability)
    probability = calibrated(said)
    if accepted is not None and accepted.label != label:  # it is believed to be something else since
        accepted = None
    return Belief(row, label, probability, "first" if now is None else "model", accepted)


def accept(session: StreamSession, label: str, above: float, ids: Sequence[int], who: str) -> None:
    """Put on record that predictions are taken as they are; nothing is learned from it."""
    log = session.learner_log
    log.writable()
    value = {"label": label, "above": above, "ids": list(ids)}
    log.record(Event(log.seq + 1, ACCEPTED, None, value, who, time.time()))


def accepted_of(service: Service, stream: str) -> dict[int, Acceptance]:
    """The last acceptance of each image, by id."""
    events = service.store.events(service.stream(stream).id, kind=ACCEPTED)
    made = [Acceptance(event.who, event.at, **event.value) for event in events]
    return {id: each for each in made for id in each.ids}


@dataclass(frozen=True)
class Alike:
    """Images that one answer may label.

    Attributes:
        ids: Which they are, the one that was asked about first, then the nearest.
        seconds: What labelling them at once takes a person: one question, and a glance at each.
        singly: What as many questions take.
    """

    ids: list[int]
    seconds: float
    singly: float

    @classmethod
    def of(cls, ids: list[int], question: float) -> Alike:
        """A group where it saves time, else the first image alone.

        >>> Alike.of([4, 7, 9], question=1.6), Alike.of([4, 7], question=1.6).ids
        (Alike(ids=[4, 7, 9], seconds=4.6, singly=4.8), [4])
        """
        together, singly = question + GLANCE * len(ids), question * len(ids)
        if together < singly:
            return cls(ids, round(together, 1), round(singly, 1))
        return cls(ids[:1], question, question)


def alike_to(session: StreamSession, id: int) -> Alike:
    """The nearest images without an answer of which the head says the same by now."""
    learner, stream = session.learner_log.learner(), session.stream
    session.store.prediction(stream.id, id)  # refused where there is none
    free = [row.id for row in session.store.predictions(stream.id, states=[UNQUERIED, OPEN])]
    near = session.step(lambda: learner.nearest(id, free, TOGETHER)) if id in free else []
    said = session.repredict_kept([id, *near])
    same = [each for each in near if each in said and said[each][0][0] == said[id][0][0]]
    question = current_settings(stream.settings).get("class_seconds") or class_seconds(len(learner.classes))
    return Alike.of([id, *same[: GROUP - 1]], question)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; what a spreadsheet would take for a formula is quoted for it."""
    return csv_line(columns) + "".join(csv_line([harmless(cell) for cell in row]) for row in rows)


def as_zip(service: Service, found: Sequence[Belief], path: Path) -> None:
    """The images, one folder a class as it is believed now."""

    def name(row: Row, data: bytes) -> str:
        return f"{row.id:06d}-{folder_name(row.name.rpartition('/')[2])}"

    zip_images(service.store, ((each.row, each.label or NONE) for each in found), path, name)


def learner_zip(session: StreamSession, path: Path) -> None:
    """The learner, as `taps predict --learner` takes it."""
    folder = path.with_suffix("")
    session.learner_log.learner().save(folder)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            archive.write(file, f"{ZIPPED}/{file.relative_to(folder)}")
    shutil.rmtree(folder)
