"""What goes over the wire, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from taps.default import METHOD
from taps.serve.records import Stream
from taps.serve.stream_session import Outcome
from taps.serve.tokens import ANYBODY, Token
from taps.session.log import ANSWERED
from taps.session.row import OPEN, Row
from taps.types import Answer

STREAM_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
HOLDER = r"^[A-Za-z0-9-]+$"
NO_NUL = r"^[^\x00]*$"  # PostgreSQL holds none in a text
IN_WORDS = {
    STREAM_NAME: "use 1 to 64 of the letters A to Z and a to z, digits, _ . and -, a letter or digit first",
    HOLDER: "use the letters A to Z and a to z, digits and - alone",
    NO_NUL: "leave the NUL character out",
}
StreamName = Annotated[str, StringConstraints(pattern=STREAM_NAME)]
ClassName = Annotated[
    str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True, pattern=NO_NUL)
]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Asked = Literal["class", "yes_no"]
SCORE = "What the threshold is compared with: the entropy, or what the method asks by."
ASKED = "Which class it is, or whether it is the predicted one: then yes is that label, no is `no` with it."


class Input(BaseModel):
    """A body; fields that are not known are refused, so that no typing error goes unnoticed."""

    model_config = ConfigDict(extra="forbid")


class NewStream(Input):
    """A stream to begin."""

    name: StreamName
    classes: Annotated[list[ClassName], Field(min_length=2, max_length=20_000)]
    method: Annotated[str, Field(max_length=64)] = METHOD
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Of the method; see `taps methods NAME`."
    )
    seed: Number = 0
    deadline: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        86_400.0, description="Seconds a question waits for its answer; null: for ever."
    )
    hold: Annotated[float, Field(ge=0, le=600)] = Field(
        30.0, description="Order ask_first: seconds a caller waits for the annotator."
    )


class StreamInfo(BaseModel):
    """A stream and how it began."""

    name: str
    method: str
    classes: list[str]
    settings: dict[str, Any]
    seed: int
    deadline: float | None
    hold: float
    created: float

    @classmethod
    def of(cls, stream: Stream) -> StreamInfo:
        return cls(**{name: getattr(stream, name) for name in cls.model_fields})


class Guess(BaseModel):
    label: str
    probability: float


class Answered(BaseModel):
    """What the model said, and the annotator where there was time to wait for one."""

    id: int | None = Field(description="Null where the prediction is not recorded.")
    label: str = Field(description="The class: the annotator's where `by` is annotator, else the model's.")
    by: Literal["model", "annotator"]
    top: list[Guess]
    entropy: float
    threshold: float | None = Field(description="Null where the method never asks.")
    score: float | None = Field(description=SCORE)
    query_id: int | None = Field(description="Where an annotator is asked: the question's id.")
    question: Asked = Field(description=ASKED)
    recorded: bool = Field(
        description="False while the store cannot be written: the model learns nothing from this image."
    )
    repeated: bool = Field(description="Whether this is the answer to an earlier request with the same key.")
    seconds: float

    @classmethod
    def of(cls, outcome: Outcome) -> Answered:
        row = outcome.row
        known = row.state == ANSWERED and row.answer is not None
        id = row.id if outcome.recorded else None
        other: dict[str, Any] = {
            "id": id,
            "label": row.answer if known else row.label,
            "by": "annotator" if known else "model",
            "top": guesses(row),
            "query_id": id if row.state == OPEN else None,
            "recorded": outcome.recorded,
            "repeated": outcome.repeated,
        }
        return cls(**{name: getattr(row, name) for name in cls.model_fields.keys() - other.keys()}, **other)


class Prediction(BaseModel):
    """A prediction on record, and what became of its question."""

    id: int
    at: float
    name: str
    image: str = Field(description="SHA-256 of the file.")
    has_image: bool
    label: str
    top: list[Guess]
    entropy: float
    threshold: float | None
    score: float | None = Field(description=SCORE)
    reject: float | None = Field(description="How likely the image shows none of the classes.")
    asked: bool
    state: Literal["unqueried", "open", "answered", "skipped", "expired", "corrected"]
    question: Asked = Field(description=ASKED)
    deadline: float | None
    answer: str | None = Field(description="The class that was named.")
    no: list[str] = Field(description="Or classes it was said not to be of,")
    none: bool = Field(description="or that it was said to be of none of the classes.")
    said: str = Field(description="The answer in words; empty where there is none.")
    ended_by: str | None
    ended_at: float | None
    seconds: float

    @classmethod
    def of(cls, row: Row) -> Prediction:
        other: dict[str, Any] = {"has_image": row.kept, "top": guesses(row), "said": row.said.describe()}
        return cls(**{name: getattr(row, name) for name in cls.model_fields.keys() - other.keys()}, **other)


class Changed(BaseModel):
    """A question after an answer, a skip or an undo."""

    prediction: Prediction
    changed: bool = Field(description="False where it was so already.")


class Why(BaseModel):
    """Why a question was put, in words and in the numbers of a small picture."""

    rule: str = Field(description="What the choice was made on: entropy, margin, random, …")
    text: str
    entropy: float
    threshold: float | None = Field(description="Of the entropy; null where the rule is another.")
    highest: float = Field(description="The largest entropy there can be: ln of the number of classes.")
    budget: str
    asked: int
    spent: float = Field(description="What they took of the budget: a yes or no is part of a question.")
    allowed: float = Field(description="Questions the budget has room for so far.")
    alike: int = Field(description="Labelled images that the model took for the same class.")
    alike_right: int = Field(description="Those of them it was right about.")


class Question(BaseModel):
    """A question leased to one annotator: nobody else is shown it meanwhile."""

    prediction: Prediction
    why: Why
    until: float = Field(description="When the lease ends unless it is renewed, in seconds since 1970.")
    second: bool = Field(description="Somebody else has answered it: send an opinion, not a label.")


class LeaseRequest(Input):
    """How many questions somebody wants to hold."""

    holder: Annotated[str, Field(min_length=8, max_length=64, pattern=HOLDER)] = Field(
        description="Names one page of one annotator: a random text."
    )
    count: Annotated[int, Field(ge=0, le=20)] = Field(3, description="0 gives all of them back.")
    first: Number | None = Field(None, description="A question wanted before all others.")


class Repredicted(BaseModel):
    id: int
    before: str
    now: str


class Repredictions(BaseModel):
    """What has changed since the last look."""

    looked: int
    changed: list[Repredicted]


Class = Annotated[str, Field(max_length=200)] | Number


class Label(Input):
    """An answer: a class, or classes it is not of, or that it is of none of them. One of these."""

    label: Class | None = Field(None, description="The class, by name or index.")
    no: Annotated[list[Class], Field(max_length=20_000)] = Field(
        default_factory=list, description="Instead, classes it is not of. They add up over several answers."
    )
    none: bool = Field(False, description="Instead, that it is of none of the classes.")

    @model_validator(mode="after")
    def _one(self) -> Label:
        if (self.label is not None) + bool(self.no) + self.none != 1:
            raise ValueError("give a label, or classes it is not of, or none: one of these")
        return self

    def by(self, token: Token) -> Answer:
        """The answer, said by the holder of a token."""
        return Answer.from_json({**self.model_dump(), "annotator": name_of(token)})


class NewClasses(Input):
    names: Annotated[list[ClassName], Field(min_length=1, max_length=1000)]


class Classes(BaseModel):
    classes: list[str]


class Asking(BaseModel):
    """Whom a method asks about, and how often."""

    rule: str
    rate: float
    budget: int | None = Field(description="Questions in all, where that is the limit.")


class Estimate(BaseModel):
    """Share of right predictions, with a 95 % interval."""

    value: float
    low: float
    high: float
    images: int = Field(description="Predictions it is the accuracy of.")
    answers: int = Field(description="Answers to random questions that it rests on.")


class Accuracy(BaseModel):
    """How good the predictions of all images are, by the answers to questions that were put at random."""

    said: str = Field(description="In words; or why it cannot be said yet.")
    needed: int
    random_answers: int
    estimate: Estimate | None = Field(description="Null while it cannot be said.")
    by_class: dict[str, Estimate] = Field(description="By predicted class, where there are answers enough.")


class Forecast(BaseModel):
    """What more answers would bring, with a 90 % interval. Points of accuracy."""

    said: str
    answers: int
    gain: float
    low: float
    high: float


class Stats(BaseModel):
    """Counts of a stream."""

    stream: str
    seen: int
    asked: int
    open: int
    answered: int
    skipped: int
    expired: int
    corrected: int = Field(description="Labels for images that nobody was asked about.")
    agreed: int = Field(description="Answers that were what the model had said.")
    events: int
    asking: Asking | None = Field(description="Null where the method never asks.")
    accuracy: Accuracy | None = Field(description="How good all predictions are; null where nobody is asked.")
    forecast: Forecast | None = Field(description="What more answers would bring; null while unknown.")
    learner: dict[str, Any]


class NewToken(Input):
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_NUL)]
    roles: Annotated[list[Literal["predict", "label", "admin"]], Field(min_length=1, max_length=3)]
    stream: StreamName | None = None
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None


class TokenInfo(BaseModel):
    id: str
    name: str
    roles: list[str]
    stream: str | None
    created: float
    expires: float | None
    revoked: float | None


class MadeToken(TokenInfo):
    token: str = Field(description="Shown this once.")


class SignIn(Input):
    """Who signs in, where several people share a link."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_NUL)] | None = None


class Session(BaseModel):
    name: str = Field(description="Whose answers these are.")
    csrf: str = Field(description="Send it as X-CSRF-Token with every request that changes something.")
    roles: list[str]
    stream: str | None
    expires: float


def name_of(token: Token) -> str:
    """Who holds a token; nobody in particular where there are no tokens."""
    return "" if token is ANYBODY else token.name


def guesses(row: Row) -> list[Guess]:
    return [Guess(label=label, probability=probability) for label, probability in row.top]
