"""Tables, JSON and progress bars on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich import progress as columns
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Column, Table

from taps.files import json_text

if TYPE_CHECKING:
    from taps.streams.annotators import Annotator, Reply
    from taps.streams.score import RunningScore, StreamStep
    from taps.study.evaluate.jobs import Job
    from taps.study.evaluate.pool import Watch
    from taps.study.training.train import EpochProgress
    from taps.types import Query


def show_table(
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    console: Console | None = None,
) -> None:
    """Print rows below headings, without lines between them."""
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    (console or Console()).print(table)


def show_json(value: Any, *, indent: int | None = 2) -> None:
    print(json_text(value, indent=indent, ensure_ascii=False))


class Bars:
    """Bars with the time that is left; without a console, on standard error where that is a terminal."""

    def __init__(self, *shown: columns.ProgressColumn, console: Console | None = None) -> None:
        self.bar = columns.Progress(
            *shown,
            columns.TimeRemainingColumn(),
            console=console or Console(file=sys.stderr),
            disable=console is None and not sys.stderr.isatty(),
        )

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


class RunsProgress(Bars):
    """A bar for each run, and one for all of them."""

    def __init__(self, console: Console) -> None:
        title = TextColumn("{task.description}", markup=False)
        super().__init__(title, BarColumn(bar_width=24), MofNCompleteColumn(), console=console)
        self.tasks: dict[int, Any] = {}
        self.done: dict[int, int] = {}

    def watcher(self, left: Sequence[tuple[Job, int]]) -> Watch:
        """The function that is told about these runs."""
        overall = self.bar.add_task("all runs", total=sum(total for _, total in left))

        def watch(what: str, index: int, value: Any) -> None:
            job, total = left[index]
            if what == "start":
                title = f"{job.stream.name} · {job.title} · seed {job.seed}"
                self.tasks[index] = self.bar.add_task(title, total=total)
                return
            if what == "progress":
                self.done[index] = value
                self.bar.update(self.tasks[index], completed=value)
            else:
                self.done[index] = total
                self.bar.remove_task(self.tasks.pop(index))
                if what == "done":
                    self.bar.console.print(_result(job, value), markup=False, highlight=False)
                elif what == "failed":
                    line = f"failed: {job.stream.name} {job.title}: {value}"
                    self.bar.console.print(line, markup=False, soft_wrap=True)
            self.bar.update(overall, completed=sum(self.done.values()))

        return watch


def _result(job: Job, row: dict[str, Any]) -> str:
    asked = f", asked {row['rate']:.1%}" if row["asked"] else ""
    broken = f", {row['broken']} broken" if row["broken"] else ""
    return (
        f"{job.stream.name} · {job.title} · seed {job.seed}: "
        f"{row['top1']:.2%} of {row['n']:,}{asked}{broken}, {row['ms_p50']:.1f} ms an image"
    )


class StreamProgress(Bars):
    """A progress bar over a stream: running accuracy, questions asked, milliseconds an image."""

    def __init__(self, console: Console, total: int, done: int = 0, title: str = "images") -> None:
        shown = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        super().__init__(*shown, TextColumn("{task.fields[note]}"), console=console)
        self.task = self.bar.add_task(title, total=total, completed=done, note="")
        self.spent = 0.0
        self.count = 0

    def update(self, step: StreamStep, running: RunningScore) -> None:
        if step.prediction is not None:
            self.spent += step.prediction.seconds
            self.count += 1
        accuracy = "" if running.accuracy is None else f"{running.accuracy_of} {running.accuracy:.1%}  "
        pace = 1000 * self.spent / max(self.count, 1)
        broken = f"  broken {running.broken}" if running.broken else ""
        note = f"{accuracy}asked {running.asked}  {pace:.0f} ms/image{broken}"
        self.bar.update(self.task, completed=running.position, note=note)

    def again(self, done: int) -> None:
        """Show how many images are predicted again."""
        self.bar.update(self.task, description="predicted again", completed=done, note="")


class PassProgress(Bars):
    """A progress bar over a pass through a set of images."""

    def __init__(self, total: int) -> None:
        super().__init__(TextColumn("images"), BarColumn(), MofNCompleteColumn())
        self.task = self.bar.add_task("", total=total)
        self.seen: list[tuple[float, int]] = []  # when how many were done: the first time and the last

    def update(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done)
        self.seen = [*self.seen[:1], (time.perf_counter(), done)]

    @property
    def rate(self) -> float | None:
        """Images a second since the first batch was done."""
        if len(self.seen) < 2:
            return None
        (began, before), (ended, done) = self.seen
        return (done - before) / (ended - began)


class TrainingProgress(Bars):
    """A progress bar with loss and accuracy; a line per epoch where nobody watches."""

    def __init__(self, epochs: int, family: str) -> None:
        super().__init__(
            TextColumn(f"{family}  epoch {{task.fields[epoch]}}/{epochs}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
        )
        self.epochs = epochs
        self.task = self.bar.add_task("", total=None, epoch=0, note="")

    def update(self, tick: EpochProgress) -> None:
        note = f"loss {tick.loss:.3f}  accuracy {tick.accuracy:.1%}  lr {tick.lr:.2g}"
        done, total = tick.epoch * tick.batches + tick.batch, self.epochs * tick.batches
        self.bar.update(self.task, completed=done, total=total, epoch=tick.epoch + 1, note=note)
        if self.bar.disable and tick.batch == tick.batches:
            print(f"epoch {tick.epoch + 1}/{self.epochs}  {note}", file=sys.stderr)


class Paused:
    """An annotator that stops the progress bar while a person is being asked."""

    def __init__(self, person: Annotator, bar: Any) -> None:
        self.person, self.bar = person, bar

    def answer(self, query: Query) -> Reply | None:
        self.bar.stop()
        try:
            return self.person.answer(query)
        finally:
            self.bar.start()

    def corrections(self) -> list[tuple[Query, Reply]]:
        from taps.streams.annotators import corrections

        return corrections(self.person)
