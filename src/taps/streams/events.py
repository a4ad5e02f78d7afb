"""`taps.stream`: the loop of `taps.streams.loop` without a record, over whatever a user has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from taps.data.dataset import Dataset
from taps.errors import SettingsError
from taps.learner import Learner
from taps.model.images.decode import load_image
from taps.streams.annotators import (
    Annotator,
    Context,
    GroundTruth,
    Reply,
    find_annotator,
)
from taps.streams.loop import Session, steps
from taps.streams.record import NO_RECORD
from taps.streams.score import RunningScore, StreamStep, truth
from taps.streams.sequence import Stream
from taps.types import OUTSIDE, PixelArray, Query

AnyAnnotator = Annotator | Callable[[Query], Reply | None] | Dataset | str | None


def stream(
    learner: Learner, images: Dataset | Iterable[Any], annotator: AnyAnnotator = None
) -> Iterator[StreamStep]:
    """Predict images one by one; where the learner asks, ask the annotator and learn the answer.

    An event comes after each image, when its answer is learned. An image that cannot be read gives an event
    whose `prediction` is None and whose `error` says why.

    Args:
        learner: Predicts and learns.
        images: A data set, in its own order (`Dataset.shuffled`); or what `predict_one` takes, one by one.
            A learner that has seen no image is told the length of a data set (`Learner.expect`).
        annotator: Who answers: a function from a `Query` to a class, an `Answer` or None; an object with such
            a method `answer`; a data set, which answers from its labels; a name, as of `taps run --annotator`
            ("console", "noisy:rate=0.1"); or None for nobody.

    >>> import taps
    >>> from taps.data import sign_digits
    >>> images = sign_digits().shuffled(seed=0).take(range(3))
    >>> learner = taps.Learner(taps.load_clip("tiny"), images.classes, views=1, rate=1.0)
    >>> for event in taps.stream(learner, images, annotator=images):
    ...     print(event.t, event.answer)
    0 nine
    1 seven
    2 three
    >>> answers = taps.stream(learner, ["no-such-file.jpg"], annotator=lambda query: "3")
    >>> next(answers).error
    'no-such-file.jpg: no such image file; check the path.'
    """
    if isinstance(images, str | bytes | PathLike):
        raise SettingsError(
            f"taps.stream is given images, not {images!r}; give taps.data.load_dataset(...) or a list."
        )
    found = _find(learner, images, annotator)
    if not isinstance(images, Dataset):
        listed = _Listed(images)
        return steps(Session(learner, listed, NO_RECORD, RunningScore(), lambda truth: found), listed)
    learner.expect(len(images))
    places = range(len(images))
    named = _Named(images, places, learner=learner)
    return steps(Session(learner, named, NO_RECORD, RunningScore(), lambda truth: found), places)


def _find(learner: Learner, images: Dataset | Iterable[Any], annotator: AnyAnnotator) -> Annotator | None:
    if isinstance(annotator, str):
        dataset = images if isinstance(images, Dataset) else None
        truth = None if dataset is None else _Called(_from_labels(learner, dataset))
        return find_annotator(annotator).make(Context(learner, dataset, truth))
    if isinstance(annotator, Dataset):
        return _Called(_from_labels(learner, annotator))
    if annotator is None or hasattr(annotator, "answer"):
        return annotator  # type: ignore[return-value]
    if callable(annotator):
        return _Called(annotator)
    raise SettingsError(
        f"The annotator is {annotator!r}; give a function of a query, an object with a method `answer`, "
        "a data set that answers from its labels, a name, or None."
    )


@dataclass(frozen=True)
class _Named(Stream):
    """A data set whose labels are counted as the learner counts its classes."""

    learner: Learner | None = None

    def label(self, t: int) -> int | None:
        assert self.learner is not None
        return _index(self.learner, self.dataset, super().label(t))


class _Listed:
    """Images that come one at a time, maybe without end; nothing is known of their classes."""

    look = None

    def __init__(self, images: Iterable[Any]) -> None:
        self.images = images
        self.current: Any = None

    def __iter__(self) -> Iterator[int]:
        for t, image in enumerate(self.images):
            self.current = image
            yield t

    def path(self, t: int) -> str:
        named = isinstance(self.current, str | PathLike)
        return fspath(self.current) if named else f"image {t}"

    def image(self, t: int) -> PixelArray:
        return load_image(self.current, name=self.path(t))

    def label(self, t: int) -> int | None:
        return None

    def phase(self, t: int) -> int:
        return 0


@dataclass(frozen=True)
class _Called:
    """A function that answers."""

    answer: Callable[[Query], Reply | None]


def _from_labels(learner: Learner, dataset: Dataset) -> Callable[[Query], Reply | None]:
    """A function that answers from the labels of a data set."""
    labels = {sample.path: sample.label for sample in dataset.samples}

    def answer(query: Query) -> Reply | None:
        label = _index(learner, dataset, labels.get(query.path))
        return GroundTruth(lambda id: truth(learner, label)).answer(query)

    return answer


def _index(learner: Learner, dataset: Dataset, label: int | None) -> int | None:
    """A data set's label as the learner counts its classes."""
    if label is None or label == OUTSIDE or dataset.classes == learner.classes[: len(dataset.classes)]:
        return label
    return learner.class_index(dataset.classes[label])
