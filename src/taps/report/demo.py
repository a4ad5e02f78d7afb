"""The demo: a bundled stream through several methods, and one page that shows what happened."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
from PIL import Image

from taps.data.dataset import Dataset
from taps.learner import Learner
from taps.report.palette import BLUE, COLOURS, FAINT, RED
from taps.report.svg import Dots, Line, bars, chart
from taps.types import PixelArray, Prediction


@dataclass
class Question:
    """One question that was put to the expert."""

    step: int
    picture: str
    predicted: str
    answer: str
    entropy: float
    note: str


@dataclass
class Trace:
    """What one method did on the stream."""

    name: str
    line: str
    correct: list[bool] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.correct)) if self.correct else 0.0

    @property
    def ms(self) -> float:
        return 1000 * float(np.median(self.seconds)) if self.seconds else 0.0


def play(
    learner: Learner,
    dataset: Dataset,
    order: Sequence[int],
    trace: Trace,
    progress: Callable[[Prediction, Trace], None],
) -> Trace:
    """Stream the images; the folder's own labels answer, each after its prediction is committed."""
    for step, index in enumerate(order):
        sample = dataset.samples[index]
        pixels = dataset.image(index)
        prediction = learner.predict_one(pixels)
        trace.correct.append(prediction.index == sample.label)  # committed: what follows cannot change it
        trace.entropies.append(prediction.entropy)
        trace.thresholds.append(prediction.threshold)
        trace.seconds.append(prediction.seconds)
        if prediction.ask and sample.label is not None:
            learner.learn_one(prediction.id, sample.label)
            trace.asked.append(step)
            answer = learner.classes[sample.label]
            trace.questions.append(
                Question(step, thumbnail(pixels), prediction.label, answer, prediction.entropy, sample.note)
            )
        progress(prediction, trace)
    trace.summary = learner.summary()
    return trace


def thumbnail(pixels: PixelArray, side: int = 96) -> str:
    """A small JPEG as a data address."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def running_accuracy(correct: Sequence[bool]) -> list[float]:
    return (np.cumsum(correct) / np.arange(1, len(correct) + 1)).tolist() if correct else []  # type: ignore[no-any-return]


def page(traces: Sequence[Trace], *, model: str, dataset: Dataset, views: int, warning: str = "") -> str:
    """The report as one HTML file that needs nothing else."""
    asking = next((trace for trace in traces if trace.asked), traces[-1])
    template = (resources.files("taps.report") / "demo_page.txt").read_text()
    parts = {
        "model": html.escape(model),
        "images": str(len(traces[0].correct)),
        "classes": str(len(dataset.classes)),
        "views": str(views),
        "warning": f'<p class="warning">{html.escape(warning)}</p>' if warning else "",
        "table": results_table(traces),
        "accuracy": accuracy_chart(traces),
        "entropy": entropy_chart(asking),
        "asking": html.escape(asking.name),
        "questions": question_gallery(asking.questions),
        "question_count": str(len(asking.questions)),
        "buffer": bars(sorted(asking.summary.get("buffer_classes", {}).items(), key=lambda item: -item[1])),
    }
    for name, value in parts.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def results_table(traces: Sequence[Trace]) -> str:
    rows = "".join(
        f"<tr><td><b>{html.escape(trace.name)}</b><br><small>{html.escape(trace.line)}</small></td>"
        f"<td>{trace.accuracy:.1%}</td><td>{len(trace.asked)}</td>"
        f"<td>{len(trace.asked) / max(len(trace.correct), 1):.1%}</td><td>{trace.ms:.0f}</td></tr>"
        for trace in traces
    )
    head = "<tr><th>method</th><th>accuracy</th><th>questions</th><th>rate</th><th>ms/image</th></tr>"
    return f"<table>{head}{rows}</table>"


def accuracy_chart(traces: Sequence[Trace]) -> str:
    lines = []
    for trace, colour in zip(traces, COLOURS, strict=False):
        ys = running_accuracy(trace.correct)
        start = min(9, len(ys) - 1)  # the first few averages are of too few images to say anything
        lines.append(Line(trace.name, list(range(start + 1, len(ys) + 1)), ys[start:], colour))
    return chart(lines, x_title="images seen", y_title="running accuracy", percent=True)


def entropy_chart(trace: Trace) -> str:
    steps = list(range(1, len(trace.entropies) + 1))
    asked = set(trace.asked)
    quiet = [step for step in range(len(steps)) if step not in asked]
    marks: list[Line | Dots] = [
        Dots("not asked", [steps[i] for i in quiet], [trace.entropies[i] for i in quiet], FAINT),
        Dots(
            "asked",
            [steps[i] for i in trace.asked],
            [trace.entropies[i] for i in trace.asked],
            RED,
            3.6,
        ),
        Line("threshold", steps, trace.thresholds, BLUE),
    ]
    return chart(marks, x_title="images seen", y_title="entropy (nats)")


def question_gallery(questions: Sequence[Question]) -> str:
    if not questions:
        return "<p>No question was asked.</p>"
    cards = []
    for question in questions:
        mark = "right" if question.predicted == question.answer else "wrong"
        note = f"<br><small>{html.escape(question.note)}</small>" if question.note else ""
        cards.append(
            f'<figure><img src="{question.picture}" alt="{html.escape(question.answer)}"><figcaption>'
            f"image {question.step + 1}<br>"
            f'<span class="{mark}">{html.escape(question.predicted)}</span><br>'
            f"→ <b>{html.escape(question.answer)}</b><br><small>{question.entropy:.2f} nats</small>{note}"
            "</figcaption></figure>"
        )
    return '<div class="gallery">' + "".join(cards) + "</div>"
