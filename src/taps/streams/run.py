"""One run over a folder of images: begun, continued after a stop, summarised."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from taps.data import Dataset, load_dataset
from taps.data.load import check_readable
from taps.data.names import are_wnids, read_names, shown
from taps.data.sources import split_archive
from taps.default import QUICK
from taps.disk import claim, remove
from taps.errors import DataError, SettingsError, StateError
from taps.files import locked, read_json, write_json
from taps.learner import Learner
from taps.methods.registry import all_methods, find_method, method_settings, with_length
from taps.model.clip import Clip, load_clip
from taps.model.prompts.classes import check_classes
from taps.model.prompts.texts import read_texts
from taps.process import begin_run, peak_rss_mb
from taps.registry import named_plugins
from taps.streams.annotators import Annotator, Context, find_annotator
from taps.streams.annotators.base import ANNOTATORS
from taps.streams.final import final_accuracy
from taps.streams.loop import Session
from taps.streams.options import ImageOptions, RunOptions
from taps.streams.record import EVENTS, PREDICTIONS, SPEC, Record, is_run, read_predictions, read_rows
from taps.streams.score import RunningScore
from taps.streams.sequence import Stream, make_stream

FREE = ("folder", "limit", "device", "name")  # options that may change when a run is continued
SUMMARY = "summary.json"


@contextmanager
def open_run(options: RunOptions, out: Path, *, resume: bool = False) -> Iterator[Session[Stream]]:
    """Begin a run in an empty folder, or continue the one that is there; the folder is locked meanwhile.

    Args:
        options: What to run; those of a continued run come from `resumed_options`.
        out: Folder of the run.
        resume: Whether to continue.
    """
    dataset, names = images_of(options)
    make = _chosen_annotator(options, dataset)
    stream = make_stream(
        dataset, options.seed, shuffle=options.shuffle, limit=options.limit, order=options.order
    )
    given = settings_of(options, dataset)
    method_settings(options.method, given)  # refused before a folder is made
    if not resume:
        read_texts(given.get("texts"), names)
        check_readable(dataset)
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device, dtype=options.dtype)
    claim(out, is_run)
    with locked(out):
        if not resume and any((out / name).exists() for name in (SPEC, PREDICTIONS)):
            raise DataError(f"{out} holds a run already; add --resume to continue, or choose another --out.")
        spec = {"options": options.plain(), "plugins": named_plugins(), **identity(clip, stream)}
        check_identity(out, spec)
        with closing(Record(out)) as record:
            if len(stream) < record.position:
                raise SettingsError(
                    f"The run in {out} is at image {record.position} already; use a --limit of more."
                )
            check_pictures(out, stream)
            given = with_length(options.method, given, len(stream))
            learner = record.learner(clip) or Learner(
                clip, names, options.method, seed=options.seed, allow_duplicates=True, **given
            )
            write_json(out / SPEC, spec)
            remove(out / SUMMARY)  # only a finished run has one
            begin_run(clip.device)

            def annotator(truth: Annotator) -> Annotator | None:
                return make(Context(learner, dataset, truth))

            yield Session(learner, stream, record, record.running(), annotator, digest=stream.sha256)


def settings_of(options: RunOptions, dataset: Dataset) -> dict[str, Any]:
    """Settings of the learner. Options that its method has no setting for are left out; --set must fit."""
    known = find_method(options.method).known
    shared = {name: getattr(options, name) for name in ("rate", "budget", "buffer", "prompts", "source")}
    shared |= QUICK if options.quick else {}
    taken = {name: value for name, value in shared.items() if value is not None and name in known}
    return taken | text_settings(options, dataset) | options.settings


def text_settings(options: ImageOptions, dataset: Dataset) -> dict[str, Any]:
    """The class texts that the options name: templates and sentences."""
    template = dataset.template if options.template == "own" else options.template
    named = {"template": template, "texts": options.texts}
    return {name: value for name, value in named.items() if value is not None}


def images_of(options: ImageOptions, classes: Sequence[str] | None = None) -> tuple[Dataset, tuple[str, ...]]:
    """The images of a folder, and their classes: those given here, those of the options, or the folders'."""
    if options.folder is None:
        raise DataError("No images given; give a folder or a zip of images.")
    if classes is None and options.classes is not None:
        classes = class_list(options.classes)
    dataset = load_dataset(options.folder, classes=classes)
    names = tuple(classes or dataset.classes)
    if not names:
        raise DataError(f"{options.folder} has no folders that name classes; give them with --classes.")
    return dataset, names


def class_list(classes: str) -> tuple[str, ...]:
    """Class names as they are typed: separated by commas, or the file that has them."""
    if os.path.isfile(classes):
        return read_names(classes)
    named = [name.strip() for name in classes.split(",") if name.strip()]
    if len(named) < 2 and ("/" in classes or Path(classes).suffix):
        raise DataError(f"--classes {classes!r}: file not found; give one with a name a line.")
    if len(named) < 2:
        raise DataError(
            f"--classes {classes!r} names {'one class' if named else 'no class'}; a classifier needs two at "
            "least: separate their names by commas, or give a file with one a line."
        )
    return read_names(named) if are_wnids(named) else check_classes(named)


def _chosen_annotator(options: RunOptions, dataset: Dataset) -> Callable[[Context], Annotator | None]:
    """What makes the annotator that the options name."""
    found = find_annotator(options.annotator)
    if found.by_labels and all(sample.label is None for sample in dataset.samples):
        raise DataError(
            f"{options.folder} has no folders named like the classes to answer from; "
            "use --annotator console or --annotator none."
        )
    if not options.name:
        return found.make
    if "name" not in found.options:
        raise SettingsError("--as names who answers at the console; use it with --annotator console.")
    return partial(found.make, name=options.name)


def identity(clip: Clip, stream: Stream) -> dict[str, str]:
    """What must be the same to continue a run: the weights; the images, their labels and their order."""
    return {"fingerprint": clip.fingerprint, "images": stream.digest()}


def check_identity(folder: Path, now: dict[str, Any]) -> None:
    """Refuse to continue a run that was started with other weights or other images."""
    begun = read_json(folder / SPEC) if (folder / SPEC).is_file() else {}
    for name, what in (("fingerprint", "other weights"), ("images", "other images, labels or another order")):
        if name in begun and begun[name] != now[name]:
            raise StateError(
                f"The run in {folder} was started with {what} ({begun[name]}, now {now[name]}); "
                "give the same ones to continue, or start another with another --out."
            )


def other_pictures(folder: Path, stream: Stream) -> tuple[set[str], set[str]]:
    """Paths of images of a run whose files are other pictures now, and of those that can be read no more."""
    other, gone = set(), set()
    for row in read_rows(folder):
        try:
            if row.image and stream.sha256(row.seq) != row.image:  # older runs have no digests
                other.add(row.name)
        except DataError:
            gone.add(row.name)
    return other, gone


def check_pictures(folder: Path, stream: Stream) -> None:
    """Refuse to continue a run whose images were replaced: what is on record is not of the new ones."""
    other, _ = other_pictures(folder, stream)
    if other:
        raise StateError(
            f"Images of the run in {folder} were replaced by other pictures ({shown(sorted(other))}); put "
            "the first ones back to continue, or start another run with another --out."
        )


def check_plugins(folder: Path, *, asks: bool = False) -> None:
    """Refuse the run of a method, or where it `asks` of an annotator, that is not registered here.

    The folder names the plugin that has it. A plugin is code, and a folder may come from anybody: no plugin
    is imported unless its user names it.
    """
    spec = read_json(folder / SPEC)
    named, options = spec.get("plugins"), _options(spec)
    method, annotator = (str(options.get(key)) for key in ("method", "annotator"))
    known: dict[str, Container[str]] = {method.removesuffix("+"): all_methods()}
    known |= {annotator.partition(":")[0]: ANNOTATORS} if asks else {}
    unknown = [name for name, registered in known.items() if name not in registered]
    if named and unknown:
        again = " ".join(f"--plugin {name!r}" for name in named)
        raise SettingsError(
            f"The run in {folder} has {unknown[0]!r} of a plugin, which is code and is not run unasked; "
            f"where you trust it, add {again}."
        )


def _options(spec: dict[str, Any]) -> dict[str, Any]:
    """The options that a run is stored with, by the names of today."""
    options = dict(spec["options"])
    if "oracle" in options:  # of before 0.3
        options |= {"name": options.get("annotator"), "annotator": options.pop("oracle")}
    return options


def stored_options(out: Path) -> RunOptions:
    """The options of the run in a folder."""
    if not (out / SPEC).is_file():
        raise StateError(f"{out} holds no run to continue; give the folder of one with --out.")
    try:
        spec = read_json(out / SPEC)
    except StateError as error:
        raise StateError(f"{str(error).rstrip('.')}; choose another --out.") from error
    known = {item.name for item in fields(RunOptions)}
    try:
        return RunOptions(**{name: value for name, value in _options(spec).items() if name in known})
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{out} holds no run of `taps run` ({error!r}); choose another --out.") from error


def resumed_options(out: Path, options: RunOptions, given: Collection[str]) -> RunOptions:
    """The options a run was started with; those given now must not contradict them.

    Args:
        out: Folder of the run.
        options: As they are now.
        given: Names of those that were typed; the others are defaults and contradict nothing.
    """
    stored = stored_options(out)
    check_plugins(out, asks=True)
    before, now = stored.plain(), options.plain()
    for name in given:
        if name in before and name not in FREE and now[name] != before[name]:
            raise SettingsError(
                f"The run in {out} was started with {_typed(name, before[name])}, not "
                f"{_typed(name, now[name])}; leave the option out to continue it, or choose another --out."
            )
    resumed = replace(stored, **{name: getattr(options, name) for name in FREE if name in given})
    place = Path(resumed.folder or "")
    if place.is_absolute() and not place.exists() and split_archive(place) is None:
        raise StateError(
            f"The images of the run in {out} were in {place}; say where they are now: "
            f"taps run FOLDER --resume --out {out}"
        )
    return resumed


def _typed(name: str, value: Any) -> str:
    """An option as it is typed."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    flag = "--set" if name == "settings" else "" if name == "folder" else f"--{name}"
    shown = " ".join(f"{key}={part}" for key, part in value.items()) if isinstance(value, dict) else value
    return f"{flag} {shown}".strip() if value not in (None, {}) else f"no {flag}"


def last_run(below: Path, folder: str | None = None) -> Path:
    """The run below a folder that was worked on last; unfinished ones go before others.

    Args:
        below: Where runs without --out are put.
        folder: Only runs over these images.
    """
    found = [spec.parent for spec in below.glob(f"*/{SPEC}")]
    if folder is not None:
        images = RunOptions(folder).plain()["folder"]
        found = [out for out in found if stored_options(out).folder == images]
    if not found:
        over = "" if folder is None else f" over {folder}"
        raise SettingsError(f"No run{over} in {below} can be continued; give its folder with --out.")

    def touched(out: Path) -> float:
        return max((out / name).stat().st_mtime for name in (EVENTS, SPEC) if (out / name).is_file())

    return max(found, key=lambda out: (not (out / SUMMARY).is_file(), touched(out)))


def summarise(learner: Learner, running: RunningScore, folder: Path) -> dict[str, Any]:
    """What `summary.json` holds. Times come from predictions.csv, which has those of before a stop, too."""
    rows = read_predictions(folder)
    times = 1000 * np.array([float(row["seconds"]) for row in rows] or [0.0])
    plain = {
        item.name: value
        if isinstance(value := getattr(learner.settings, item.name), (int, float, str, type(None)))
        else str(value)
        for item in fields(learner.settings)
        if item.name not in ("prompts", "source", "texts")
    }
    return {
        "n": learner.seen,
        "broken": running.broken,
        "top1": running.accuracy,
        "top1_final": final_accuracy(rows),
        "delivered": final_accuracy(rows, answered=True),
        "accuracy_of": running.accuracy_of,
        "asked": learner.asked,
        "answered": running.answered,
        "rate": learner.asked / learner.seen if learner.seen else 0.0,
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
