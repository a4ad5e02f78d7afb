"""One image of a stream: what is asked about it, what it counts as, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from taps.learner import Learner
from taps.oracles import Reply
from taps.session.running_score import ImageScore
from taps.types import OUTSIDE, Answer, FloatArray, PixelArray, Prediction, Query

HITS = 5  # a label among so many of the likeliest classes is a hit


@dataclass(frozen=True)
class StreamStep:
    """One image of a stream, and what came of it.

    Attributes:
        t: Its place in the stream.
        path: Its path.
        pixels: The decoded image; None where it could not be read.
        prediction: What was predicted; None where it could not be read.
        label: Its class, where the data set or an answer says, `OUTSIDE` for none of them; else None.
        answer: The class an annotator answered at once; else None.
        correct: Whether the prediction was right; None where the class is not known.
        error: Why it could not be read; empty where it could.
    """

    t: int
    path: str
    pixels: PixelArray | None = None
    prediction: Prediction | None = None
    label: int | None = None
    answer: int | None = None
    correct: bool | None = None
    error: str = ""


def query_about(prediction: Prediction, path: str) -> Query:
    """The question that a prediction asks."""
    yes_no = prediction.index if prediction.question == "yes_no" else None
    return Query(prediction.id, path, prediction, yes_no)


def row_of(learner: Learner, id: int) -> FloatArray | None:
    """What `Method.predict_rows` needs of an image; None where it would have to look at it again."""
    item = learner.queries.kept(id)
    return None if item is None else learner.method.row_of(item)


def truth(learner: Learner, label: int | None) -> Reply | None:
    """What one who knows says of an image. Methods that learn from labels alone cannot be told "none"."""
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
        prediction: What was predicted.
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
