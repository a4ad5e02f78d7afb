"""`taps run`: one learner over one folder of images, begun or taken up again."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from taps.clip import Clip, load_clip
from taps.data import Dataset, load_dataset
from taps.data.names import are_wnids, read_names
from taps.default import QUICK
from taps.errors import DataError, SettingsError
from taps.files import make_folder, write_json
from taps.learner import Learner
from taps.methods.plugins import named_plugins
from taps.methods.registry import find_method, method_settings, with_length
from taps.oracles import Console, Oracle
from taps.prompts.classes import check_classes
from taps.prompts.texts import read_texts
from taps.session.final import final_accuracy
from taps.session.lock import locked
from taps.session.loop import Session
from taps.session.memory_peak import begin_run, peak_rss_mb
from taps.session.options import ImageOptions, RunOptions
from taps.session.record import PREDICTIONS, SPEC, Record, read_predictions
from taps.session.resume import SUMMARY, check_identity, identity
from taps.session.running_score import RunningScore
from taps.session.stream import make_stream


@contextmanager
def open_run(options: RunOptions, out: Path, *, resume: bool = False) -> Iterator[Session]:
    """Begin a run in an empty folder, or go on with the one that is there; nobody else may meanwhile.

    Args:
        options: What to run; those of a run that goes on come from `resumed_options`.
        out: Folder of the run.
        resume: Whether going on with what is there is wanted.
    """
    dataset, names = images_of(options)
    _check_oracle(options, dataset)
    stream = make_stream(
        dataset, options.seed, shuffle=options.shuffle, limit=options.limit, order=options.order
    )
    given = settings_of(options, dataset)
    method_settings(options.method, given)  # refused before a folder is made
    if not resume:
        read_texts(given.get("texts"), names)
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device, dtype=options.dtype)
    make_folder(out)
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
            given = with_length(options.method, given, len(stream))
            learner = record.learner(clip) or make_learner(options, clip, names, given)
            write_json(out / SPEC, spec)
            (out / SUMMARY).unlink(missing_ok=True)  # it tells of a finished run
            begin_run(clip.device)
            yield Session(learner, stream, record, record.running(), _annotator(options, learner, dataset))


def make_learner(options: RunOptions, clip: Clip, names: Sequence[str], given: dict[str, Any]) -> Learner:
    """A fresh learner with the settings given."""
    return Learner(clip, names, options.method, seed=options.seed, allow_duplicates=True, **given)


def settings_of(options: RunOptions, dataset: Dataset) -> dict[str, Any]:
    """Of the learner. Options that its method has no setting for are left out; --set must be its own."""
    known = find_method(options.method).known
    shared = {name: getattr(options, name) for name in ("rate", "budget", "buffer", "prompts", "source")}
    shared |= QUICK if options.quick else {}
    taken = {name: value for name, value in shared.items() if value is not None and name in known}
    return taken | text_settings(options, dataset) | options.settings


def text_settings(options: ImageOptions, dataset: Dataset) -> dict[str, Any]:
    """The class texts that the options name: templates and sentences, where they name any."""
    template = dataset.template if options.template == "own" else options.template
    named = {"template": template, "texts": options.texts}
    return {name: value for name, value in named.items() if value is not None}


def images_of(options: ImageOptions, classes: Sequence[str] | None = None) -> tuple[Dataset, tuple[str, ...]]:
    """The images of a folder and the class names to sort them into: given here, or as the options say."""
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


def _check_oracle(options: RunOptions, dataset: Dataset) -> None:
    if options.oracle == "folder" and all(sample.label is None for sample in dataset.samples):
        raise DataError(
            f"{options.folder} has no folders named like the classes to answer from; "
            "use --oracle console or --oracle none."
        )
    if options.annotator and options.oracle != "console":
        raise SettingsError("--annotator says who answers at the console; use it with --oracle console.")


def _annotator(options: RunOptions, learner: Learner, dataset: Dataset) -> Callable[[Oracle], Oracle | None]:
    """Who answers, made from the one who knows the labels of the folder."""
    annotators: dict[str, Callable[[Oracle], Oracle | None]] = {
        "folder": lambda truth: truth,
        "console": lambda truth: Console(
            learner.classes,
            picture=dataset.source.read,
            add_class=learner.add_class,
            labels_only=not learner.method.takes_any_answer,
            annotator=options.annotator or "",
            settings=learner.settings,
        ),
        "none": lambda truth: None,
    }
    return annotators[options.oracle]


def summarise(learner: Learner, running: RunningScore, folder: Path) -> dict[str, Any]:
    """What `summary.json` holds. Times are read back from the predictions, so a resumed run counts whole."""
    rows = read_predictions(folder)
    seconds = [float(row["seconds"]) for row in rows]
    times = 1000 * np.array(seconds or [0.0])
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
