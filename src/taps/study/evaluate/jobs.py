"""One run of an evaluation: its stream, model, method and seed; and how it is carried out."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from taps import __version__
from taps.data import Dataset, corrupt_dataset, load_dataset
from taps.data.outside import parse_outside, with_outside
from taps.disk import claim
from taps.errors import DataError, ImageError, SettingsError
from taps.files import json_text, locked, write_json
from taps.learner import Learner
from taps.learner.prepared import DrawnImage
from taps.methods.registry import with_length
from taps.model.clip import Clip, load_clip
from taps.process import begin_run
from taps.streams.annotators import Annotator, Delayed, Noisy
from taps.streams.final import repredict_all
from taps.streams.loop import Session, follow
from taps.streams.record import ROWS, SPEC, Pace, Record, is_run
from taps.streams.run import check_identity, identity
from taps.streams.score import RunningScore, StreamStep
from taps.streams.sequence import make_stream
from taps.study.evaluate.features import VIEW_SEED, Outputs, find_store
from taps.study.evaluate.pooled import block_of
from taps.study.evaluate.scores import read_run, score
from taps.types import OUTSIDE

ROW = "row.json"
OUTPUTS_FOLDER = "outputs"  # of an evaluation: predictions that hold for every order, until it is over
PASSES = 12  # of zero-shot, to know what adaptation adds
PATIENCE = 90.0  # seconds to wait for a worker whose parent was killed, or that is cut off, to notice it


@dataclass(frozen=True)
class StreamSpec:
    """Which images, and in which order: a data set, perhaps seen through a corruption, or mixed.

    Attributes:
        dataset: Name or path, as `load_dataset` takes it.
        root: Folder of the named sets.
        corrupt: Kind of corruption.
        severity: Of the corruption, 1 to 5.
        name: In tables; the data set's own name unless given.
        outside: Images of no class among them, as `taps.data.outside` takes it.
        order: One of `taps.data.orders.ORDERS`.
    """

    dataset: str
    root: str | None = None
    corrupt: str | None = None
    severity: int = 3
    name: str = ""
    outside: str | None = None
    order: str = "shuffled"

    @property
    def suffix(self) -> str:
        """Added to the name of the data set: what is done to its images."""
        parts = [
            f"+{self.corrupt}-{self.severity}" if self.corrupt else "",
            f"+outside-{Path(parse_outside(self.outside)[0]).stem}" if self.outside else "",
            f"+{self.order}" if self.order != "shuffled" else "",
        ]
        return "".join(parts)

    def load(self) -> Dataset:
        """The data set, mixed and corrupted as wanted; both are seeded with 0, whatever the run's seed."""
        dataset = load_dataset(self.dataset, root=self.root)
        if self.outside is not None:
            dataset = with_outside(dataset, self.outside, self.root)
        return dataset if self.corrupt is None else corrupt_dataset(dataset, self.corrupt, self.severity)


@dataclass(frozen=True)
class ModelSpec:
    """Which model, as `load_clip` takes it."""

    name: str
    pretrained: str | None = None


@dataclass(frozen=True)
class Job:
    """One run. Plain values only, so that it travels to another process and into a file.

    Attributes:
        seed: Of the stream's order and of the learner.
        settings: Of the method, where they differ from its defaults.
        label: The method's name in tables.
        limit: Number of images, the first of the order.
        noise: Share of wrong answers from the annotator.
        delay: Images that pass before an answer comes.
    """

    stream: StreamSpec
    model: ModelSpec
    method: str
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    limit: int | None = None
    noise: float = 0.0
    delay: int = 0

    def __post_init__(self) -> None:
        ranges = (("limit", self.limit, 1, None), ("delay", self.delay, 0, None), ("noise", self.noise, 0, 1))
        for name, value, least, most in ranges:
            if value is not None and not least <= value <= (value if most is None else most):
                wanted = f"{least} or more" if most is None else f"{least} to {most}"
                raise SettingsError(f"--{name} is {value}; it must be {wanted}.")

    @property
    def title(self) -> str:
        return self.label or self.method

    def length(self, lengths: Mapping[str, int]) -> int:
        """Images of the run, from the length of each stream."""
        whole = lengths[self.stream.name]
        return min(self.limit or whole, whole)

    def folder(self, out: Path) -> Path:
        """Where its files lie: runs/<dataset>/<method>/<seed>."""
        return out / "runs" / slug(self.stream.name) / slug(self.title) / str(self.seed)


def slug(name: str) -> str:
    """A name as one folder's name.

    >>> slug("pacs/photo"), slug("maple+tpt")
    ('pacs-photo', 'maple+tpt')
    """
    return "".join(c if c.isalnum() or c in "._+=-" else "-" for c in name).strip(".") or "unnamed"


@lru_cache(maxsize=1)
def _clip(model: ModelSpec, device: str | None) -> Clip:
    return load_clip(model.name, pretrained=model.pretrained, device=device)


@lru_cache(maxsize=2)
def open_dataset(stream: StreamSpec) -> Dataset:
    """The data set of a stream; the last ones stay in memory."""
    return stream.load()


def prepare(job: Job, device: str | None) -> None:
    """Load the model and the data set of a run, or raise what is wrong with them; they stay in memory."""
    _clip(job.model, device)
    open_dataset(job.stream)


@lru_cache(maxsize=64)
def _zero_shot_ms(stream: StreamSpec, model: ModelSpec, device: str | None) -> float | None:
    """Median time of a zero-shot pass over the first images, in this process: what every method pays.

    None where not one of them can be read.
    """
    dataset = open_dataset(stream)
    learner = Learner(_clip(model, device), dataset.classes, "zero_shot", allow_duplicates=True)
    times = []
    for index in range(min(PASSES, len(dataset))):
        # A broken image is counted by the run itself; here it only gives no time.
        with suppress(ImageError, DataError):
            times.append(1000 * learner.predict_one(dataset.image(index)).seconds)
    return float(np.median(times)) if times else None


def run_job(
    job: Job,
    out: Path,
    *,
    device: str | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[RunningScore], None] = lambda running: None,
    pace: Pace = Pace(),
) -> dict[str, Any] | None:
    """Carry one run out, from its last checkpoint where it has one.

    Args:
        job: What to run.
        out: Folder of the evaluation; the run has a folder of its own below.
        device: cpu or cuda; by default a GPU where one is found.
        stop: Asked before every image; where it is true the run is saved, and None is returned.
        progress: Called after every image.
        pace: How often the run is saved.
    """
    folder = job.folder(out)
    clip = _clip(job.model, device)
    dataset = open_dataset(job.stream)
    check_labels(dataset)
    stream = make_stream(dataset, job.seed, limit=job.limit, order=job.stream.order)
    settings = with_length(job.method, job.settings, len(stream))
    fresh = Learner(clip, dataset.classes, job.method, seed=job.seed, allow_duplicates=True, **settings)
    outputs = _outputs(job, out, fresh, dataset) if fresh.method.stateless else None
    stream = replace(stream, look=_look(job, fresh, dataset, outputs))
    claim(folder, is_run)
    with locked(folder, patience=PATIENCE), closing(Record(folder, pace)) as record:
        spec = {**asdict(job), **identity(clip, stream)}
        check_identity(folder, spec)
        write_json(folder / SPEC, spec)
        begin_run(clip.device)
        learner, running = record.learner(clip) or fresh, record.running()
        session = Session(learner, stream, record, running, lambda truth: _annotator(job, truth, dataset))

        def watch(step: StreamStep, running: RunningScore) -> None:
            if outputs is not None and step.prediction is not None:
                outputs.keep(stream.order[step.t], step.prediction)
            progress(running)

        if not follow(session, stop=stop, progress=watch):
            return None
        repredict_all(session, look=False)
        plain = _zero_shot_ms(job.stream, job.model, device)
        row = score(read_run(folder), running, learner.summary(), asked=learner.asked, zero_shot_ms=plain)
        names = {"dataset": job.stream.name, "method": job.title, "seed": job.seed}
        row = {**names, "texts": block_of(job.method, job.settings), **row}
        files = {name: mark for name, mark in record.marks.items() if name != ROWS}  # it may go
        write_json(folder / ROW, {**row, "files": files})
        if len(stream) == len(dataset):
            record.forget()  # nothing can follow, so the state need not be kept
    return row


def _outputs(job: Job, out: Path, learner: Learner, dataset: Dataset) -> Outputs:
    """The file of predictions of a method without state, which its runs in other orders share."""
    known = asdict(replace(job, seed=0, limit=None, noise=0.0, delay=0))
    known["stream"]["order"] = ""
    device = str(learner.clip.device)
    made_by = json_text([known, __version__, learner.clip.fingerprint, device], default=str)
    images = "\n".join(f"{sample.path}\t{sample.label}" for sample in dataset.samples)
    name = hashlib.sha256(f"{made_by}\n{images}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return Outputs(out / OUTPUTS_FOLDER / f"{name}.npy", len(dataset), len(dataset.classes))


def _look(job: Job, learner: Learner, dataset: Dataset, outputs: Outputs | None) -> Callable[[int], Any]:
    """Maps an index to what is known of the image, or its pixels. Views are the same in every order."""
    stored = learner.method.needs_features_only
    store = find_store(learner.clip, dataset, learner.settings) if stored else None

    def look(index: int) -> Any:
        known = None if outputs is None else outputs.image(index)
        if known is None and store is not None:
            known = store.image(index)
        return known or DrawnImage(dataset.image(index), VIEW_SEED, index)

    return look


def check_labels(dataset: Dataset) -> None:
    """Refuse a data set with images that have no label, or a label of no class."""
    unknown = sum(sample.label is None for sample in dataset.samples)
    if unknown:
        raise DataError(
            f"{unknown:,} of {len(dataset):,} images of {dataset.name} have no label; give them one."
        )
    outside = sum(not OUTSIDE <= (sample.label or 0) < len(dataset.classes) for sample in dataset.samples)
    if outside:
        raise DataError(
            f"{outside:,} images of {dataset.name} have labels outside its {len(dataset.classes):,} classes; "
            "repair them."
        )


def _annotator(job: Job, truth: Annotator, dataset: Dataset) -> Annotator:
    noisy = Noisy(truth, job.noise, len(dataset.classes), job.seed) if job.noise else truth
    return Delayed(noisy, job.delay) if job.delay else noisy


def quiet_logs() -> None:
    """Let a worker log errors alone: its parent reports what matters."""
    logging.getLogger("taps").setLevel(logging.ERROR)
