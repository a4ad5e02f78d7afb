"""`taps.stream`: the loop without files; `taps.streams.loop` keeps a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from taps.data.dataset import Dataset
from taps.errors import DataError, ImageError, SettingsError
from taps.learner import Learner
from taps.model.images.decode import load_image
from taps.streams.annotators import (
    Annotator,
    Context,
    GroundTruth,
    Reply,
    corrections,
    find_annotator,
    late_answers,
)
from taps.streams.score import StreamStep, denies, query_about, score_image, truth
from taps.types import OUTSIDE, Answer, Query

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
    return _steps(learner, images, _find(learner, images, annotator))


def _steps(
    learner: Learner, images: Dataset | Iterable[Any], annotator: Annotator | None
) -> Iterator[StreamStep]:
    if isinstance(images, Dataset):
        learner.expect(len(images))
    for t, image in enumerate(images.samples if isinstance(images, Dataset) else images):
        if isinstance(images, Dataset):
            path = image.path
        else:
            path = fspath(image) if isinstance(image, str | PathLike) else f"image {t}"
        try:
            pixels = images.image(t) if isinstance(images, Dataset) else load_image(image, name=path)
            prediction = learner.predict_one(pixels)
        except (ImageError, DataError) as error:  # not an image, or no file that can be read
            yield StreamStep(t, path, error=str(error))
            continue
        reply = None
        if prediction.ask and annotator is not None:
            reply = _ask(learner, annotator, query_about(prediction, path))
        for id, late in late_answers(annotator, learner.seen) if annotator else ():
            learner.learn_one(id, late)
        answer = reply.label if isinstance(reply, Answer) else reply
        index = None if answer is None else learner.class_index(answer)
        label = _index(learner, images, image.label) if isinstance(images, Dataset) else None
        score = score_image(learner, prediction, label, index, denied=denies(learner, prediction, reply))
        yield StreamStep.of(t, path, pixels, prediction, score, index, learner.classes)


def _ask(learner: Learner, annotator: Annotator, query: Query) -> Reply | None:
    """Put a question and learn the answer; corrections of earlier ones first."""
    reply = annotator.answer(query)
    for earlier, instead in corrections(annotator):
        learner.learn_one(earlier.id, instead)
    if reply is not None:
        learner.learn_one(query.id, reply)
    return reply


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
