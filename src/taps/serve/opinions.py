"""Several annotators: answered questions put to a second person, known answers, and how far people agree.

An opinion is on record beside the answer; the learner learns the answer alone. Where two people disagree,
whoever settles it labels the image again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from taps.evaluate.statistics import alpha_interval, krippendorff_alpha
from taps.serve.records import Event
from taps.serve.store import Store
from taps.serve.stream_session import AnswerResult, StreamSession
from taps.session.log import ANSWERED, OPINION, UNDONE
from taps.session.row import UNQUERIED, Row
from taps.types import Answer

GOLD = "gold"  # who gave the answers of a file


@dataclass
class Said:
    """What people said of one image.

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

    def take(self, event: Event) -> None:
        """Live through one event."""
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


def said_of(store: Store, stream: int) -> dict[int, Said]:
    """What people said of each image that was answered or is known."""
    kinds = (ANSWERED, UNDONE, OPINION)
    found: dict[int, Said] = {}
    for event in sorted((e for kind in kinds for e in store.events(stream, kind=kind)), key=lambda e: e.seq):
        if event.prediction is not None:
            found.setdefault(event.prediction, Said()).take(event)
    return found


def _note(stream: int) -> str:
    return f"twice of {stream}"


def share_asked_twice(store: Store, stream: int) -> float:
    """Share of the answered questions that a second person is asked, too."""
    return float(store.note(_note(stream)) or 0.0)


def ask_twice(store: Store, stream: int, share: float) -> None:
    """From now on ask a second person about this share of the answered questions."""
    store.set_note(_note(stream), str(share))


def wanted_of(store: Store, stream: int, person: str) -> list[Row]:
    """Questions of others that a person is to be asked, too; without what was answered."""
    share = share_asked_twice(store, stream)
    if not share:
        return []
    said = {id: each for id, each in said_of(store, stream).items() if len(each.by.keys() - {GOLD}) == 1}
    rows = store.predictions(stream, states=[ANSWERED])
    mine = [row for row in rows if row.id in said and said[row.id].answered != person]
    chosen = [row for row in mine if Random(f"{stream} {row.id} twice").random() < share]
    return [replace(row, **row.changes(UNDONE)) for row in chosen]


def give(session: StreamSession, id: int, answer: Answer, who: str) -> AnswerResult:
    """Put on record what a person thinks of an image, without learning it; an empty answer takes it back."""
    log, row = session.learner_log, session.store.prediction(session.stream.id, id)
    learner = log.writable()
    said = session.step(lambda: learner.normalise_answer(answer)) if answer.describe() else answer
    log.record(Event(log.seq + 1, OPINION, id, said.to_json(), who, time.time()), row)
    return AnswerResult(row)


def ask_known(session: StreamSession, id: int, label: str, who: str) -> None:
    """Ask about an image whose answer is known: it tells how good the annotators are."""
    give(session, id, Answer(label, annotator=GOLD), who)
    if session.store.prediction(session.stream.id, id).state == UNQUERIED:
        session.ask(id, who)


@dataclass(frozen=True)
class Agreement:
    """How far people agree.

    Attributes:
        alpha: Krippendorff's, of people; None while it cannot be said.
        interval: Its ends, at 95 %.
        images: How many were answered by two people.
        gold: Of each person, how many known answers were asked and how many of these were right.
        open: Images that people disagree about, not settled: what each said, by id.
    """

    alpha: float | None
    interval: tuple[float, float] | None
    images: int
    gold: Mapping[str, tuple[int, int]]
    open: Mapping[int, Mapping[str, str]]


def agreement_of(store: Store, stream: int) -> Agreement:
    """From all that is on record."""
    said = said_of(store, stream)
    people = [[word for who, word in each.words.items() if who != GOLD] for each in said.values()]
    pairs = [words for words in people if len(words) > 1]
    gold: dict[str, tuple[int, int]] = {}
    for words in (each.words for each in said.values() if GOLD in each.words):
        for who in words.keys() - {GOLD}:
            asked, right = gold.get(who, (0, 0))
            gold[who] = asked + 1, right + (words[who] == words[GOLD])
    differ = {id: each.words for id, each in said.items() if len(set(each.words.values())) > 1}
    open = {id: words for id, words in differ.items() if not said[id].settled}
    return Agreement(krippendorff_alpha(pairs), alpha_interval(pairs), len(pairs), gold, open)
