"""The demo: a bundled stream through several methods, and one page that shows what happened."""

from __future__ import annotations

import copy
import html
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from taps.learner import Learner
from taps.methods.registry import find_method
from taps.streams.loop import Session, follow
from taps.streams.record import Pace, Record, read_predictions
from taps.streams.score import RunningScore, StreamStep
from taps.streams.sequence import Stream
from taps.study.report.charts import bars, questions_of
from taps.study.report.document import Card, card, document, gallery, thumbnail
from taps.study.report.svg import COLOURS, Line, chart
from taps.study.report.table import Table, html_table

WINDOW = 50  # last images that each point of the accuracy over time is taken over


@dataclass(frozen=True)
class Trace:
    """What one method did on the stream: its predictions, as `predictions.csv` has them.

    Attributes:
        line: What the method does, in a sentence.
        changed: What its last answers changed, in a sentence.
    """

    name: str
    line: str
    rows: Sequence[dict[str, str]]
    changed: str = ""

    @property
    def correct(self) -> list[bool]:
        return [row["correct"] == "1" for row in self.rows]

    @property
    def asked(self) -> list[dict[str, str]]:
        return [row for row in self.rows if row["asked"] == "1"]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.correct)) if self.rows else 0.0

    @property
    def ms(self) -> float:
        return 1000 * float(np.median([float(row["seconds"]) for row in self.rows])) if self.rows else 0.0


def play(
    learner: Learner, stream: Stream, folder: Path, progress: Callable[[StreamStep, RunningScore], None]
) -> Trace:
    """Stream the images; the folder's own labels answer. Predictions and events are written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Record(folder, Pace(every=0))) as record:
        follow(Session(learner, stream, record, RunningScore()), progress=progress)
    name = learner.method_name
    return Trace(name, find_method(name).line, read_predictions(folder), what_changed(learner, stream))


def what_changed(learner: Learner, stream: Stream, answers: int = 5, images: int = 20) -> str:
    """What the last answers changed about the images that come next, in a sentence; nothing where none did.

    A copy of the learner takes them back, and both predict images that neither has seen.
    """
    last = learner.answered_ids[-answers:]
    after = stream.order[len(stream) : len(stream) + images]
    if not last or not after:
        return ""
    without = copy.deepcopy(learner)
    for id in reversed(last):
        without.undo(id)
    labels = np.array([stream.dataset.samples[index].label for index in after])
    images_after = [stream.dataset.image(index) for index in after]
    now, before = (
        np.array([each.predict_one(image).index for image in images_after]) for each in (learner, without)
    )
    return (
        f"The last {len(last)} answers changed {(now != before).sum()} of the next {len(after)} predictions: "
        f"{(now == labels).sum()} are right with them, {(before == labels).sum()} without."
    )


def what_labels_bought(without: Trace, asking: Trace) -> str:
    """By how much asking is better than not asking, image by image, in a sentence with its interval."""
    gains = np.array(asking.correct, float) - np.array(without.correct, float)
    if len(gains) < 2:
        return "1 answer: too few images to say what it bought."
    mean, half = 100 * float(gains.mean()), 196 * float(gains.std(ddof=1)) / len(gains) ** 0.5
    return (
        f"{len(asking.asked)} answers bought {mean:+.1f} points: {asking.accuracy:.1%} right instead of "
        f"{without.accuracy:.1%} (95 % interval {mean - half:+.1f} to {mean + half:+.1f}, "
        f"{len(gains)} images, the same for both)."
    )


def windowed_accuracy(correct: Sequence[bool], window: int = WINDOW) -> list[float]:
    """Share of right predictions among the last `window`, from the first full window on.

    >>> windowed_accuracy([True, False, False, True], window=2)
    [0.5, 0.0, 0.5]
    """
    sums = np.cumsum([0, *correct])
    window = min(window, len(correct))
    found: list[float] = ((sums[window:] - sums[: len(sums) - window]) / max(window, 1)).tolist()
    return found


def page(traces: Sequence[Trace], stream: Stream, *, model: str, views: int, warning: str = "") -> str:
    """The report as one HTML file that needs nothing else."""
    asking = next((trace for trace in traces if trace.asked), traces[-1])
    quiet = next((trace for trace in traces if not trace.asked), None)
    template = (resources.files("taps.study.report") / "demo_page.txt").read_text()
    parts = {
        "model": html.escape(model),
        "images": str(len(traces[0].rows)),
        "classes": str(len(stream.dataset.classes)),
        "views": str(views),
        "warning": f'<p class="warning">{html.escape(warning)}</p>' if warning else "",
        "table": results_table(traces),
        "accuracy": accuracy_chart(traces),
        "scores": questions_of(asking.rows),
        "asking": html.escape(asking.name),
        "questions": gallery("", question_cards(asking.asked, stream)) or "<p>No question was asked.</p>",
        "question_count": str(len(asking.asked)),
        "bought": html.escape(what_labels_bought(quiet, asking)) if quiet and asking.asked else "",
        "changed": html.escape(asking.changed),
        "answers": bars(Counter(row["truth"] for row in asking.asked).most_common()),
    }
    for name, value in parts.items():
        template = template.replace("{{" + name + "}}", value)
    return document("TAPS demo", [template])


def results_table(traces: Sequence[Trace]) -> str:
    rows = []
    for trace in traces:
        asked = len(trace.asked)
        rate = asked / max(len(trace.rows), 1)
        rows.append((trace.name, f"{trace.accuracy:.1%}", str(asked), f"{rate:.1%}", f"{trace.ms:.0f}"))
    columns = ("method", "accuracy", "questions", "rate", "ms/image")
    notes = tuple(f"{trace.name}: {trace.line}" for trace in traces)
    return html_table(Table("What each method got right", columns, tuple(rows), notes))


def accuracy_chart(traces: Sequence[Trace]) -> str:
    lines = []
    for trace, colour in zip(traces, COLOURS, strict=False):
        ys = windowed_accuracy(trace.correct)
        first = len(trace.correct) - len(ys) + 1
        lines.append(Line(trace.name, list(range(first, first + len(ys))), ys, colour))
    return chart(lines, x_title="images seen", y_title=f"right among the last {WINDOW}", percent=True)


def question_cards(rows: Sequence[dict[str, str]], stream: Stream) -> list[Card]:
    cards = []
    for row in rows:
        at = int(row["t"])
        entropy = f"image {at + 1}, {float(row['view_entropy']):.2f} nats"
        cards.append(card(thumbnail(stream.image(at)), row, entropy, stream.note(at)))
    return cards
