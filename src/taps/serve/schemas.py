"""What goes over the wire, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from taps.serve.live import Outcome
from taps.serve.records import ANSWERED, OPEN, SILENT, Row, Stream

StreamName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
ClassName = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Input(BaseModel):
    """A body; fields that are not known are refused, so that no typing error goes unnoticed."""

    model_config = ConfigDict(extra="forbid")


class NewStream(Input):
    """A stream to begin."""

    name: StreamName
    classes: Annotated[list[ClassName], Field(min_length=2, max_length=20_000)]
    method: Annotated[str, Field(max_length=64)] = "taps"
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Of the method; see `taps methods NAME`."
    )
    seed: Number = 0
    deadline: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        86_400.0, description="Seconds a question waits for its answer; null: for ever."
    )
    hold: Annotated[float, Field(ge=0, le=600)] = Field(
        30.0, description="Order ask_first: seconds a caller waits for the expert."
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
    """What the model said, and the expert where there was time to wait for one."""

    id: int | None = Field(description="Null where the prediction is not recorded.")
    label: str = Field(description="The class: the expert's where `by` is expert, else the model's.")
    by: Literal["model", "expert"]
    top: list[Guess]
    entropy: float
    threshold: float | None = Field(description="Null where the method never asks.")
    query_id: int | None = Field(description="Where an expert is asked: the question's id.")
    recorded: bool = Field(
        description="False while the store cannot be written: the model learns nothing from this image."
    )
    repeated: bool = Field(description="Whether this is the answer to an earlier request with the same key.")
    seconds: float

    @classmethod
    def of(cls, outcome: Outcome) -> Answered:
        row = outcome.row
        known = row.state == ANSWERED and row.answer is not None
        return cls(
            id=row.id if outcome.recorded else None,
            label=row.answer if known and row.answer else row.label,
            by="expert" if known else "model",
            top=guesses(row),
            entropy=row.entropy,
            threshold=row.threshold,
            query_id=row.id if outcome.recorded and row.state == OPEN else None,
            recorded=outcome.recorded,
            repeated=outcome.repeated,
            seconds=row.seconds,
        )


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
    asked: bool
    state: Literal["silent", "open", "answered", "skipped", "expired"]
    deadline: float | None
    answer: str | None
    ended_by: str | None
    ended_at: float | None

    @classmethod
    def of(cls, row: Row) -> Prediction:
        same = {
            name: getattr(row, name) for name in cls.model_fields if name not in ("has_image", "asked", "top")
        }
        return cls(**same, has_image=row.kept, asked=row.state != SILENT, top=guesses(row))


class Changed(BaseModel):
    """A question after an answer, a skip or an undo."""

    prediction: Prediction
    changed: bool = Field(description="False where it was so already.")


class Label(Input):
    """An expert's answer."""

    label: Annotated[str, Field(max_length=200)] | Number = Field(description="The class, by name or index.")


class NewClasses(Input):
    names: Annotated[list[ClassName], Field(min_length=1, max_length=1000)]


class Classes(BaseModel):
    classes: list[str]


class Stats(BaseModel):
    """Counts of a stream."""

    stream: str
    seen: int
    asked: int
    open: int
    answered: int
    skipped: int
    expired: int
    agreed: int = Field(description="Answers that were what the model had said.")
    events: int
    learner: dict[str, Any]


class NewToken(Input):
    name: Annotated[str, Field(min_length=1, max_length=100)]
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


class Session(BaseModel):
    csrf: str = Field(description="Send it as X-CSRF-Token with every request that changes something.")
    roles: list[str]
    stream: str | None
    expires: float


def guesses(row: Row) -> list[Guess]:
    return [Guess(label=label, probability=probability) for label, probability in row.top]
