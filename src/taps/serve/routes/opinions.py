"""Several annotators: second opinions, and how far people agree."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from taps.serve import schemas as s
from taps.serve.opinions import agreement_of, ask_twice, give, share_asked_twice
from taps.serve.routes.given import ADMINISTERS, ANNOTATES, Annotator, Here, Worker
from taps.serve.routes.queries import Id, change
from taps.types import Answer

router = APIRouter(prefix="/v1/streams/{stream}", tags=["several annotators"])


class Twice(s.Input):
    share: Annotated[float, Field(ge=0, le=1, description="Of the answered questions.")]


class Known(BaseModel):
    """How a person answered questions whose answer is known."""

    asked: int
    right: int


class Disagreement(BaseModel):
    """An image that people said different things of; whoever labels it again settles that."""

    prediction: s.Prediction
    said: dict[str, str] = Field(description="By annotator; gold for a known answer.")


class Agreed(BaseModel):
    """How far annotators agree."""

    share: float = Field(description="Of the answered questions, put to a second person.")
    images: int = Field(description="Answered by two people.")
    alpha: float | None = Field(description="Krippendorff's; null while it cannot be said.")
    low: float | None
    high: float | None
    known: dict[str, Known] = Field(description="By annotator.")
    open: list[Disagreement]


@router.put("/twice", dependencies=ADMINISTERS)
def put_twice(body: Twice, worker: Worker, state: Here) -> Twice:
    """Ask a second person about a share of the answered questions; 0 to stop."""
    ask_twice(state.service.store, worker.stream.id, body.share)
    return body


@router.get("/agreement", dependencies=ANNOTATES)
def agreement(worker: Worker, state: Here) -> Agreed:
    """How far annotators agree, what they disagree about, and how they answered what is known."""
    store, stream = state.service.store, worker.stream.id
    found = agreement_of(store, stream)
    low, high = found.interval or (None, None)
    return Agreed(
        share=share_asked_twice(store, stream),
        images=found.images,
        alpha=found.alpha,
        low=low,
        high=high,
        known={who: Known(asked=asked, right=right) for who, (asked, right) in found.gold.items()},
        open=[
            Disagreement(prediction=s.Prediction.of(worker.row(id)), said=dict(said))
            for id, said in found.open.items()
        ],
    )


@router.post("/predictions/{id}/opinion")
async def opinion(id: Id, body: s.Label, token: Annotator, worker: Worker) -> s.Changed:
    """What a second person says of an answered question; it is on record, and nothing is learned from it."""
    return await change(worker, lambda session: give(session, id, body.by(token), token.id))


@router.delete("/predictions/{id}/opinion")
async def take_back(id: Id, token: Annotator, worker: Worker) -> s.Changed:
    """Take one's second opinion back."""
    mine = Answer(annotator=s.name_of(token))
    return await change(worker, lambda session: give(session, id, mine, token.id))
