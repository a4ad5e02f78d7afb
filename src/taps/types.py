"""The few values that travel between rooms: frozen dataclasses, hardly any behaviour."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
PixelArray = NDArray[np.uint8]
"""A decoded image: height × width × 3, RGB, 8 bits."""
OUTSIDE = -1
"""The label of an image that is known to be of none of the classes."""


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
        ask: Whether the expert is asked for this sample's label.
        seconds: Time taken from decoded image to prediction.
        score: What the query decision was made on: the entropy, or what the method asks by instead.
        reject: How likely the image shows none of the classes; 0 where nobody ever said so of one.
        question: What is asked, where something is: "which" class it is, or "is_it": whether it is the
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
    question: str = "which"


@dataclass(frozen=True)
class Answer:
    """What an expert says about an image, where that is not simply a class. One of the first four.

    Attributes:
        label: Its class, by name or index.
        no: Classes it is not of.
        none: It is of none of the classes.
        unknown: The expert does not know; the question is over.
        expert: Who says so; nobody in particular where empty.
    """

    label: int | str | None = None
    no: tuple[int | str, ...] = ()
    none: bool = False
    unknown: bool = False
    expert: str = ""

    def follows_from(self, before: Answer) -> bool:
        """Whether it says nothing beyond what was said of the same image, classes by index in both.

        >>> Answer(no=(1,)).follows_from(Answer(0)), Answer(no=(0,)).follows_from(Answer(0))
        (True, False)
        """
        if self.no and (before.none or before.label is not None):
            return before.label not in self.no
        return replace(self, expert=before.expert) == before


@dataclass(frozen=True)
class Query:
    """A question put to an expert: which class is the image named `id`?

    Attributes:
        id: Of the image.
        source: Its path.
        prediction: What was said of it.
        is_it: Where only yes or no is asked: the class that it may be, by index.
    """

    id: int
    source: str
    prediction: Prediction
    is_it: int | None = None
