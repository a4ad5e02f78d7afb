"""The learner: `predict_one` takes an image, `learn_one` an answer, as in river."""

from __future__ import annotations

import copy
import functools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from taps.asking.accuracy import RunningAccuracy
from taps.asking.base import Decision, Policy, check_count
from taps.asking.paced import MOST_OWED
from taps.asking.policy import make_policy
from taps.asking.question import Questions, class_seconds
from taps.default import METHOD
from taps.errors import QueryError, SettingsError, StateError, TapsError
from taps.learner import checkpoint
from taps.learner.answers import normalise_answer
from taps.learner.pending import PendingQueries
from taps.learner.prepared import DrawnImage, KnownImage, ViewedImage
from taps.learning.fast.warm_up import try_tower_kernels
from taps.methods import BatchedMethod, Method, MethodOutput, Snapshot
from taps.methods.base import predict_batch, with_prefix, without_prefix
from taps.methods.registry import chosen_method, find_method
from taps.methods.settings import Asking, Settings, TextSettings
from taps.model.clip import Clip
from taps.model.images.decode import load_image
from taps.model.images.views import make_views, make_views_of, sample_generator
from taps.model.prompts.classes import add_classes, check_classes, class_index, whole_number
from taps.model.prompts.texts import SENTENCE, class_texts, list_templates, read_texts
from taps.saved import check_plain, maybe, whole
from taps.types import Answer, FloatArray, PixelArray, Prediction

F = TypeVar("F", bound=Callable[..., Any])
SEEDS = 10**12  # the largest; some methods make others of it by multiplying
ENOUGH = 100  # images before a note says that the rate is missed
PARTS = ("queries", "method", "policy")  # not offered by tab completion
COUNTS = ("seen", "answered", "unasked", "undone", "corrected")  # saved under their own names
POLICY_FIELDS = ("rate", "warmup", "tau0", "tau0_relative", "switch_at", "budget", "pace")


def check_seed(seed: int) -> int:
    plain = whole_number(seed)
    if plain is None or not 0 <= plain <= SEEDS:
        raise SettingsError(f"The seed is {seed!r}; it must be a whole number from 0 to {SEEDS}.")
    return plain


def in_turn(method: F) -> F:
    """A method of a learner that one thread calls at a time; others wait."""

    @functools.wraps(method)
    def locked(self: Learner, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast(F, locked)


class Learner:
    """A classifier of a stream of images that asks for labels and learns from them.

    Several threads may share one: each call waits for the one before it. Streams that need not wait for each
    other take a learner each, with one model.

    Args:
        clip: The frozen model.
        classes: Class names; their order gives the indices. Or an `id2label` mapping.
        method: Which method (`taps methods` lists them); or a settings object of one, such as
            `TapsSettings(lr=1e-3)` of `taps.methods.taps`, whose fields type checkers know.
        seed: Seed of every random choice.
        allow_duplicates: Let two classes have one name, as two pairs of ImageNet's do; answer those by index.
        **settings: Of the method, by name. A misspelt one is refused, by type checkers too; settings of your
            own method pass as a `dict[str, Any]`.

    >>> import numpy as np, taps
    >>> learner = Learner(taps.load_clip("tiny"), ["cat", "dog"], rate=1.0)
    >>> prediction = learner.predict_one(np.zeros((40, 30, 3), np.uint8))
    >>> prediction.ask, prediction.label in learner.classes
    (True, True)
    >>> learner.learn_one(prediction.id, "dog")
    >>> learner
    <Learner view_ensemble+ on tiny, 2 classes: 1 seen, 1 asked, 1 answered>
    """

    def __init__(
        self,
        clip: Clip,
        classes: Sequence[str] | Mapping[int, str],
        method: str | Settings = METHOD,
        *,
        seed: int = 0,
        allow_duplicates: bool = False,
        **settings: Any,
    ) -> None:
        if not isinstance(clip, Clip):
            raise SettingsError(
                f"A learner needs a loaded model, not {clip!r}; use taps.load_clip({str(clip)!r})."
            )
        self.clip = clip
        self.classes = check_classes(classes, allow_duplicates=allow_duplicates)
        self.method_name, given = chosen_method(method, settings)
        self.settings = with_texts(given, self.classes)
        self.seed = check_seed(seed)
        self._turn = threading.RLock()
        try_tower_kernels(clip)
        self.reset()

    @in_turn
    def reset(self) -> None:
        """Forget all images and answers. Classes added later stay.

        >>> import numpy as np, taps
        >>> learner = Learner(taps.load_clip("tiny"), ["cat", "dog"], views=1)
        >>> learner.predict_one(np.zeros((40, 30, 3), np.uint8)).id, learner.seen
        (0, 1)
        >>> learner.reset()
        >>> learner.seen
        0
        """
        self.method = self._make_method(self.classes, self.settings)
        self._tell_method()
        self.expected: int | None = getattr(self.settings, "expected", None)
        self.policy = self._make_policy(len(self.classes), self.expected)
        self.questions = self._make_questions(len(self.classes))
        self.seen = 0
        self.answered = self.unasked = self.undone = self.corrected = 0
        self.skipped = self.given_back = 0  # questions; those of them given back to the budget
        self.accuracy = RunningAccuracy(len(self.classes))
        self.queries = PendingQueries(self.settings.recent if self.method.asks else 0, self.settings.undo)

    def clone(self) -> Learner:
        """A fresh learner of the same model, classes and settings; `copy.deepcopy` copies the state too.

        >>> import taps
        >>> Learner(taps.load_clip("tiny"), ["cat", "dog"], "zero_shot+", rate=0.2).clone().settings.rate
        0.2
        """
        return self._made(self.clip, self.classes, self.method_name, self.seed, self._given())

    def __repr__(self) -> str:
        counts = f"{self.seen:,} seen, {self.asked:,} asked, {self.answered:,} answered"
        return (
            f"<Learner {self.method_name} on {self.clip.config.name}, {len(self.classes)} classes: {counts}>"
        )

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") and name not in PARTS]

    @property
    def order(self) -> str:
        """ "ask_first": an annotator's answer is the prediction; "predict_first": it comes after it."""
        return self.settings.order

    @property
    def asked(self) -> int:
        """Questions put to the annotator, including those given back to the budget."""
        return sum(self.questions.counts.values())

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of the questions that wait for an answer, the oldest first."""
        return tuple(sorted([*self.queries.pending]))  # a copy in one step: another thread may predict

    @property
    def recent(self) -> tuple[int, ...]:
        """Ids of the unqueried images that `learn_one` still takes a label for, the oldest first."""
        return tuple(sorted([*self.queries.recent]))

    @property
    def answered_ids(self) -> tuple[int, ...]:
        """Ids of the images whose answers can be taken back, in the order in which they were given."""
        return tuple(self.queries.given)

    @in_turn
    def predict_one(self, image: Any, *, update: bool = True) -> Prediction:
        """Predict one image and decide at once whether to ask for its label.

        Args:
            image: A path, bytes, a PIL image, or an array; or one of `taps.learner.prepared`. One that cannot
                be decoded raises `ImageError` and changes nothing.
            update: Whether the image becomes the next one of the stream; if not, nothing is changed.

        >>> import numpy as np, taps
        >>> learner = Learner(taps.load_clip("tiny"), ["cat", "dog"], views=1)
        >>> learner.predict_one(np.zeros((40, 30, 3), np.uint8), update=False).id, learner.seen
        (0, 0)
        """
        if not update:
            with self._unchanged():
                return self.predict_one(image)
        if not isinstance(image, KnownImage | ViewedImage | DrawnImage):
            image = DrawnImage(load_image(image, copy=False), self.seed, self.seen)
        began = time.perf_counter()
        if isinstance(image, DrawnImage):
            return self._conclude(self.method.predict(self._views(image)), began)
        began -= image.seconds
        if isinstance(image, KnownImage):
            return self._conclude(image.predicted_by(self.method), began)
        return self._conclude(self.method.predict(image.views), began)

    @in_turn
    def predict_many(self, images: Sequence[Any], *, update: bool = True) -> list[Prediction]:
        """Predict a backlog: `predict_one` of each image in turn, computed together.

        No answer can come in between: where a question should be answered before the next image, call
        `predict_one`. Predictions, questions and the learner's state are those of that loop but for rounding,
        since sums are made in another order; `seconds` is each image's share of the time, decoding included.

        Args:
            images: As for `predict_one`. Where one cannot be decoded, `ImageError` is raised and nothing is
                changed.
            update: As for `predict_one`. If not, each is predicted as the learner's next image.
        """
        pairs = [(self, image) for image in images]
        if update:
            return predict_together(pairs)
        with self._unchanged() as put_back:
            return predict_together(pairs, put_back)

    @in_turn
    def expect(self, images: int) -> None:
        """Say how many images will come, as the setting `expected` does, which goes before it.

        It counts for a learner that has seen none.

        >>> import taps
        >>> learner = Learner(taps.load_clip("tiny"), ["cat", "dog"], "zero_shot+")
        >>> learner.expect(400)
        >>> learner.expected
        400
        """
        if self.expected is None and not self.seen:
            self.expected = check_count("images", images)
            self.policy = self._make_policy(len(self.classes), self.expected)

    @in_turn
    def learn_one(
        self,
        id: int,
        label: str | int | Answer | None = None,
        *,
        no: str | int | Sequence[str | int] = (),
        none: bool = False,
        annotator: str = "",
    ) -> None:
        """Learn from an annotator's answer: to a question, or about one of the `recent` images.

        A second answer for the same image replaces the first, unless it follows from the first: then it
        changes nothing. Excluded classes (`no`) add up. An answer without a question takes nothing from the
        budget.

        Args:
            id: Of the prediction.
            label: The class, by name or index; or an `Answer`.
            no: Instead of a label, a class it is not of, or several.
            none: Instead of a label, that it is of none of the classes.
            annotator: Who answers. A method with a head learns how often each annotator is wrong.
        """
        if isinstance(label, Answer) and label.unknown:
            return self.skip(id)
        id, before = self._known_id(id), None
        if id in self.queries.given:
            before = self.queries.given[id].answer
        given = label if isinstance(label, Answer) else Answer(label, no, none, annotator=annotator)  # type: ignore[arg-type]
        no = given.no
        several = tuple(no) if isinstance(no, Sequence | np.ndarray) and not isinstance(no, str) else (no,)
        given = replace(given, no=several)
        labels_only = None if self.method.takes_any_answer else self.method_name
        answer = normalise_answer(given, self.classes, before, labels_only=labels_only)
        if before is not None:
            if answer.follows_from(before):
                return
            self.undo(id)
            refined = before.no and answer.label not in before.no and not answer.none
            self.undone, self.corrected = self.undone - 1, self.corrected + (not refined)
        self.method.learn_answer(id, answer, self.queries.item(id))
        self.queries.answer(id, answer)
        self.accuracy.answer(id, answer)
        if isinstance(answer.label, int):
            self.policy.answer(answer.label)
        self.answered += 1
        self.unasked += not self.queries.given[id].asked
        self.queries.shorten([old for old in self.queries.given if not self.method.remembers(old)])

    @in_turn
    def ask(self, id: int, drawn: bool = False) -> None:
        """Ask about one of the `recent` images; it counts as a question.

        Args:
            id: Of the prediction.
            drawn: Whether it was drawn at random among all of them. Only such answers count for the estimate
                of the accuracy (`summary`).
        """
        id = self._known_id(id)
        if id not in self.queries.recent or id in self.queries.skipped:
            raise QueryError(f"Sample {id} is not among the images that may still be asked about.")
        if drawn and (probs := self.method.predict_kept(self.queries.item(id))) is not None:
            self.accuracy.sample(id, int(probs.argmax()), len(self.queries.recent))
        self.queries.ask(id)
        self.policy.asked += self.questions.put("class")

    @in_turn
    def skip(self, id: int) -> None:
        """The annotator does not know: the question is closed and given back to the budget.

        At most half of all questions are given back, so at most twice as many are put as the budget allows.
        Of a budget in seconds nothing is given back: the time is spent. The image takes a label while it is
        among the `recent` ones.
        """
        id = self._known_id(id)
        if id not in self.queries.pending:
            raise QueryError(f"Sample {id} has no open question that could be skipped.")
        back = 2 * self.given_back < self.asked
        self.policy.asked -= back * self.questions.share(self.queries.kind(id))
        self.queries.skip(id, back)
        self.skipped, self.given_back = self.skipped + 1, self.given_back + back

    @in_turn
    def undo(self, id: int) -> str | None:
        """Take an answer back, as if it had never been given; its question, if there was one, is open again.

        A skipped question is open again too, and counts against the budget. A label head forgets exactly:
        later answers are learned anew without this one. So does the labelled buffer, but for a sample that
        was evicted for it and prompts that carried over meanwhile: those stay.

        Returns:
            The class that had been answered; None where no class was named, or the question was skipped.
        """
        id = self._known_id(id)
        if id in self.queries.skipped:
            back = self.queries.reopen(id)
            self.policy.asked += back * self.questions.share(self.queries.kind(id))
            self.skipped, self.given_back = self.skipped - 1, self.given_back - back
            return None
        given = self.queries.answered(id)
        label = given.answer.label if isinstance(given.answer.label, int) else -1
        self.method.forget(id, label, given.item)
        self.queries.take_back(id)
        self.accuracy.answer(id, None)
        self.answered, self.undone = self.answered - 1, self.undone + 1
        self.unasked -= not given.asked
        return None if label < 0 else self.classes[label]

    @in_turn
    def add_class(self, names: str | Sequence[str]) -> None:
        """Add a class, or several, by name; what was learned and the indices of the other classes stay.

        Buffered images and a label head's older answers were learned without the new classes and say nothing
        about them; open questions may be answered with them.
        """
        classes = add_classes(self.classes, names)
        settings = with_texts(self.settings, classes, added=len(self.classes))
        method = self._make_method(classes, settings)
        method.grow(self.method)
        policy = self._make_policy(len(classes), self.expected)
        policy.load_state_dict(self.policy.state_dict())
        self.accuracy.grow(len(classes))
        questions = self._make_questions(len(classes))
        questions.restore(self.questions.values())
        self.method, self.policy, self.classes, self.questions = method, policy, classes, questions
        self._tell_method()
        self.settings = settings

    def class_index(self, label: str | int) -> int:
        """Index of a class given by name or index."""
        return class_index(self.classes, label)

    @in_turn
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
        if self.method.asks:
            counts["skipped_entropies"] = self.policy.skipped
            counts["questions"] = dict(self.questions.counts)
            counts["spent"] = round(self.policy.asked, 3)  # of the budget: a yes or no is less than one,
            counts["yes_no_share"] = round(self.questions.share("yes_no"), 3)  # this much of one
            counts["seconds"] = round(self.questions.spent, 1)
            counts["accuracy"] = self.accuracy.summary(self.classes)
            ahead = self.accuracy.forecast(self.answered)
            counts["forecast"] = None if ahead is None else ahead.plain()
        found = counts | self.method.summary()
        return found | {"notes": self._notes() + found.get("notes", [])}

    @in_turn
    def repredict(self, id: int, image: Any) -> Prediction:
        """Predict an image again, with the views it had at prediction `id`; nothing is changed."""
        id = self._known_id(id)
        with self._unchanged():
            self.seen = id
            return self.predict_one(image)

    @in_turn
    def repredict_kept(self, ids: Iterable[int]) -> dict[int, FloatArray]:
        """Predict `pending` and `recent` images again, from what is kept of them; nothing is changed.

        Quick, as only a head's share is computed. Other images are left out, and so are all images of methods
        that have to encode an image again (`repredict`).
        """
        kept = {id: item for id in ids if (item := self.queries.kept(id)) is not None}
        probs = {id: self.method.predict_kept(item) for id, item in kept.items()}
        return {id: found for id, found in probs.items() if found is not None}

    @in_turn
    def wanted_kept(self, ids: Iterable[int]) -> dict[int, float]:
        """Acquisition scores of some `recent` images: the highest is the one to `ask` about next.

        A method with a head compares them with each other and with those that are answered or asked about.
        Other methods give none. Nothing is changed.
        """
        kept = {id: item for id in ids if (item := self.queries.recent.get(id)) is not None}
        scores = self.method.wanted_kept(list(kept.values()), list(self.queries.pending.values()))
        return {} if scores is None else dict(zip(kept, scores.tolist(), strict=True))

    def view_one(self, image: Any, number: int) -> ViewedImage:
        """Make the views of an image before its turn; `predict_one` takes the result.

        Views depend on no answer, so any thread may call this while another predicts and learns; on a CPU,
        since the thread that predicts has the GPU to itself. `number` images come before this one.
        """
        pixels = load_image(image, copy=False)
        began = time.perf_counter()
        views = self._views(DrawnImage(pixels, self.seed, number))
        return ViewedImage(time.perf_counter() - began, views, number)

    def encode_one(self, image: ViewedImage) -> KnownImage | ViewedImage:
        """Encode an image of `view_one` before its turn, in any thread; `predict_one` takes the result.

        Where the method needs more than features, the image is given back.
        """
        method = self.method
        if not (isinstance(method, BatchedMethod) and method.needs_features_only):
            return image
        began = time.perf_counter() - image.seconds
        (features,) = method.encode_batch([method], [image.views])
        return KnownImage(time.perf_counter() - began, features, number=image.number)

    @in_turn
    def state_dict(self) -> dict[str, Any]:
        """The whole state: `tensors` by name, and `values` that JSON can hold."""
        snapshot = self.method.snapshot()
        tensors = with_prefix("method.", snapshot.tensors) | self.queries.tensors()
        values = {
            "method": self.method_name,
            "classes": list(self.classes),
            "seed": self.seed,
            "expected": self.expected,
            **{name: getattr(self, name) for name in COUNTS},
            **self.queries.values(),
            "counts": [self.skipped, self.given_back],
            "policy": self.policy.state_dict() if self.method.asks else None,
            "questions": self.questions.values(),
            "accuracy": self.accuracy.values(),
            "state": snapshot.values,
            "model": self.clip.fingerprint,
        }
        return {
            "tensors": {name: tensor.detach().clone() for name, tensor in tensors.items()},
            "values": values,
        }

    @in_turn
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, to the same bits as if the stream had never stopped.

        A state that does not fit is refused with `StateError`, and the learner stays as it was.
        """
        try:
            self._go_on_from(state["values"], state["tensors"])
        except TapsError:
            raise
        except Exception as error:
            raise StateError(f"The saved state is damaged ({error!r}).") from error

    def _go_on_from(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
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
        counts = dict.fromkeys(COUNTS, whole())
        check_plain(values, counts | {"seed": whole(), "counts": (whole(), whole())}, "learner")
        queries = self.queries.restored(values, tensors, self.clip.device)
        for item in queries.items():
            self.method.check_item(item)
        for id, record in queries.given.items():
            queries.given[id] = replace(record, answer=normalise_answer(record.answer, self.classes))
        expected = values.get("expected", self.expected)  # not saved by an older version
        check_plain(expected, maybe(whole()), "learner.expected")
        # Of the method alone there is no second one: the others are restored first.
        policy = self._make_policy(len(self.classes), expected)
        questions = self._make_questions(len(self.classes))
        if self.method.asks:
            policy.load_state_dict(values["policy"])
        questions.restore(values["questions"])
        accuracy = RunningAccuracy(len(self.classes))
        accuracy.restore(values["accuracy"])
        snapshot = Snapshot(without_prefix("method.", tensors), values["state"])
        before = self.method.snapshot()
        try:
            self.method.restore(snapshot)
            self.method.check(snapshot)
        except Exception:
            self.method.restore(before)
            raise
        self.seed = policy.seed = values["seed"]
        self.expected = expected
        for name in COUNTS:
            setattr(self, name, values[name])
        self.skipped, self.given_back = values["counts"]
        self.policy, self.questions, self.accuracy, self.queries = policy, questions, accuracy, queries

    @in_turn
    def save(self, directory: str | Path, extra: dict[str, Any] | None = None) -> None:
        """Write the state, the settings and the name of the model; the model itself is not copied.

        The state saved there before is kept, and taken by `load` where the newer one is damaged. `extra` are
        plain values to save in the same step; `checkpoint.read` gives them back.
        """
        checkpoint.save(Path(directory), self.state_dict(), self._given(), self.clip, extra)

    @classmethod
    def load(cls, directory: str | Path, clip: Clip | None = None) -> Learner:
        """Read what `save` wrote; the model is loaded from where it came from unless given."""
        try:
            return restored(checkpoint.read(Path(directory)), clip, cls)
        except TapsError:
            raise
        except Exception as error:
            raise StateError(f"The learner saved in {directory} is damaged ({error!r}).") from error

    save_pretrained = save
    from_pretrained = load

    @in_turn
    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        """A learner in the same state; both share the frozen model."""
        state = self.state_dict()
        return self._in_state(state, checkpoint.with_prompts(self._given(), state, self.clip), self.clip)

    def _views(self, image: DrawnImage) -> Tensor:
        """The views of an image, pixels 0..255; view 0 is the image itself."""
        generator = sample_generator(image.seed, image.number)
        return make_views(image.pixels, generator=generator, **self._view_settings)

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
        entropy = float(output.entropy)  # plain numbers, whatever kind a method gives: they are written down
        score = entropy if output.score is None else float(output.score)
        decision, question = self._decide(probs, score)
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

    def _decide(self, probs: FloatArray, score: float) -> tuple[Decision, str]:
        """Whether to ask about an image, and which kind of question; a question is counted as put."""
        kind = self.questions.choose(probs)
        decision = self.policy.decide(score, allowed=kind is not None)
        if kind is not None and decision.ask:
            self.policy.asked -= 1 - self.questions.put(kind)  # `decide` has counted a whole one
        return decision, kind or "class"

    def _tell_method(self) -> None:
        """Let a method that does not learn from queried images know which these are going to be."""
        if not getattr(self.settings, "update_queried", True):
            self.method.will_ask = self._will_ask

    def _will_ask(self, entropy: float) -> bool:
        """What `_decide` is going to say of an image of this entropy, for methods that are asked by it."""
        return copy.deepcopy(self.policy).decide(entropy).ask

    @contextmanager
    def _unchanged(self) -> Iterator[Callable[[], None]]:
        """Predictions inside change nothing; yields a function that restores the state at once.

        `queries` is set aside, and kept images are not copied: no prediction writes to them.
        """
        method, policy = _copied(self.method.snapshot()), self.policy.state_dict()
        seen, queries, questions = self.seen, self.queries, self.questions.values()
        accuracy, self.accuracy = self.accuracy, RunningAccuracy(len(self.classes))
        self.queries = PendingQueries(0, 0)

        def put_back() -> None:
            self.seen = seen
            self.questions.restore(questions)
            self.method.restore(_copied(method))
            self.policy.load_state_dict(policy)

        try:
            yield put_back
        finally:
            self.queries, self.accuracy = queries, accuracy
            put_back()

    def _notes(self) -> list[str]:
        """Sentences for the user."""
        notes = []
        if self.corrected:
            notes.append(f"Answers that contradicted an earlier one for the same image: {self.corrected}.")
        if self.undone:
            notes.append(f"Answers that were taken back: {self.undone}.")
        spent = self.questions.choose(np.ones(1)) is None
        if spent:
            notes.append(f"The {self.questions.total:g} seconds of the annotator's time are spent.")
        if isinstance(self.settings, Asking) and self.method.asks and self.seen >= ENOUGH and not spent:
            wanted = self.settings.rate * self.seen
            early = self.policy.ahead
            # Neither too few questions, whatever each takes of the budget, nor more than it allows.
            had = min(self.asked, max(self.policy.asked, wanted))
            steered = self.settings.budget in ("soft", "hard") and not early
            if steered and abs(had - wanted) > max(wanted / 2, MOST_OWED):
                notes.append(
                    f"{had / self.seen:.1%} of the {self.seen} images were asked about, not "
                    f'{self.settings.rate:.1%}; policy="paced" keeps to the rate.'
                )
        return notes

    def _known_id(self, given: object) -> int:
        """The id of an image seen; a plain number, whatever kind was given."""
        id = whole_number(given)
        if id is None or not 0 <= id < self.seen:
            raise QueryError(f"Unknown sample {given!r}; ids come from `predict_one`, {self.seen} so far.")
        return id

    def _make_method(self, classes: tuple[str, ...], settings: Settings) -> Method:
        try:
            return find_method(self.method_name).build(self.clip, classes, settings, self.seed)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not re.search("alloc|overflow", str(error)):
                raise
            why = str(error).partition("\n")[0]
            raise SettingsError(
                f"There is too little memory for {self.method_name} with these settings; choose smaller ones "
                f"({why})."
            ) from error

    def _make_policy(self, classes: int, expected: int | None) -> Policy:
        if not self.method.asks:
            return Policy(threshold=math.inf)  # never asks
        settings = self.settings
        if not isinstance(settings, Asking):
            raise SettingsError(
                f"{self.method_name!r} asks, but its settings are no `Asking` ones; add them."
            )
        given = {name: getattr(settings, name) for name in POLICY_FIELDS} | {"expected": expected}
        explore = getattr(settings, "explore", 0.0)
        return make_policy(settings.policy, seed=self.seed, classes=classes, explore=explore, **given)

    def _make_questions(self, classes: int) -> Questions:
        given = self.settings
        which = given.class_seconds or class_seconds(classes)
        kinds = given.questions or ("both" if given.budget_seconds else "class")
        return Questions(kinds, {"class": which, "yes_no": given.yes_no_seconds}, given.budget_seconds)

    def _given(self) -> dict[str, Any]:
        return {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}

    @classmethod
    def _in_state(cls, state: dict[str, Any], settings: dict[str, Any], clip: Clip) -> Learner:
        values = state["values"]
        learner = cls._made(clip, values["classes"], values["method"], values["seed"], settings)
        learner.load_state_dict(state)
        return learner

    @classmethod
    def _made(
        cls, clip: Clip, classes: Sequence[str], method: str, seed: int, settings: dict[str, Any]
    ) -> Learner:
        # Duplicate class names were allowed or refused when the stream began.
        return cls(clip, classes, method, seed=seed, allow_duplicates=True, **settings)


def with_texts(settings: Settings, classes: tuple[str, ...], added: int | None = None) -> Settings:
    """Settings that hold the sentences of the classes themselves: a saved learner needs no file of them.

    Classes from index `added` on were added later: their names are put into the template.
    """
    if not isinstance(settings, TextSettings) or settings.texts is None:
        return settings
    found = read_texts(settings.texts, classes[:added]) or {}
    new = classes[len(classes) if added is None else added :]
    plain = [each for each in list_templates(settings.template) if SENTENCE not in each]
    made = zip(new, class_texts(new, plain or None), strict=True)
    return replace(settings, texts=found | dict(made))


def restored(saved: checkpoint.Saved, clip: Clip | None = None, kind: type[Learner] = Learner) -> Learner:
    """The learner of a saved state; its model is loaded from where it came from unless given."""
    clip = clip or saved.load_clip()
    return kind._in_state(saved.state, saved.settings(clip), clip)


def _copied(method: Snapshot) -> Snapshot:
    """A state that nothing is written to later; kept images are not copied."""
    tensors = {
        name: value if value.dtype == torch.uint8 else value.detach().clone()
        for name, value in method.tensors.items()
    }
    return Snapshot(tensors, method.values)


TOGETHER = 64  # images of a backlog that are looked at before the first of them is predicted
VIEWED = 4  # images whose views are made at once; meanwhile the host draws the next ones' crops


def predict_together(
    images: Sequence[tuple[Learner, Any]], put_back: Callable[[], None] | None = None
) -> list[Prediction]:
    """Predict images of several learners in one batch, each image given with its learner.

    A learner may have several: it predicts them in the order given. Where an image cannot be decoded,
    `ImageError` is raised and no learner is changed. `put_back` is called after each image; where it is
    given, each is predicted as the learner's next one.
    """
    with ExitStack() as turns:
        for learner in sorted({learner for learner, _ in images}, key=id):  # in one order for every thread
            turns.enter_context(learner._turn)
        return _predict_together(images, put_back)


def _predict_together(
    images: Sequence[tuple[Learner, Any]], put_back: Callable[[], None] | None
) -> list[Prediction]:
    began = time.perf_counter()
    found: list[Prediction] = []
    decoded: Iterator[PixelArray] = (load_image(image, copy=False) for _, image in images)
    while len(found) < len(images):
        learners = [learner for learner, _ in images[len(found) : len(found) + TOGETHER]]
        predict = predict_batch(_look_at(learners, decoded, step=int(put_back is None)))
        decoded = iter([*decoded])  # while a GPU computes; only when all could be is something concluded
        for learner, one in zip(learners, predict, strict=True):
            found.append(learner._conclude(one(), began))
            if put_back is not None:
                put_back()
    seconds = (time.perf_counter() - began) / max(1, len(found))
    return [replace(each, seconds=seconds) for each in found]


def _look_at(
    learners: Sequence[Learner], images: Iterator[PixelArray], step: int
) -> Iterator[tuple[Method, Tensor]]:
    """An image for each learner: its method and the views; `step` from the id of one image to the next."""
    ids = {id(learner): learner.seen for learner in learners}
    pairs = zip(learners, images, strict=False)
    for settings, alike in groupby(pairs, key=lambda pair: pair[0]._view_settings):
        while part := list(islice(alike, VIEWED)):
            generators = []
            for learner, _ in part:
                generators.append(sample_generator(learner.seed, ids[id(learner)]))
                ids[id(learner)] += step
            made = make_views_of([pixels for _, pixels in part], generators, **settings)
            yield from zip((learner.method for learner, _ in part), made, strict=True)
