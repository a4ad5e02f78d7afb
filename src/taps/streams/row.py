"""One logged prediction, of a run or of the service, and the state of its question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from taps.asking.rules import RANDOM_SCORE
from taps.streams.log import ANSWERED, UNDONE
from taps.types import Answer

# States of a prediction beside ANSWERED, SKIPPED and EXPIRED, the events that end a question: not asked
# about; waiting for an answer; not asked about and labelled all the same.
UNQUERIED, OPEN, CORRECTED = "unqueried", "open", "corrected"
ANSWER = ("answer", "no", "none")  # the columns of an answer
UNASKED, LABELLED = (UNQUERIED, CORRECTED), (ANSWERED, CORRECTED)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A prediction, as `Prediction.to_json` gives it, with its image and its question.

    The service's table of predictions has these columns, in this order (`taps.serve.tables`). A row's
    checksum depends on the order, so a new column goes to the end.

    Attributes:
        seq: Number of its event in the service's log; place in the stream of a run.
        at: When, in seconds since 1970.
        image: SHA-256 of the file as it was sent.
        kept: Whether the service still needs the file.
        name: What the image is called; its path.
        threshold: None where the method never asks.
        score: What is compared with it, `RANDOM_SCORE` where the image was drawn at random; None in stores of
            before this column.
        state: Of its question: unqueried, open, answered, skipped, expired, corrected.
        question: "class" or "yes_no".
        deadline: When the question expires.
        answer: The class that was named,
        no: or classes it is not of,
        none: or that it is of none of them.
        ended_by: Who ended the question.
        ended_at: When.
    """

    id: int
    seq: int = 0
    at: float = 0.0
    image: str = ""
    kept: bool = False
    name: str = ""
    index: int
    label: str
    top: Sequence[Sequence[Any]] = ()
    entropy: float
    threshold: float | None = None
    score: float | None = None
    reject: float | None = None
    seconds: float
    state: str = UNQUERIED
    question: str = "class"
    deadline: float | None = None
    answer: str | None = None
    no: Sequence[str] = ()
    none: bool = False
    ended_by: str | None = None
    ended_at: float | None = None

    @classmethod
    def of(cls, prediction: Mapping[str, Any], **known: Any) -> Row:
        """The row of a new prediction, from `Prediction.to_json` and what is known of the image."""
        held = {item.name: prediction[item.name] for item in fields(cls) if item.name in prediction}
        if prediction.get("why") == "random":
            held["score"] = RANDOM_SCORE
        return cls(**held, **known, state=OPEN if prediction["asked"] else UNQUERIED)

    @property
    def asked(self) -> bool:
        return self.state not in UNASKED

    @property
    def drawn(self) -> bool:
        """Whether its question was drawn at random."""
        return self.score is not None and self.score >= RANDOM_SCORE

    @property
    def said(self) -> Answer:
        """The answer; an empty one where nobody answered."""
        return Answer(self.answer, tuple(self.no), self.none)

    @property
    def probability(self) -> float:
        """Of the predicted class."""
        return float(self.top[0][1])

    def changes(self, kind: str, answer: Answer = Answer()) -> dict[str, Any]:
        """The columns that an event changes: one that ends a question, or takes its end back."""
        given = {"answer": answer.label, "no": list(answer.no), "none": answer.none}
        if kind == UNDONE:
            return {**given, "state": OPEN if self.asked else UNQUERIED, "ended_by": None, "ended_at": None}
        return {**given, "state": CORRECTED if kind == ANSWERED and not self.asked else kind}
