"""The desk: which images are asked about, what waits for an answer, what was answered, and what it cost."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taps.asking.accuracy import RunningAccuracy
from taps.asking.base import Decision, Policy, check_count
from taps.asking.paced import MOST_OWED
from taps.asking.policy import make_policy
from taps.asking.question import Questions, class_seconds
from taps.errors import QueryError
from taps.learner.answers import normalise_answer
from taps.learner.pending import PendingQueries
from taps.methods import MethodOutput
from taps.methods.settings import Asking, Settings
from taps.model.prompts.classes import whole_number
from taps.saved import check_plain, maybe, whole
from taps.types import Answer, FloatArray, Prediction

IMAGES_FOR_NOTE = 100  # before a note says that the rate is missed
COUNTS = ("seen", "answered", "unasked", "undone", "corrected")  # saved under their own names
POLICY_FIELDS = ("rate", "warmup", "tau0", "tau0_relative", "switch_at", "budget", "pace")


class Desk:
    """Where questions go out and answers come in; it knows nothing of how a method learns.

    Attributes:
        asks: Whether the method asks at all.
        expected: How many images will come; None where nobody said.
        seen: Images so far.
        answered: Images that have an answer.
        unasked: Those of them whose answer came without a question.
        undone: Answers that were taken back.
        corrected: Answers that contradicted an earlier one for the same image.
        skipped: Questions that the annotator could not answer.
        given_back: Those of them that were given back to the budget.
    """

    def __init__(self, settings: Settings, classes: tuple[str, ...], seed: int, *, asks: bool) -> None:
        self.settings, self.classes, self.seed, self.asks = settings, classes, seed, asks
        self.expected: int | None = getattr(settings, "expected", None)
        self.seen = 0
        self.answered = self.unasked = self.undone = self.corrected = 0
        self.skipped = self.given_back = 0
        self.policy, self.questions = self._make_policy(), self._make_questions()
        self.accuracy = RunningAccuracy(len(classes))
        self.queries = PendingQueries(settings.recent if asks else 0, settings.undo)

    @property
    def asked(self) -> int:
        """Questions put to the annotator, including those given back to the budget."""
        return sum(self.questions.counts.values())

    def expect(self, images: int) -> None:
        if self.expected is None and not self.seen:
            self.expected = check_count("images", images)
            self.policy = self._make_policy()

    def known_id(self, given: object) -> int:
        """The id of an image seen; a plain number, whatever kind was given."""
        id = whole_number(given)
        if id is None or not 0 <= id < self.seen:
            raise QueryError(f"Unknown sample {given!r}; ids come from `predict_one`, {self.seen} so far.")
        return id

    def conclude(self, output: MethodOutput, began: float) -> Prediction:
        """Decide whether to ask, and take note of the image."""
        probs = torch.nan_to_num(output.probs.float().cpu(), nan=1 / len(self.classes)).numpy()
        entropy = float(output.entropy)  # plain numbers, whatever kind a method gives: they are written down
        score = entropy if output.score is None else float(output.score)
        decision, question = self.decide(probs, score)
        index = int(probs.argmax())
        seconds = time.perf_counter() - began
        id, self.seen = self.seen, self.seen + 1
        self.accuracy.add(id, index, float(probs[index]), decision.chance, decision.ask)
        if output.item is not None:
            if decision.ask and question == "yes_no":
                self.queries.yes_no.add(id)
            self.queries.keep(id, output.item, decision.ask)
        return Prediction(
            id,
            index,
            self.classes[index],
            probs,
            entropy,
            decision.threshold,
            decision.ask,
            seconds,
            score,
            float(output.reject),
            question,
            decision.why,
        )

    def decide(self, probs: FloatArray, score: float) -> tuple[Decision, str]:
        """Whether to ask about an image, and which kind of question; a question is counted as put."""
        kind = self.questions.choose(probs)
        decision = self.policy.decide(score, allowed=kind is not None)
        if kind is not None and decision.ask:
            self.policy.asked -= 1 - self.questions.put(kind)  # `decide` has counted a whole one
        return decision, kind or "class"

    def will_ask(self, entropy: float) -> bool:
        """What `decide` is going to say of an image of this entropy."""
        return copy.deepcopy(self.policy).decide(entropy).ask

    def trial(self) -> Desk:
        """A desk that decides as this one is going to, and keeps no image; this one stays as it is."""
        other = copy.copy(self)
        other.policy, other.questions = copy.deepcopy((self.policy, self.questions))
        other.accuracy, other.queries = RunningAccuracy(len(self.classes)), PendingQueries(0, 0)
        return other

    def earlier(self, id: int) -> Answer | None:
        """The answer that an image has and that can still be taken back."""
        return self.queries.given[id].answer if id in self.queries.given else None

    def replaced(self, before: Answer, answer: Answer) -> None:
        """An answer that was just taken back is followed by another, which narrows it or contradicts it."""
        narrows = before.no and answer.label not in before.no and not answer.none
        self.undone, self.corrected = self.undone - 1, self.corrected + (not narrows)

    def take(self, id: int, answer: Answer) -> None:
        """Take note of an answer that the method has learned."""
        self.queries.answer(id, answer)
        self.accuracy.answer(id, answer)
        if isinstance(answer.label, int):
            self.policy.answer(answer.label)
        self.answered += 1
        self.unasked += not self.queries.given[id].asked

    def take_back(self, id: int) -> None:
        asked = self.queries.given[id].asked
        self.queries.take_back(id)
        self.accuracy.answer(id, None)
        self.answered, self.undone = self.answered - 1, self.undone + 1
        self.unasked -= not asked

    def ask(self, id: int) -> None:
        """Put a question about one of the images that may still be asked about."""
        self.queries.ask(id)
        self.policy.asked += self.questions.put("class")

    def check_may_ask(self, id: int) -> None:
        if id not in self.queries.recent or id in self.queries.skipped:
            raise QueryError(f"Sample {id} is not among the images that may still be asked about.")

    def skip(self, id: int) -> None:
        if id not in self.queries.pending:
            raise QueryError(f"Sample {id} has no open question that could be skipped.")
        back = 2 * self.given_back < self.asked
        self.policy.asked -= back * self.questions.share(self.queries.kind(id))
        self.queries.skip(id, back)
        self.skipped, self.given_back = self.skipped + 1, self.given_back + back

    def reopen(self, id: int) -> None:
        """Open a skipped question again; what the budget got back is charged again."""
        back = self.queries.reopen(id)
        self.policy.asked += back * self.questions.share(self.queries.kind(id))
        self.skipped, self.given_back = self.skipped - 1, self.given_back - back

    def grow(self, classes: tuple[str, ...], settings: Settings) -> None:
        """Classes were added at the end."""
        policy, questions = self.policy, self.questions
        self.classes, self.settings = classes, settings
        self.policy, self.questions = self._make_policy(), self._make_questions()
        self.policy.load_state_dict(policy.state_dict())
        self.questions.restore(questions.values())
        self.accuracy.grow(len(classes))

    def values(self) -> dict[str, Any]:
        """What must be saved beside the tensors of `queries`."""
        return {
            "expected": self.expected,
            **{name: getattr(self, name) for name in COUNTS},
            **self.queries.values(),
            "counts": [self.skipped, self.given_back],
            "policy": self.policy.state_dict() if self.asks else None,
            "questions": self.questions.values(),
            "accuracy": self.accuracy.values(),
        }

    def restored(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor], device: Any) -> Desk:
        """Another desk in a saved state; this one stays as it is."""
        expected = values.get("expected", self.expected)  # not saved by an older version
        kinds = dict.fromkeys(COUNTS, whole()) | {"seed": whole(), "counts": (whole(), whole())}
        check_plain(values, kinds, "learner")
        check_plain(expected, maybe(whole()), "learner.expected")
        other = Desk(self.settings, self.classes, values["seed"], asks=self.asks)
        other.expected = expected
        other.policy = other._make_policy()
        if self.asks:
            other.policy.load_state_dict(values["policy"])
        other.questions.restore(values["questions"])
        other.accuracy.restore(values["accuracy"])
        other.queries = self.queries.restored(values, tensors, device)
        for id, record in other.queries.given.items():
            other.queries.given[id] = replace(record, answer=normalise_answer(record.answer, self.classes))
        for name in COUNTS:
            setattr(other, name, values[name])
        other.skipped, other.given_back = values["counts"]
        return other

    def summary(self) -> dict[str, Any]:
        """Counts so far, as plain values."""
        counts: dict[str, Any] = {
            "seen": self.seen,
            "asked": self.asked,
            "answered": self.answered,
            "unasked": self.unasked,
            "pending": len(self.queries.pending),
            "skipped": self.skipped,
            "given_back": self.given_back,
            "undone": self.undone,
            "corrected": self.corrected,
        }
        if self.asks:
            counts["skipped_entropies"] = self.policy.skipped
            counts["questions"] = dict(self.questions.counts)
            counts["spent"] = round(self.policy.asked, 3)  # of the budget: a yes or no is less than one,
            counts["yes_no_share"] = round(self.questions.share("yes_no"), 3)  # this much of one
            counts["seconds"] = round(self.questions.spent, 1)
            counts["accuracy"] = self.accuracy.summary(self.classes)
            ahead = self.accuracy.forecast(self.answered)
            counts["forecast"] = None if ahead is None else ahead.plain()
        return counts

    def notes(self) -> list[str]:
        """Sentences for the user."""
        notes = []
        if self.corrected:
            notes.append(f"Answers that contradicted an earlier one for the same image: {self.corrected}.")
        if self.undone:
            notes.append(f"Answers that were taken back: {self.undone}.")
        spent = self.questions.choose(np.ones(1)) is None
        if spent:
            notes.append(f"The {self.questions.total:g} seconds of the annotator's time are spent.")
        elif isinstance(self.settings, Asking) and self.asks and self.seen >= IMAGES_FOR_NOTE:
            notes += self._note_on_rate(self.settings)
        return notes

    def _note_on_rate(self, settings: Asking) -> list[str]:
        wanted = settings.rate * self.seen
        # Neither too few questions, whatever each takes of the budget, nor more than it allows.
        had = min(self.asked, max(self.policy.asked, wanted))
        steered = settings.budget in ("soft", "hard") and not self.policy.ahead
        if not steered or abs(had - wanted) <= max(wanted / 2, MOST_OWED):
            return []
        return [
            f"{had / self.seen:.1%} of the {self.seen} images were asked about, not {settings.rate:.1%}; "
            'policy="paced" keeps to the rate.'
        ]

    def _make_policy(self) -> Policy:
        if not isinstance(self.settings, Asking) or not self.asks:
            return Policy(threshold=math.inf)  # never asks
        given = {name: getattr(self.settings, name) for name in POLICY_FIELDS} | {"expected": self.expected}
        explore = getattr(self.settings, "explore", 0.0)
        classes = len(self.classes)
        return make_policy(self.settings.policy, seed=self.seed, classes=classes, explore=explore, **given)

    def _make_questions(self) -> Questions:
        given = self.settings
        which = given.class_seconds or class_seconds(len(self.classes))
        kinds = given.questions or ("both" if given.budget_seconds else "class")
        return Questions(kinds, {"class": which, "yes_no": given.yes_no_seconds}, given.budget_seconds)
