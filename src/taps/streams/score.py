"""What came of one image of a stream, what it counts as, and the counts so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taps.learner import Learner
from taps.streams.annotators import Reply
from taps.types import OUTSIDE, Answer, FloatArray, PixelArray, Prediction, Query

HITS = 5  # a label among so many of the likeliest classes is a hit


@dataclass
class RunningScore:
    """The counts so far; they are saved with every checkpoint.

    Attributes:
        position: Images of the stream that are done, unreadable ones too.
        broken: Images that could not be read; the accuracy leaves them out.
        known: Predictions that are known to be right or wrong.
        hits: Predictions whose class was among the five likeliest.
        asked: Questions put to the annotator.
        answered: Labels given to the method.
        decode_s: Seconds spent waiting for decoded images.
        method_s: Seconds of the method itself, predicting and learning.
        wall_s: Seconds of the whole loop.
        peak_mem_mb: Highest memory so far.
    """

    position: int = 0
    broken: int = 0
    known: int = 0
    correct: int = 0
    hits: int = 0
    asked: int = 0
    answered: int = 0
    decode_s: float = 0.0
    method_s: float = 0.0
    wall_s: float = 0.0
    peak_mem_mb: float = 0.0

    @property
    def accuracy(self) -> float | None:
        """Share of right predictions among those that are known to be right or wrong."""
        return self.correct / self.known if self.known else None

    @property
    def accuracy_of(self) -> str:
        """What the accuracy is taken over: answered images alone, where only answers say what is right."""
        return "accuracy on answered" if 0 < self.known <= self.answered else "accuracy"


@dataclass(frozen=True)
class ImageScore:
    """What an image counts as.

    Attributes:
        final: Index of the class it is taken for: predicted, or answered where annotators are asked first.
        label: Index of its class, where the data set or an answer says; `OUTSIDE` for none; else None.
        hit: Whether the label is among the likeliest classes; None where it is not known.
        denied: Whether all that is known is that it is not of the predicted class.
    """

    final: int
    label: int | None = None
    hit: bool | None = None
    denied: bool = False

    @property
    def correct(self) -> bool | None:
        """Whether it was right; None where that is not known."""
        if self.hit is None:
            return False if self.denied else None
        return self.final == self.label

    def add_to(self, running: RunningScore, sign: int = 1) -> None:
        """Add it to the counts, or with −1 take it out of them."""
        running.known += sign * (self.correct is not None)
        running.correct += sign * bool(self.correct)
        running.hits += sign * bool(self.hit)


@dataclass(frozen=True)
class StreamStep:
    """One image of a stream, and what came of it.

    Attributes:
        t: Its place in the stream.
        path: Its path.
        pixels: The decoded image; None where it could not be read.
        prediction: None where the image could not be read.
        truth: The name of its class, where the data set or an answer says; else None.
        outside: Whether the data set says that it is of none of the classes.
        answer: The name of the class that the annotator answered at once; else None.
        correct: Whether the prediction was right; None where the class is not known.
        error: Why the image could not be read; empty where it could.
    """

    t: int
    path: str
    pixels: PixelArray | None = None
    prediction: Prediction | None = None
    truth: str | None = None
    outside: bool = False
    answer: str | None = None
    correct: bool | None = None
    error: str = ""

    @classmethod
    def of(
        cls, t: int, path: str, pixels: PixelArray, prediction: Prediction, score: ImageScore,
        answer: int | None, classes: Sequence[str],
    ) -> StreamStep:  # fmt: skip
        """Classes by name, from what an image counts as."""
        outside = score.label == OUTSIDE
        truth = None if score.label is None or outside else classes[score.label]
        given = None if answer is None else classes[answer]
        return cls(t, path, pixels, prediction, truth, outside, given, score.correct)

    @property
    def predicted(self) -> str | None:
        """The name of the predicted class; None where the image could not be read."""
        return None if self.prediction is None else self.prediction.label


def query_about(prediction: Prediction, path: str) -> Query:
    """The question that a prediction asks."""
    yes_no = prediction.index if prediction.question == "yes_no" else None
    return Query(prediction.id, path, prediction, yes_no)


def row_of(learner: Learner, id: int) -> FloatArray | None:
    """What `Method.predict_rows` needs of an image; None where it would have to look at it again."""
    item = learner.desk.queries.kept(id)
    return None if item is None else learner.method.row_of(item)


def truth(learner: Learner, label: int | None) -> Reply | None:
    """The right answer about an image. Methods that learn from labels alone cannot be told "none"."""
    if label != OUTSIDE:
        return label
    return Answer(none=True) if learner.method.takes_any_answer else Answer(unknown=True)


def denies(learner: Learner, prediction: Prediction, answer: Reply | None) -> bool:
    """Whether an answer says that the image is not of the predicted class."""
    out = () if answer is None else Answer.of(answer).no
    return prediction.index in map(learner.class_index, out)


def score_image(
    learner: Learner, prediction: Prediction, label: int | None, answer: int | None, *, denied: bool
) -> ImageScore:
    """What an image counts as.

    Args:
        learner: Says whether annotators are asked first.
        prediction: Of the image.
        label: Its class by the data set, where that says.
        answer: The class that was answered at once, if one was.
        denied: Whether the answer was that it is not of the predicted class.
    """
    label = answer if label is None else label
    # Where annotators are asked first, their answer is the prediction.
    final = answer if answer is not None and learner.order == "ask_first" else prediction.index
    known = label is not None and label != OUTSIDE
    hit = label in (final, *prediction.likeliest(HITS)) if known else None
    return ImageScore(final, label, hit, denied=label is None and denied)
