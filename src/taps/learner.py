"""One image in, one prediction out; an answer in and it learns: river's `predict_one` and `learn_one`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from taps import checkpoint
from taps.active.decision import Decision, Policy
from taps.active.pace import MOST_OWED
from taps.active.policy import make_policy
from taps.active.question import Questions, which_seconds
from taps.adapt.ahead import try_tower_kernels
from taps.adapt.ledger import Ledger
from taps.clip import Clip
from taps.errors import QueryError, SettingsError, StateError
from taps.images.decode import load_image
from taps.images.views import make_views, make_views_of, sample_generator
from taps.methods.base import Method, MethodOutput, Snapshot, with_prefix, without_prefix
from taps.methods.registry import find_method, method_settings
from taps.methods.settings import Asking
from taps.methods.together import look_together
from taps.methods.typed import AnySettings
from taps.prompts.classes import add_classes, check_classes, class_index, whole_number
from taps.types import Answer, FloatArray, PixelArray, Prediction

ENOUGH = 100  # images before it is said that the rate is missed
PARTS = ("from_saved", "ledger", "method", "policy")  # not offered by tab completion
COUNTS = ("seen", "answered", "unasked", "undone", "corrected")  # a state has under their own names
POLICY_FIELDS = ("rate", "warmup", "tau0", "tau0_relative", "switch_at", "budget")


def check_seed(seed: int) -> int:
    plain = whole_number(seed)
    if plain is None or plain < 0:
        raise SettingsError(f"The seed is {seed!r}; it must be a whole number from 0 on.")
    return plain


class Learner:
    """A classifier that keeps learning on the job.

    Args:
        clip: The frozen model.
        classes: Class names; their order gives the indices. Or an `id2label` mapping.
        method: Which system (`taps methods` lists them).
        seed: Every random choice follows from it.
        allow_duplicates: Let two classes have one name, as two pairs of ImageNet's do; answer those by index.
        **settings: Of the method, by name. A misspelt one is refused, by type checkers too; they let those
            of a method of one's own pass as a `dict[str, Any]`.

    >>> import numpy as np, taps
    >>> learner = Learner(taps.load_clip("tiny"), ["cat", "dog"], method="zero_shot")
    >>> learner.predict_one(np.zeros((40, 30, 3), np.uint8)).ask
    False
    """

    def __init__(
        self,
        clip: Clip,
        classes: Sequence[str] | Mapping[int, str],
        method: str = "taps",
        *,
        seed: int = 0,
        allow_duplicates: bool = False,
        **settings: Unpack[AnySettings],
    ) -> None:
        if not isinstance(clip, Clip):
            raise SettingsError(
                f"A learner is given a loaded model, not {clip!r}: write taps.load_clip({str(clip)!r})."
            )
        self.clip = clip
        self.classes = check_classes(classes, allow_duplicates=allow_duplicates)
        self.method_name = method
        self.settings = method_settings(method, settings)
        self.seed = check_seed(seed)
        try_tower_kernels(clip)
        self.method = find_method(method).build(clip, self.classes, self.settings, seed)
        self.policy = self._make_policy(len(self.classes))
        self.questions = self._make_questions(len(self.classes))
        self.seen = 0
        self.answered = self.unasked = self.undone = self.corrected = 0
        self.skipped = self.given_back = 0  # questions nobody had an answer to; those returned to the budget
        self.ledger = Ledger(self.settings.recent if self.method.asks else 0, self.settings.undo)

    def __repr__(self) -> str:
        counts = f"{self.seen:,} seen, {self.asked:,} asked, {self.answered:,} answered"
        return (
            f"<Learner {self.method_name} on {self.clip.config.name}, {len(self.classes)} classes: {counts}>"
        )

    def __dir__(self) -> list[str]:
        """What a person calls or reads, for tab completion; its parts are left out."""
        return [name for name in super().__dir__() if not name.startswith("_") and name not in PARTS]

    @property
    def order(self) -> str:
        """Whether an expert's answer is the prediction ("ask_first") or comes after it ("predict_first")."""
        return self.settings.order

    @property
    def asked(self) -> int:
        """Questions put to the expert; the budget counts those that were not given back."""
        return sum(self.questions.counts.values())

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of the questions that wait for an answer, the oldest first."""
        return tuple(sorted(self.ledger.pending))

    @property
    def recent(self) -> tuple[int, ...]:
        """Ids of the images that nobody asked about and `learn_one` takes a label for, the oldest first."""
        return tuple(sorted(self.ledger.recent))

    @property
    def answered_ids(self) -> tuple[int, ...]:
        """Ids of the images whose answers can be taken back, in the order in which they were given."""
        return tuple(self.ledger.given)

    def predict_one(self, image: Any) -> Prediction:
        """Predict one image and decide at once whether to ask for its label.

        Args:
            image: A path, bytes, a PIL image, or an array. One that cannot be decoded raises `ImageError` and
                leaves everything as it was.
        """
        pixels = load_image(image, copy=False)
        began = time.perf_counter()
        output = self.method.predict(self._views(pixels, self.seen))
        return self._conclude(output, began)

    def predict_many(self, images: Sequence[Any]) -> list[Prediction]:
        """What `predict_one` says of each image in turn, computed together: for a backlog.

        No answer can come in between: where a question should be answered before the next image, call
        `predict_one`. Predictions, questions and the learner's state are those of that loop but for rounding,
        since sums are made in another order; `seconds` is each image's share of the time, decoding included.

        Args:
            images: As `predict_one` takes them. Where one cannot be decoded, `ImageError` is raised and
                everything is as it was.
        """
        return predict_together([(self, image) for image in images])

    def _views(self, pixels: PixelArray, id: int) -> Tensor:
        return make_views(pixels, generator=sample_generator(self.seed, id), **self._view_settings)

    @property
    def _view_settings(self) -> dict[str, Any]:
        return {
            "views": self.settings.views,
            **self.clip.config.framing,
            "device": self.clip.device,
            "backend": self.settings.view_backend,
            "augmix": self.settings.augmix,
        }

    def _conclude(self, output: MethodOutput, began: float) -> Prediction:
        """Decide whether to ask, and take note of the image."""
        probs = torch.nan_to_num(output.probs.float().cpu(), nan=1 / len(self.classes)).numpy()
        score = output.entropy if output.score is None else output.score
        decision, question = self.decide(probs, score)
        index = int(probs.argmax())
        seconds = time.perf_counter() - began
        id, self.seen = self.seen, self.seen + 1
        if output.item is not None:
            if decision.ask and question == "is_it":
                self.ledger.is_it.add(id)
            self.ledger.keep(id, output.item, decision.ask)
        return Prediction(
            id,
            index,
            self.classes[index],
            probs,
            output.entropy,
            decision.threshold,
            decision.ask,
            seconds,
            score,
            output.reject,
            question,
        )

    def decide(self, probs: FloatArray, score: float) -> tuple[Decision, str]:
        """Whether to ask about an image, and which kind of question; it is counted as put.

        Args:
            probs: Its prediction.
            score: How much an answer is wanted.
        """
        if self.policy is None:
            return Decision(False, float("inf")), "which"
        kind = self.questions.choose(probs)
        decision = self.policy.decide(score, allowed=kind is not None)
        if kind is not None and decision.ask:
            self.policy.asked += self.questions.put(kind) - 1  # the policy has counted a whole one
        return decision, kind or "which"

    def predict_again(self, id: int, image: Any) -> Prediction:
        """What it would say now of an image it has seen, with the views it had then; nothing is changed.

        Args:
            id: Of the prediction made then.
            image: The same image.
        """
        id = self._known_id(id)
        with self._unchanged():
            self.seen = id
            return self.predict_one(image)

    def peek(self, image: Any) -> Prediction:
        """What `predict_one` would say of an image now; nothing is changed."""
        with self._unchanged():
            return self.predict_one(image)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """What is predicted inside leaves no trace.

        What the ledger holds is set aside, and kept images are not copied: no prediction writes to them.
        """
        method = self.method.snapshot()
        tensors = {
            name: value if value.dtype == torch.uint8 else value.detach().clone()
            for name, value in method.tensors.items()
        }
        policy = self.policy.state_dict() if self.policy else None
        before, questions = (self.seen, self.ledger), self.questions.values()
        self.ledger = Ledger(0, 0)
        try:
            yield
        finally:
            self.seen, self.ledger = before
            self.questions.restore(questions)
            self.method.restore(Snapshot(tensors, method.values))
            if self.policy and policy is not None:
                self.policy.load_state_dict(policy)

    def learn_one(
        self,
        id: int,
        label: str | int | Answer | None = None,
        *,
        no: str | int | Sequence[str | int] = (),
        none: bool = False,
        expert: str = "",
    ) -> None:
        """Take in an expert's answer: to a question, or about one of the last images nobody asked about.

        A second answer for the same image takes the place of the first, which is undone, unless it follows
        from the first: then it changes nothing. Classes it is said not to be of add up. A label nobody asked
        for takes nothing from the budget.

        Args:
            id: Of the prediction.
            label: The class, by name or index; or an `Answer`.
            no: Instead of a label, a class it is not of, or several.
            none: Instead of a label, that it is of none of the classes.
            expert: Who says so. A method with a head learns how often each one is wrong.
        """
        if isinstance(label, Answer) and label.unknown:
            return self.skip(id)
        if isinstance(label, Answer):
            return self.learn_one(id, label.label, no=label.no, none=label.none, expert=label.expert)
        id, before = self._known_id(id), None
        if id in self.ledger.given:
            before = self.ledger.given[id].answer
        several = tuple(no) if isinstance(no, Sequence) and not isinstance(no, str) else (no,)
        answer = self.resolved(Answer(label, several, none, expert=expert), before)
        if before is not None:
            if answer.follows_from(before):
                return
            self.undo(id)
            refined = before.no and answer.label not in before.no and not answer.none
            self.undone, self.corrected = self.undone - 1, self.corrected + (not refined)
        self.method.learn_answer(id, answer, self.ledger.item(id))
        self.ledger.answer(id, answer)
        self.answered += 1
        self.unasked += not self.ledger.given[id].asked
        self.ledger.shorten([old for old in self.ledger.given if not self.method.remembers(old)])

    def resolved(self, answer: Answer, before: Answer | None = None) -> Answer:
        """An answer with classes by index; what is not of all classes but one is of that one.

        Args:
            answer: With classes by name or index.
            before: What was said of the same image: classes it is not of add up.
        """
        if not isinstance(answer.expert, str):
            raise QueryError(f"The expert is {answer.expert!r}; give a name.")
        if (answer.label is not None) + bool(answer.no) + bool(answer.none) > 1:
            raise QueryError(
                "An image is given a label, or classes it is not of, or none=True: one of these."
            )
        if not answer.no and not answer.none:
            return Answer(self.class_index(answer.label), expert=answer.expert)  # type: ignore[arg-type]
        if not self.method.takes_any_answer:
            raise QueryError(
                f"{self.method_name!r} learns from labels alone; methods with a head, such as "
                "'view_ensemble+', take other answers."
            )
        if answer.none:
            return Answer(none=True, expert=answer.expert)
        out = {self.class_index(each) for each in answer.no} | set(before.no if before else ())
        left = set(range(len(self.classes))) - out
        if not left:
            raise QueryError("It cannot be of no class and one of them; say none=True.")
        if len(left) == 1:
            return Answer(left.pop(), expert=answer.expert)
        return Answer(no=tuple(sorted(out)), expert=answer.expert)  # type: ignore[type-var]

    def skip(self, id: int) -> None:
        """The expert does not know: the question is over, and goes back to the budget.

        One question is given back for each image, while fewer than half of all have been: so at most twice
        as many are put as the budget says, however often nobody knows. Of a budget in seconds nothing is
        given back: the time is spent. The image may still be given a label while it is among the `recent`
        ones.

        Args:
            id: Of the prediction that asked.
        """
        id = self._known_id(id)
        if id not in self.ledger.pending:
            raise QueryError(f"Sample {id} has no open question that could be skipped.")
        assert self.policy is not None
        back = 2 * self.given_back < self.asked
        self.policy.asked -= back * self.questions.share(self.ledger.kind(id))
        self.ledger.skip(id, back)
        self.skipped, self.given_back = self.skipped + 1, self.given_back + back

    def undo(self, id: int) -> str | None:
        """Take an answer back, as if it had never been given; its question, if there was one, is open again.

        A skipped question is open again too, and counts against the budget.

        A label head forgets exactly: later answers are learned anew without this one. So does the labelled
        buffer, but for a sample that was evicted for it and prompts that carried over meanwhile: those stay.

        Args:
            id: Of the prediction.

        Returns:
            The class that had been answered; None where no class was named, or the question was skipped.
        """
        id = self._known_id(id)
        if id in self.ledger.skipped:
            self._unskip(id)
            return None
        given = self.ledger.answered(id)
        label = given.answer.label if isinstance(given.answer.label, int) else -1
        self.method.forget(id, label, given.item)
        self.ledger.take_back(id)
        self.answered, self.undone = self.answered - 1, self.undone + 1
        self.unasked -= not given.asked
        return None if label < 0 else self.classes[label]

    def _unskip(self, id: int) -> None:
        assert self.policy is not None
        back = self.ledger.reopen(id)
        self.policy.asked += back * self.questions.share(self.ledger.kind(id))
        self.skipped, self.given_back = self.skipped - 1, self.given_back - back

    def add_class(self, names: str | Sequence[str]) -> None:
        """Make room for classes that were not known when the stream began; what was learned stays.

        Indices of the other classes stay as they are. Buffered images and a label head's older answers were
        learned without the new classes and say nothing about them; open questions may be answered with them.

        Args:
            names: One name, or several.
        """
        classes = add_classes(self.classes, names)
        method = find_method(self.method_name).build(self.clip, classes, self.settings, self.seed)
        method.grow(self.method)
        policy = self._make_policy(len(classes))
        if self.policy and policy:
            policy.load_state_dict(self.policy.state_dict())
        questions = self._make_questions(len(classes))
        questions.restore(self.questions.values())
        self.method, self.policy, self.classes, self.questions = method, policy, classes, questions

    def class_index(self, label: str | int) -> int:
        """Index of a class given by name or index."""
        return class_index(self.classes, label)

    def summary(self) -> dict[str, Any]:
        """Counts so far, as plain values."""
        counts: dict[str, Any] = {
            "seen": self.seen,
            "asked": self.asked,
            "answered": self.answered,
            "unasked": self.unasked,
            "pending": len(self.ledger.pending),
            "skipped": self.skipped,
            "given_back": self.given_back,
            "undone": self.undone,
            "corrected": self.corrected,
        }
        if self.policy:
            counts["skipped_entropies"] = self.policy.skipped
            counts["questions"] = dict(self.questions.counts)
            counts["spent"] = round(self.policy.asked, 3)  # of the budget: a yes or no is less than one,
            counts["is_it_share"] = round(self.questions.share("is_it"), 3)  # this much of one
            counts["seconds"] = round(self.questions.spent, 1)
        found = counts | self.method.summary()
        return found | {"notes": self._notes() + found.get("notes", [])}

    def _notes(self) -> list[str]:
        """What a person should be told, in sentences."""
        notes = []
        if self.corrected:
            notes.append(f"Answers that contradicted an earlier one for the same image: {self.corrected}.")
        if self.undone:
            notes.append(f"Answers that were taken back: {self.undone}.")
        spent = self.questions.choose(np.ones(1)) is None
        if spent:
            notes.append(f"The {self.questions.total:g} seconds of the expert's time are spent.")
        if isinstance(self.settings, Asking) and self.policy and self.seen >= ENOUGH and not spent:
            wanted = self.settings.rate * self.seen
            # Neither too few questions, whatever each takes of the budget, nor more than it allows.
            had = min(self.asked, max(self.policy.asked, wanted))
            if abs(had - wanted) > max(wanted / 2, MOST_OWED) and self.settings.budget in ("soft", "hard"):
                notes.append(
                    f"{had / self.seen:.1%} of the {self.seen} images were asked about, not "
                    f'{self.settings.rate:.1%}; policy="paced" keeps to the rate.'
                )
        return notes

    def state_dict(self) -> dict[str, Any]:
        """The whole state: `tensors` by name, and `values` that JSON can hold."""
        snapshot = self.method.snapshot()
        tensors = with_prefix("method.", snapshot.tensors) | self.ledger.tensors()
        values = {
            "method": self.method_name,
            "classes": list(self.classes),
            "seed": self.seed,
            **{name: getattr(self, name) for name in COUNTS},
            **self.ledger.values(),
            "counts": [self.skipped, self.given_back],
            "policy": self.policy.state_dict() if self.policy else None,
            "questions": self.questions.values(),
            "state": snapshot.values,
            "model": self.clip.fingerprint,
        }
        return {
            "tensors": {name: tensor.detach().clone() for name, tensor in tensors.items()},
            "values": values,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state: the same bits follow as if the stream had never stopped.

        A state that does not fit is refused, and the learner stays as it was.
        """
        values, tensors = state["values"], state["tensors"]
        for name, mine in (
            ("method", self.method_name),
            ("classes", list(self.classes)),
            ("model", self.clip.fingerprint),
        ):
            if values[name] != mine:
                raise StateError(
                    f"The saved state has another {name} than this learner; "
                    "make the learner with `Learner.load`."
                )
        ledger = self.ledger.restored(values, tensors, self.clip.device)
        before = self.method.snapshot()
        try:
            self.method.restore(Snapshot(without_prefix("method.", tensors), values["state"]))
            if self.policy and values["policy"] is not None:
                self.policy.load_state_dict(values["policy"])
        except Exception:
            self.method.restore(before)
            raise
        self.seed = values["seed"]
        for name in COUNTS:
            setattr(self, name, values[name])
        self.skipped, self.given_back = values["counts"]
        self.questions.restore(values["questions"])
        self.ledger = ledger

    def save(self, directory: str | Path, extra: dict[str, Any] | None = None) -> None:
        """Write the state, the settings and the name of the model; the model itself is not copied.

        The state saved there before is kept, and taken by `load` where the newer one is damaged.

        Args:
            directory: Where to.
            extra: Plain values to be saved in the same step; `checkpoint.read` gives them back.
        """
        checkpoint.save(Path(directory), self.state_dict(), self._given(), self.clip, extra)

    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        """A learner in the same state that goes its own way; both share the frozen model."""
        state = self.state_dict()
        settings = checkpoint.with_prompts(self._given(), state, self.clip)
        return self._in_state(self.clip, settings, state)

    def _given(self) -> dict[str, Any]:
        return {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}

    @classmethod
    def load(cls, directory: str | Path, clip: Clip | None = None) -> Learner:
        """Read what `save` wrote.

        Args:
            directory: Where it was saved.
            clip: The model; loaded again from where it came from when not given.
        """
        try:
            return cls.from_saved(checkpoint.read(Path(directory)), clip)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"The learner saved in {directory} is damaged ({error!r}).") from error

    @classmethod
    def from_saved(cls, saved: checkpoint.Saved, clip: Clip | None = None) -> Learner:
        """The learner that `checkpoint.read` found."""
        clip = clip or saved.load_clip()
        return cls._in_state(clip, saved.settings(clip), saved.state)

    @classmethod
    def _in_state(cls, clip: Clip, settings: dict[str, Any], state: dict[str, Any]) -> Learner:
        values = state["values"]
        learner = cls(
            clip,
            values["classes"],
            values["method"],
            seed=values["seed"],
            allow_duplicates=True,  # they were checked when the stream began
            **settings,
        )
        learner.load_state_dict(state)
        return learner

    def _make_policy(self, classes: int) -> Policy | None:
        if not self.method.asks:
            return None
        settings = self.settings
        if not isinstance(settings, Asking):
            raise SettingsError(
                f"{self.method_name!r} asks, but its settings are no `Asking` ones; add them."
            )
        given = {name: getattr(settings, name) for name in POLICY_FIELDS}
        return make_policy(settings.policy, seed=self.seed, classes=classes, **given)

    def _make_questions(self, classes: int) -> Questions:
        given = self.settings
        which = given.which_seconds or which_seconds(classes)
        kinds = given.questions or ("both" if given.budget_seconds else "which")
        return Questions(kinds, {"which": which, "is_it": given.is_it_seconds}, given.budget_seconds)

    def _known_id(self, given: object) -> int:
        """The id of an image seen; a plain number, whatever kind was given."""
        id = whole_number(given)
        if id is None or not 0 <= id < self.seen:
            raise QueryError(
                f"There is no sample {given!r}; ids come from `predict_one`, {self.seen} so far."
            )
        return id


TOGETHER = 64  # images of a backlog that are looked at before the first of them is predicted
VIEWED = 4  # images whose views are made at once; meanwhile the host draws the next ones' crops


def predict_together(images: Sequence[tuple[Learner, Any]]) -> list[Prediction]:
    """The predictions of images of several learners, each image with its learner; what can is done at once.

    A learner may have several: it predicts them in the order given. Where an image cannot be decoded,
    `ImageError` is raised and every learner is as it was.
    """
    began = time.perf_counter()
    found: list[Prediction] = []
    decoded: Iterator[PixelArray] = (load_image(image, copy=False) for _, image in images)
    while len(found) < len(images):
        learners = [learner for learner, _ in images[len(found) : len(found) + TOGETHER]]
        predict = look_together(_look_at(learners, decoded))
        decoded = iter([*decoded])  # while a GPU computes; only when all could be is something concluded
        found += [learner._conclude(one(), began) for learner, one in zip(learners, predict, strict=True)]
    seconds = (time.perf_counter() - began) / max(1, len(found))
    return [replace(each, seconds=seconds) for each in found]


def _look_at(learners: Sequence[Learner], images: Iterator[PixelArray]) -> Iterator[tuple[Method, Tensor]]:
    """An image for each learner: its method and the views."""
    ids = {id(learner): learner.seen for learner in learners}
    pairs = zip(learners, images, strict=False)
    for settings, alike in groupby(pairs, key=lambda pair: pair[0]._view_settings):
        while part := list(islice(alike, VIEWED)):
            generators = []
            for learner, _ in part:
                generators.append(sample_generator(learner.seed, ids[id(learner)]))
                ids[id(learner)] += 1
            made = make_views_of([pixels for _, pixels in part], generators, **settings)
            yield from zip((learner.method for learner, _ in part), made, strict=True)
