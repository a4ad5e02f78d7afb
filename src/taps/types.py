"""The few values that travel between packages: frozen dataclasses, each with its one form in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
PixelArray = NDArray[np.uint8]
"""A decoded image: height × width × 3, RGB, 8 bits."""
OUTSIDE = -1
"""The label of an image that is known to be of none of the classes."""
TOP = 9
"""Classes that are written down with a prediction: one for each number key."""


@dataclass(frozen=True)
class Prediction:
    """What the learner says about one image, before any label of it can be seen.

    Attributes:
        id: Names this sample for `learn_one`.
        index: Predicted class, as an index into the class list.
        label: Predicted class, by name.
        probs: Probability of each class, in the order of the class list.
        entropy: H_t in nats, the uncertainty of the prediction.
        threshold: τ_t, the threshold the score was compared with.
        ask: Whether the annotator is asked for this sample's label.
        seconds: Time taken from decoded image to prediction.
        score: What the query decision was made on: the entropy, or what the method asks by instead.
        reject: How likely the image shows none of the classes; 0 where nobody ever said so of one.
        question: What is asked, where something is: "class": which one it is, or "yes_no": whether it is the
            predicted one. A yes is learned as that label, a no with `no=`.
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

    @property
    def probability(self) -> float:
        """Of the predicted class."""
        return float(self.probs[self.index])

    def likeliest(self, most: int) -> list[int]:
        """Indices of the likeliest classes, the predicted one first."""
        best: list[int] = np.argsort(-self.probs, kind="stable")[:most].tolist()
        return best

    def to_json(self, classes: Sequence[str]) -> dict[str, Any]:
        """As it is written down: by a run, in the service's database, over HTTP. Null for what is not finite.

        Args:
            classes: Names of the classes; the likeliest are written with their probabilities.
        """
        numbers = {name: getattr(self, name) for name in ("entropy", "threshold", "score", "reject")}
        return {
            "id": self.id,
            "index": self.index,
            "label": self.label,
            "top": [[classes[index], float(self.probs[index])] for index in self.likeliest(TOP)],
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "asked": self.ask,
            "question": self.question,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Answer:
    """What an annotator says about an image, where that is not simply a class. One of the first four.

    Attributes:
        label: Its class, by name or index.
        no: Classes it is not of.
        none: It is of none of the classes.
        unknown: The annotator does not know; the question is over.
        annotator: Who says so; nobody in particular where empty.
    """

    label: int | str | None = None
    no: tuple[int | str, ...] = ()
    none: bool = False
    unknown: bool = False
    annotator: str = ""

    @classmethod
    def of(cls, said: Answer | int | str) -> Answer:
        """A class alone is an answer, too."""
        return said if isinstance(said, Answer) else cls(said)

    def named(self, classes: Sequence[str]) -> Answer:
        """The same with classes by name."""

        def name(each: int | str) -> str:
            return each if isinstance(each, str) else classes[int(each)]

        label = None if self.label is None else name(self.label)
        return replace(self, label=label, no=tuple(map(name, self.no)))

    def to_json(self) -> dict[str, Any]:
        """What is said, and by whom, without what is not.

        >>> Answer(no=("cat",), annotator="Ann").to_json()
        {'no': ['cat'], 'annotator': 'Ann'}
        """
        said = {item.name: getattr(self, item.name) for item in fields(self)}
        held = {item.name: said[item.name] for item in fields(self) if said[item.name] != item.default}
        return {name: list(value) if name == "no" else value for name, value in held.items()}

    @classmethod
    def from_json(cls, value: Any) -> Answer:
        """What `to_json` gave; other values beside it do not matter. A text alone is a class."""
        if not isinstance(value, Mapping):
            return cls(value)
        said = {item.name: value[item.name] for item in fields(cls) if item.name in value}
        return cls(**{**said, "no": tuple(said.get("no", ()))})

    def describe(self) -> str:
        """In words; empty where nothing is said.

        >>> Answer("cat").describe(), Answer(no=("cat", "dog")).describe(), Answer(none=True).describe()
        ('cat', 'not cat, not dog', 'none of the classes')
        """
        if self.none:
            return "none of the classes"
        return ", ".join(f"not {each}" for each in self.no) if self.label is None else str(self.label)

    def follows_from(self, before: Answer) -> bool:
        """Whether it says nothing beyond what was said of the same image, classes by index in both.

        >>> Answer(no=(1,)).follows_from(Answer(0)), Answer(no=(0,)).follows_from(Answer(0))
        (True, False)
        """
        if self.no and (before.none or before.label is not None):
            return before.label not in self.no
        return replace(self, annotator=before.annotator) == before


@dataclass(frozen=True)
class Query:
    """A question put to an annotator: which class is the image named `id`?

    Attributes:
        id: Of the image.
        source: Its path.
        prediction: What was said of it.
        yes_no: Where only yes or no is asked: the class that it may be, by index.
    """

    id: int
    source: str
    prediction: Prediction
    yes_no: int | None = None
