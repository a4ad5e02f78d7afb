"""Questions: leases with the reason for each, answers, second opinions and agreement."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from taps.asking.base import ceiling
from taps.asking.reasons import reason, rule_of
from taps.serve import opinions
from taps.serve import schemas as s
from taps.serve.dependencies import ADMINISTERS, ANNOTATES, Annotator, Here, Id, Key, Worker
from taps.serve.errors import NotFoundError
from taps.serve.routes.predictions import After, Limit, change
from taps.serve.stream_session import StreamSession
from taps.streams.row import OPEN, UNQUERIED, Row
from taps.types import Answer

router = APIRouter(prefix="/v1/streams/{stream}", dependencies=[ANNOTATES])

CONSIDERED = 1000  # open questions, the oldest first
SEVERAL = "several annotators"


class Why(BaseModel):
    """Why a question is asked, in words and in the numbers of a small chart."""

    rule: str = Field(description="The acquisition rule: entropy, margin, random, …")
    text: str
    entropy: float
    threshold: float | None = Field(description="Of the entropy; null where the rule is another.")
    highest: float = Field(description="The highest possible entropy: ln of the number of classes.")
    budget: str
    asked: int
    spent: float = Field(description="What they took of the budget: a yes or no is part of a question.")
    allowed: float = Field(description="Questions the budget has room for so far.")
    alike: int = Field(description="Labelled images with the same predicted class.")
    alike_right: int = Field(description="Those of them predicted rightly.")


class Question(BaseModel):
    """A question leased to one annotator; meanwhile nobody else is asked it."""

    prediction: s.Prediction
    why: Why
    until: float = Field(description="When the lease ends unless it is renewed, in seconds since 1970.")
    second: bool = Field(description="Somebody else has answered it: send an opinion, not a label.")


class Twice(s.Input):
    share: Annotated[float, Field(ge=0, le=1, description="Of the answered questions.")]


@router.get("/queries", tags=["questions"])
def list_queries(worker: Worker, after: After = -1, limit: Limit = 100) -> list[s.Prediction]:
    """The open questions, the oldest first."""
    rows = worker.rows(states=[OPEN], after=after, limit=limit)
    return [s.Prediction.model_validate(row) for row in rows]


@router.post("/queries/lease", tags=["labelling"])
async def lease(body: s.LeaseRequest, state: Here, token: Annotator, worker: Worker) -> list[Question]:
    """Hold some questions for a while: nobody else is asked them. Call again to renew, or for more."""
    service, stream = state.service, worker.stream
    summary = await asyncio.wrap_future(worker.send(lambda session: session.summary()))
    second: set[int] = set()

    def hold() -> dict[int, tuple[Row, float]]:
        with service.leases.lock:
            again = opinions.second_questions(service.store, stream.id, token.annotator)
            second.update(row.id for row in again)
            rows = {row.id: row for row in [*worker.rows(states=[OPEN], limit=CONSIDERED), *again]}
            held = service.leases.take(stream.id, body.holder, list(rows), body.count, body.first)
        return {id: (rows[id], until) for id, until in held.items()}

    def question(row: Row, until: float) -> Question:
        alike = service.store.alike(stream.id, row.label)
        why = explain(service.settings_of(stream.name), row, summary, alike)
        prediction = s.Prediction.model_validate(row)
        return Question(prediction=prediction, why=why, until=until, second=row.id in second)

    held = await run_in_threadpool(hold)
    kept = partial(StreamSession.repredict_kept, ids=list(held))  # with what was learned since
    now = await asyncio.wrap_future(worker.send(kept)) if held else {}
    rows = [(replace(row, top=now.get(id, row.top)), until) for id, (row, until) in held.items()]
    return await run_in_threadpool(lambda: [question(*each) for each in rows])


def explain(settings: Any, row: Row, summary: dict[str, Any], alike: tuple[int, int]) -> Why:
    """Why the annotator is asked about an image, from `StreamSession.summary` and `Store.alike`."""
    rule = rule_of(settings, row.score)
    text, allowed = _budget(settings, summary)
    return Why(
        rule=rule,
        text=reason(settings, row.top, row.entropy, row.threshold, row.score),
        entropy=row.entropy,
        threshold=row.threshold if rule == "entropy" else None,
        highest=math.log(len(summary["classes"])),
        budget=text,
        asked=summary["asked"],
        spent=summary["spent"],
        allowed=allowed,
        alike=alike[0],
        alike_right=alike[1],
    )


def _budget(settings: Any, summary: dict[str, Any]) -> tuple[str, float]:
    """What is left of the budget, in words, and how many questions it has room for so far."""
    spent, seen = summary["spent"], summary["seen"]
    less = " A yes or no counts as part of one." if summary["questions"]["yes_no"] else ""
    total: int | None = settings.budget if isinstance(settings.budget, int) else None
    if total is None and settings.policy == "paced" and settings.expected and seen <= settings.expected:
        total = ceiling(settings.rate * settings.expected)
    if total is not None:
        return f"{_number(max(total - spent, 0))} of {total:,} questions are left.{less}", total
    share = spent / seen if seen else 0.0
    text = (
        f"{_number(spent)} questions for {seen:,} images: {share:.1%}, of {settings.rate:.1%} allowed.{less}"
    )
    return text, settings.rate * seen


def _number(value: float) -> str:
    """With a tenth where there is one.

    >>> _number(1200), _number(3.2)
    ('1,200', '3.2')
    """
    return f"{value:,.1f}".removesuffix(".0")


@router.get("/queries/{id}", tags=["questions"])
def show_query(id: Id, worker: Worker) -> s.Prediction:
    """One question, open or not."""
    row = worker.row(id)
    if row.state == UNQUERIED:
        raise NotFoundError(f"Nobody was asked about prediction {id}.")
    return s.Prediction.model_validate(row)


@router.post("/queries/{id}/label", tags=["questions"])
async def label(id: Id, body: s.Label, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Answer a question. The same answer again changes nothing; another one replaces it."""
    return await change(worker, lambda session: session.label(id, body.by(token), token.id, key))


@router.post("/queries/{id}/skip", tags=["questions"])
async def skip(id: Id, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Close a question without an answer."""
    return await change(worker, lambda session: session.skip(id, token.id, key))


@router.post("/queries/{id}/undo", tags=["questions"])
async def undo(id: Id, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Undo an answer or a skip; the question is open again."""
    return await change(worker, lambda session: session.undo(id, token.id, key))


@router.put("/twice", tags=[SEVERAL], dependencies=[ADMINISTERS])
def put_twice(body: Twice, worker: Worker, state: Here) -> Twice:
    """Ask a second person about a share of the answered questions; 0 to stop."""
    opinions.ask_twice(state.service.store, worker.stream.id, body.share)
    return body


@router.get("/agreement", tags=[SEVERAL])
def agreement(worker: Worker, state: Here) -> opinions.Agreed:
    """How far annotators agree, what they disagree about, and how they answered what is known."""
    return opinions.agreement_of(state.service.store, worker.stream.id)


@router.post("/predictions/{id}/opinion", tags=[SEVERAL])
async def opinion(id: Id, body: s.Label, token: Annotator, worker: Worker) -> s.Changed:
    """Give a second opinion on an answered question; it is recorded, and nothing is learned from it."""
    act = partial(opinions.give_opinion, id=id, answer=body.by(token), who=token.id)
    return await change(worker, act)


@router.delete("/predictions/{id}/opinion", tags=[SEVERAL])
async def take_back(id: Id, token: Annotator, worker: Worker) -> s.Changed:
    """Take back one's second opinion."""
    empty = Answer(annotator=token.annotator)
    return await change(worker, partial(opinions.give_opinion, id=id, answer=empty, who=token.id))
