"""Several annotators: second opinions on answered questions, known answers ("gold"), and agreement.

An opinion is recorded beside the answer; the learner learns the answer alone. A disagreement is settled by
labelling the image again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from pydantic import BaseModel, Field

from taps.serve import schemas as s
from taps.serve.records import Event
from taps.serve.store import Store
from taps.serve.stream_session import AnswerResult, StreamSession
from taps.streams.log import ANSWERED, OPINION, UNDONE
from taps.streams.row import UNQUERIED, Row
from taps.types import Answer

ALPHA_DRAWS = 500  # of the images, with replacement, for the interval of α
GOLD = "gold"  # the annotator of known answers


class Known(BaseModel):
    """How a person answered questions whose answer is known."""

    asked: int
    right: int


class Disagreement(BaseModel):
    """An image with different answers; labelling it again settles that."""

    prediction: s.Prediction
    said: dict[str, str] = Field(description="By annotator; gold for a known answer.")


class Agreed(BaseModel):
    """How far annotators agree."""

    share: float = Field(description="Share of the answered questions that a second person is asked.")
    images: int = Field(description="Answered by two people.")
    alpha: float | None = Field(description="Krippendorff's; null where there are too few answers.")
    low: float | None
    high: float | None
    known: dict[str, Known] = Field(description="By annotator.")
    open: list[Disagreement]


@dataclass
class Answers:
    """The answers to one question.

    Attributes:
        by: The first answer of each person.
        answered: Who gave the answer that was learned.
        settled: Whether it was answered again after people disagreed.
    """

    by: dict[str, Answer] = field(default_factory=dict)
    answered: str | None = None
    settled: bool = False

    @property
    def words(self) -> dict[str, str]:
        """The answers that name a class, or none, by person."""
        return {who: each.describe() for who, each in self.by.items() if not each.no}

    def apply(self, event: Event) -> None:
        if event.kind == UNDONE:
            self.by.pop(self.answered or "", None)
            return
        answer = Answer.from_json(event.value)
        if event.kind == ANSWERED:
            self.settled = len(self.by) > 1
            self.answered = answer.annotator
            self.by.setdefault(answer.annotator, answer)
        elif answer.describe():
            self.by[answer.annotator] = answer
        else:
            self.by.pop(answer.annotator, None)


def _answers(store: Store, stream: int) -> dict[int, Answers]:
    """The answers and opinions about each image, by id."""
    found: dict[int, Answers] = {}
    events = [event for kind in (ANSWERED, UNDONE, OPINION) for event in store.events(stream, kind=kind)]
    for event in sorted(events, key=lambda event: event.seq):
        if event.prediction is not None:
            found.setdefault(event.prediction, Answers()).apply(event)
    return found


def _note(stream: int) -> str:
    return f"twice of {stream}"


def share_asked_twice(store: Store, stream: int) -> float:
    """Share of the answered questions that a second person is asked."""
    return float(store.note(_note(stream)) or 0.0)


def ask_twice(store: Store, stream: int, share: float) -> None:
    """From now on ask a second person about this share of the answered questions."""
    store.set_note(_note(stream), str(share))


def second_questions(store: Store, stream: int, person: str) -> list[Row]:
    """Questions that others answered and this person is to be asked, too; without their answers."""
    share = share_asked_twice(store, stream)
    if not share:
        return []
    answers = _answers(store, stream)
    once = {id: each for id, each in answers.items() if len(each.by.keys() - {GOLD}) == 1}
    rows = store.predictions(stream, states=[ANSWERED])
    others = [row for row in rows if row.id in once and once[row.id].answered != person]
    chosen = [row for row in others if Random(f"{stream} {row.id} twice").random() < share]
    return [replace(row, **row.changes(UNDONE)) for row in chosen]


def give_opinion(session: StreamSession, id: int, answer: Answer, who: str) -> AnswerResult:
    """Record a second opinion without learning it; an empty answer takes it back."""
    log, row = session.learner_log, session.store.prediction(session.stream.id, id)
    learner = log.writable()
    named = session.step(lambda: learner.normalise_answer(answer)) if answer.describe() else answer
    log.record(Event(log.seq + 1, OPINION, id, named.to_json(), who, time.time()), row)
    return AnswerResult(row)


def ask_known(session: StreamSession, id: int, label: str, who: str) -> None:
    """Ask about an image whose answer is known, to see how well people answer."""
    give_opinion(session, id, Answer(label, annotator=GOLD), who)
    if session.store.prediction(session.stream.id, id).state == UNQUERIED:
        session.ask(id, who)


def agreement_of(store: Store, stream: int) -> Agreed:
    """How far annotators agree, what they disagree about, and how they answered what is known."""
    answers = _answers(store, stream)
    words = {id: each.words for id, each in answers.items()}
    people = [[word for who, word in each.items() if who != GOLD] for each in words.values()]
    pairs = [each for each in people if len(each) > 1]
    low, high = alpha_interval(pairs) or (None, None)
    gold: dict[str, Known] = {}
    for each in (each for each in words.values() if GOLD in each):
        for who in each.keys() - {GOLD}:
            known = gold.setdefault(who, Known(asked=0, right=0))
            known.asked += 1
            known.right += each[who] == each[GOLD]
    differ = [id for id, each in words.items() if len(set(each.values())) > 1 and not answers[id].settled]
    rows = {id: s.Prediction.model_validate(store.prediction(stream, id)) for id in differ}
    return Agreed(
        share=share_asked_twice(store, stream),
        images=len(pairs),
        alpha=krippendorff_alpha(pairs),
        low=low,
        high=high,
        known=gold,
        open=[Disagreement(prediction=row, said=words[id]) for id, row in rows.items()],
    )


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    """Krippendorff's α for classes: 1 − observed / expected disagreement; None where nothing is expected.

    Args:
        units: The answers that each image was given. Images with one answer do not count.

    >>> krippendorff_alpha([["cat", "cat"], ["dog", "dog"]]), krippendorff_alpha([["cat", "cat"]])
    (1.0, None)
    """
    paired = [Counter(unit) for unit in units if len(unit) > 1]
    totals = sum(paired, Counter())
    answers = totals.total()
    expected = answers**2 - sum(count**2 for count in totals.values())
    if not expected:
        return None
    observed = sum(
        (unit.total() ** 2 - sum(count**2 for count in unit.values())) / (unit.total() - 1) for unit in paired
    )
    return float(1 - (answers - 1) * observed / expected)


def alpha_interval(units: Sequence[Sequence[Hashable]], seed: int = 0) -> tuple[float, float] | None:
    """The middle 95 % of α over images drawn with replacement; None where α is not known."""
    paired = [unit for unit in units if len(unit) > 1]
    if krippendorff_alpha(paired) is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(paired), size=(ALPHA_DRAWS, len(paired))).tolist()
    alphas = (krippendorff_alpha([paired[place] for place in places]) for places in drawn)
    low, high = np.quantile([1.0 if alpha is None else alpha for alpha in alphas], [0.025, 0.975])
    return float(low), float(high)
