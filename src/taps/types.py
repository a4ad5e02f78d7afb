"""Predictions, answers and questions: frozen dataclasses, each with one form in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FloatArray = NDArray[np.float32]
PixelArray = NDArray[np.uint8]
"""A decoded image: height × width × 3, RGB, 8 bits."""
OUTSIDE = -1
"""The label of an image of none of the classes."""
FIRST_COLUMNS = ("path", "predicted", "probability")
"""Of every `predictions.csv`, whichever command writes it."""
TOP = 9
"""Classes that are recorded with a prediction: one for each number key."""


@dataclass(frozen=True)
class Prediction:
    """The learner's prediction for one image, made before any label of it can be seen.

    Attributes:
        id: Names this image for `learn_one`.
        index: Predicted class, as an index into the class list.
        label: Predicted class, by name.
        probs: Probability of each class, in the order of the class list.
        entropy: H_t in nats, the uncertainty of the prediction.
        threshold: τ_t, the threshold the score was compared with.
        ask: Whether the annotator is asked about this image.
        seconds: Time taken from decoded image to prediction.
        score: The entropy, or the acquisition score.
        reject: Probability that the image shows none of the classes; 0 before the first such answer.
        question: What is asked, where something is: "class": which one it is, or "yes_no": whether it is the
            predicted one. A yes is learned as that label, a no with `no=`.
        why: Of a question: "score", which is above the threshold; "random", drawn by chance whatever the
            score; "owed", so many questions were due that the score did not count. Else empty.
    """

    id: int
    index: int
    label: str
    probs: FloatArray
    entropy: float
    threshold: float
    ask: bool
    seconds: float
    score: float = float("nan")
    reject: float = 0.0
    question: str = "class"
    why: str = ""

    def __repr__(self) -> str:
        asks = ", asks" if self.ask else ""
        return f"<Prediction {self.id}: {self.label} {self.probability:.0%}{asks}>"

    @property
    def probability(self) -> float:
        """Of the predicted class."""
        return float(self.probs[self.index])

    def likeliest(self, most: int) -> list[int]:
        """Indices of the likeliest classes, the predicted one first."""
        best: list[int] = np.argsort(-self.probs, kind="stable")[:most].tolist()
        return best

    def to_json(self, classes: Sequence[str]) -> dict[str, Any]:
        """As a run, the service's database and HTTP have it. None for what is not finite."""
        numbers = {name: getattr(self, name) for name in ("entropy", "threshold", "score", "reject")}
        return {
            "id": self.id,
            "index": self.index,
            "label": self.label,
            "top": [[classes[index], float(self.probs[index])] for index in self.likeliest(TOP)],
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "asked": self.ask,
            "question": self.question,
            "why": self.why,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Answer:
    """An annotator's answer about an image: one of the first four.

    Attributes:
        label: Its class, by name or index.
        no: Classes it is not of.
        none: It is of none of the classes.
        unknown: The annotator does not know; the question is skipped.
        annotator: Name of the annotator; may be empty.
    """

    label: int | str | None = None
    no: tuple[int | str, ...] = ()
    none: bool = False
    unknown: bool = False
    annotator: str = ""

    @classmethod
    def of(cls, answer: Answer | int | str) -> Answer:
        """An answer as it is; a class alone as an answer."""
        return answer if isinstance(answer, Answer) else cls(answer)

    def named(self, classes: Sequence[str]) -> Answer:
        """The same with classes by name."""

        def name(each: int | str) -> str:
            return each if isinstance(each, str) else classes[int(each)]

        label = None if self.label is None else name(self.label)
        return replace(self, label=label, no=tuple(map(name, self.no)))

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults.

        >>> Answer(no=("cat",), annotator="Ann").to_json()
        {'no': ['cat'], 'annotator': 'Ann'}
        """
        given = {each.name: vars(self)[each.name] for each in fields(self)}
        held = {each.name: given[each.name] for each in fields(self) if given[each.name] != each.default}
        return {name: list(value) if name == "no" else value for name, value in held.items()}

    @classmethod
    def from_json(cls, value: Any) -> Answer:
        """The inverse of `to_json`, which ignores other members; a text alone is a class."""
        if not isinstance(value, Mapping):
            return cls(value)
        given = {each.name: value[each.name] for each in fields(cls) if each.name in value}
        return cls(**{**given, "no": tuple(given.get("no", ()))})

    def describe(self) -> str:
        """In words.

        >>> Answer("cat").describe(), Answer(no=("cat", "dog")).describe(), Answer(none=True).describe()
        ('cat', 'not cat, not dog', 'none of the classes')
        """
        if self.none:
            return "none of the classes"
        return ", ".join(f"not {each}" for each in self.no) if self.label is None else str(self.label)

    def follows_from(self, before: Answer) -> bool:
        """Whether an earlier answer about the same image implies this one, classes by index in both.

        >>> Answer(no=(1,)).follows_from(Answer(0)), Answer(no=(0,)).follows_from(Answer(0))
        (True, False)
        """
        if self.no and (before.none or before.label is not None):
            return before.label not in self.no
        return replace(self, annotator=before.annotator) == before


@dataclass(frozen=True)
class Query:
    """A question put to an annotator about image `id`.

    Attributes:
        path: Of the image.
        yes_no: Where only yes or no is asked: the class that it may be, by index.
    """

    id: int
    path: str
    prediction: Prediction
    yes_no: int | None = None
