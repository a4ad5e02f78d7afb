"""What several commands share: settings from the command line, data sets, oracles, progress bars."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.data import Dataset, load_dataset
from taps.data.names import read_names
from taps.errors import DataError, SettingsError
from taps.methods.registry import find_method
from taps.prompts.classifier import check_classes


def parse_value(text: str) -> Any:
    """A setting's value as typed: a number, a Python literal, or else the text itself.

    >>> parse_value("0.05"), parse_value("never"), parse_value("(0, 1)")
    (0.05, 'never', (0, 1))
    """
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs."""
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"--set {pair!r} is not of the form name=value.")
        values[name.strip().replace("-", "_")] = parse_value(text.strip())
    return values


def given_settings(method: str, options: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Options that were given and that the method has, and --set pairs, which it must have."""
    known = find_method(method).known
    taken = {name: value for name, value in options.items() if value is not None and name in known}
    return taken | parse_settings(pairs)


def dataset_for(folder: str, classes: str | None, oracle: str) -> tuple[Dataset, tuple[str, ...]]:
    """The images of a folder and the class names to sort them into."""
    if oracle not in ("folder", "console", "none"):
        raise SettingsError(f"--oracle {oracle!r} is unknown; use folder, console or none.")
    given = None if classes is None else _class_list(classes)
    dataset = load_dataset(folder, classes=given)
    names = given or dataset.classes
    if not names:
        raise DataError(f"{folder} has no folders that name classes; give them with --classes.")
    if oracle == "folder" and all(sample.label is None for sample in dataset.samples):
        raise DataError(
            f"{folder} has no class folders to answer from; use --oracle console or --oracle none."
        )
    return dataset, names


def _class_list(classes: str) -> tuple[str, ...]:
    if "," in classes or not Path(classes).exists():
        return check_classes([name.strip() for name in classes.split(",") if name.strip()])
    return read_names(classes)


class StreamProgress:
    """A progress bar over a stream: running accuracy, questions asked, milliseconds an image."""

    def __init__(self, console: Any, total: int, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.bar.add_task("images", total=total, completed=done, note="")
        self.asked = 0
        self.spent = 0.0
        self.count = 0

    def __enter__(self) -> StreamProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, prediction: Any, tally: Any) -> None:
        if prediction is not None:
            self.asked += prediction.ask
            self.spent += prediction.seconds
            self.count += 1
        accuracy = "" if tally.accuracy is None else f"accuracy {tally.accuracy:.1%}  "
        pace = 1000 * self.spent / max(self.count, 1)
        broken = f"  broken {tally.broken}" if tally.broken else ""
        note = f"{accuracy}asked {self.asked}  {pace:.0f} ms/image{broken}"
        self.bar.update(self.task, completed=tally.position, note=note)


def stream_progress(console: Any, total: int, done: int = 0) -> StreamProgress:
    return StreamProgress(console, total, done)


def make_oracle(
    kind: str, classes: Sequence[str], labels: Mapping[str, int | None], progress: StreamProgress
) -> Any:
    """Who answers the questions of a run."""
    if kind == "none":
        return None
    if kind == "folder":
        return FolderOracle(labels)
    from taps.oracles import Console

    return PausedConsole(Console(tuple(classes)), progress)


class FolderOracle:
    """Answers with the name of the folder an image lies in."""

    def __init__(self, labels: Mapping[str, int | None]) -> None:
        self.labels = labels

    def answer(self, query: Any) -> int | None:
        return self.labels.get(query.source)


class PausedConsole:
    """Stops the progress bar while a person is being asked."""

    def __init__(self, console: Any, progress: StreamProgress) -> None:
        self.console = console
        self.progress = progress

    def answer(self, query: Any) -> int | str | None:
        self.progress.bar.stop()
        try:
            return self.console.answer(query)  # type: ignore[no-any-return]
        finally:
            self.progress.bar.start()
