"""The bodies of requests and responses, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from taps.default import METHOD
from taps.plain_names import plain_name, refuse_alike
from taps.serve.stream_session import Outcome
from taps.serve.tokens import Token
from taps.streams.log import ANSWERED
from taps.streams.row import OPEN
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
    str,
    StringConstraints(min_length=1, max_length=200, strip_whitespace=True, pattern=NO_NUL),
    AfterValidator(plain_name),
]
PersonName = Annotated[str, Field(min_length=1, max_length=100, pattern=NO_NUL), AfterValidator(plain_name)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Asked = Literal["class", "yes_no"]
SCORE = "What is compared with the threshold: the entropy, or the method's acquisition score."
THRESHOLD = (
    "Null where no number bounds the score: the method never asks, or its pace has every image asked about "
    "or none."
)
ASKED = "`class`: which class it is; `yes_no`: whether it is `label`. A no is answered with `no`."


class Input(BaseModel):
    """A request's body. Unknown fields are refused, so that a typing error does not go unnoticed.

    Values have the type they should: `true` and 1.0 are no class, 1 is no `true`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)


class Output(BaseModel):
    """A response; `model_validate` makes one from any object with these attributes."""

    model_config = ConfigDict(from_attributes=True)


class NewStream(Input):
    """A stream to create."""

    name: StreamName
    classes: Annotated[list[ClassName], Field(min_length=2, max_length=20_000)]
    method: Annotated[str, Field(max_length=64)] = METHOD
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Of the method; see `taps methods NAME`."
    )
    seed: Number = 0
    deadline: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        86_400.0, description="Seconds after which a question expires; null: never."
    )
    hold: Annotated[float, Field(ge=0, le=600)] = Field(
        30.0, description="Order ask_first: seconds a caller waits for the annotator."
    )

    @model_validator(mode="after")
    def _apart(self) -> NewStream:
        refuse_alike(self.classes)
        return self


class StreamInfo(Output):
    """A stream and how it was created."""

    name: str
    method: str
    classes: list[str]
    settings: dict[str, Any]
    seed: int
    deadline: float | None
    hold: float
    created: float


class Guess(BaseModel):
    label: str
    probability: float


Guesses = Annotated[
    list[Guess], BeforeValidator(lambda top: [Guess(label=label, probability=p) for label, p in top])
]


class Answered(BaseModel):
    """The model's prediction, or the annotator's answer where the caller waited for one."""

    id: int | None = Field(description="Null where the prediction is not recorded.")
    label: str = Field(description="The class: the annotator's where `by` is annotator, else the model's.")
    by: Literal["model", "annotator"]
    top: Guesses
    entropy: float
    threshold: float | None = Field(description=THRESHOLD)
    score: float | None = Field(description=SCORE)
    query_id: int | None = Field(description="The question's id, where an annotator is asked.")
    question: Asked = Field(description=ASKED)
    recorded: bool = Field(
        description="False while the store cannot be written: the model learns nothing from this image."
    )
    repeated: bool = Field(description="Whether this is the answer to an earlier request with the same key.")
    seconds: float

    @classmethod
    def of(cls, outcome: Outcome) -> Answered:
        row = outcome.row
        named = row.state == ANSWERED and row.answer is not None
        id = row.id if outcome.recorded else None
        changes = {
            "id": id,
            "label": row.answer if named else row.label,
            "by": "annotator" if named else "model",
            "query_id": id if row.state == OPEN else None,
            "recorded": outcome.recorded,
            "repeated": outcome.repeated,
        }
        return cls.model_validate(vars(row) | changes)


class Prediction(Output):
    """A recorded prediction and the state of its question; made from a `Row`."""

    id: int
    at: float
    name: str
    image: str = Field(description="SHA-256 of the file.")
    has_image: bool = Field(validation_alias="kept")
    label: str
    top: Guesses
    entropy: float
    threshold: float | None = Field(description=THRESHOLD)
    score: float | None = Field(description=SCORE)
    reject: float | None = Field(description="Probability that the image shows none of the classes.")
    asked: bool
    state: Literal["unqueried", "open", "answered", "skipped", "expired", "corrected"]
    question: Asked = Field(description=ASKED)
    deadline: float | None
    answer: str | None = Field(description="The answer: a class,")
    no: list[str] = Field(description="or classes that it is not,")
    none: bool = Field(description="or that it is none of the classes.")
    said: Annotated[str, BeforeValidator(Answer.describe)] = Field(
        description="The answer in words; empty where there is none."
    )
    ended_by: str | None
    ended_at: float | None
    seconds: float


class Changed(Output):
    """A question after an answer, a skip or an undo; made from an `AnswerResult`."""

    prediction: Prediction = Field(validation_alias="row")
    changed: bool = Field(description="False where nothing changed.")


class LeaseRequest(Input):
    """How many questions a page wants to hold."""

    holder: Annotated[str, Field(min_length=8, max_length=64, pattern=HOLDER)] = Field(
        description="A random text that names one page of one annotator."
    )
    count: Annotated[int, Field(ge=0, le=20)] = Field(3, description="0 gives all of them back.")
    first: Number | None = Field(None, description="A question wanted before all others.")


Class = Annotated[str, Field(max_length=200)] | Number


class Label(Input):
    """An answer: a class, or classes it is not, or none of the classes. One of these."""

    label: Class | None = Field(None, description="The class, by name or index.")
    no: Annotated[list[Class], Field(max_length=20_000)] = Field(
        default_factory=list, description="Instead, classes it is not. They add up over several answers."
    )
    none: bool = Field(False, description="Instead, that it is none of the classes.")

    @model_validator(mode="after")
    def _one(self) -> Label:
        if (self.label is not None) + bool(self.no) + self.none != 1:
            raise ValueError("give a label, or classes it is not of, or none: one of these")
        return self

    def by(self, token: Token) -> Answer:
        """The answer of a token's holder."""
        return Answer.from_json({**self.model_dump(), "annotator": token.annotator})


class NewClasses(Input):
    names: Annotated[list[ClassName], Field(min_length=1, max_length=1000)]


class Classes(BaseModel):
    classes: list[str]


class Asking(BaseModel):
    """The rule that a method asks by, and how often."""

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
    """Estimated accuracy on all images, from the answers to questions drawn at random."""

    said: str = Field(description="In words; or why there is no estimate yet.")
    needed: int
    random_answers: int
    estimate: Estimate | None = Field(description="Null while there are too few answers.")
    by_class: dict[str, Estimate] = Field(description="By predicted class, where there are answers enough.")


class Forecast(BaseModel):
    """The expected gain of more answers, in points of accuracy, with a 90 % interval."""

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
    corrected: int = Field(description="Labels for images without a question.")
    agreed: int = Field(description="Answers that equal the prediction.")
    events: int
    asking: Asking | None = Field(description="Null where the method never asks.")
    accuracy: Accuracy | None = Field(description="Of all predictions; null where the method never asks.")
    forecast: Forecast | None = Field(description="Of more answers; null while unknown.")
    learner: dict[str, Any]


class NewToken(Input):
    name: PersonName
    roles: Annotated[list[Literal["predict", "label", "admin"]], Field(min_length=1, max_length=3)]
    stream: StreamName | None = None
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None


class TokenInfo(Output):
    id: str
    name: str
    roles: Annotated[list[str], BeforeValidator(lambda roles: roles.split(","))]
    stream: str | None
    created: float
    expires: float | None
    revoked: float | None


class MadeToken(TokenInfo):
    token: str = Field(description="Shown this once.")


class SignIn(Input):
    """Who signs in, where several people share a link."""

    name: PersonName | None = None


class Session(BaseModel):
    name: str = Field(description="The name that answers carry.")
    csrf: str = Field(description="Send it as X-CSRF-Token with every request that changes something.")
    roles: list[str]
    stream: str | None
    expires: float
