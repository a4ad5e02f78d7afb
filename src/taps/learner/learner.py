"""The learner: `predict_one` takes an image, `learn_one` an answer, as in river."""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from taps.default import METHOD
from taps.errors import SettingsError, StateError, TapsError
from taps.learner import checkpoint
from taps.learner.answers import normalise_answer
from taps.learner.desk import Desk
from taps.learner.prepared import DrawnImage, KnownImage, ViewedImage
from taps.learner.together import predict_together
from taps.learning.fast.warm_up import try_tower_kernels
from taps.methods import BatchedMethod, Method, MethodOutput, Snapshot
from taps.methods.base import with_prefix, without_prefix
from taps.methods.registry import chosen_method, find_method
from taps.methods.settings import Asking, Settings, TextSettings
from taps.model.clip import Clip, load_clip
from taps.model.images.decode import load_image
from taps.model.images.views import make_views, sample_generator
from taps.model.prompts.classes import add_classes, check_classes, class_index, whole_number
from taps.model.prompts.texts import SENTENCE, class_texts, list_templates, read_texts
from taps.types import Answer, FloatArray, Prediction

F = TypeVar("F", bound=Callable[..., Any])
SEEDS = 10**12  # the largest; some methods make others of it by multiplying
PARTS = ("desk", "method")  # not offered by tab completion


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
        clip: The frozen model, or its name: "pocket", or what else `taps.load_clip` takes.
        classes: Class names; their order gives the indices. Or an `id2label` mapping.
        method: Which method (`taps methods` lists them); or a settings object of one, such as
            `TapsSettings(lr=1e-3)` of `taps.methods.taps`, whose fields type checkers know.
        seed: Seed of every random choice.
        allow_duplicates: Let two classes have one name, as two pairs of ImageNet's do; answer those by index.
        **settings: Of the method, by name. A misspelt one is refused, by type checkers too; settings of your
            own method pass as a `dict[str, Any]`.

    >>> import numpy as np, taps
    >>> learner = Learner("tiny", ["cat", "dog"], rate=1.0)
    >>> prediction = learner.predict_one(np.zeros((40, 30, 3), np.uint8))
    >>> prediction.ask, prediction.label in learner.classes
    (True, True)
    >>> learner.learn_one(prediction.id, "dog")
    >>> learner
    <Learner view_ensemble+ on tiny, 2 classes: 1 seen, 1 asked, 1 answered>
    """

    def __init__(
        self,
        clip: Clip | str,
        classes: Sequence[str] | Mapping[int, str],
        method: str | Settings = METHOD,
        *,
        seed: int = 0,
        allow_duplicates: bool = False,
        **settings: Any,
    ) -> None:
        self.clip = load_clip(clip) if isinstance(clip, str) else clip
        if not isinstance(self.clip, Clip):
            raise SettingsError(
                f"The model of a learner is {clip!r}; give a name such as 'pocket', or a Clip."
            )
        self.classes = check_classes(classes, allow_duplicates=allow_duplicates)
        self.method_name, given = chosen_method(method, settings)
        self.settings = with_texts(given, self.classes)
        self.seed = check_seed(seed)
        self._turn = threading.RLock()
        try_tower_kernels(self.clip)
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
        self.desk = Desk(self.settings, self.classes, self.seed, asks=self.method.asks)

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
    def seen(self) -> int:
        """Images so far."""
        return self.desk.seen

    @property
    def asked(self) -> int:
        """Questions put to the annotator, including those given back to the budget."""
        return self.desk.asked

    @property
    def answered(self) -> int:
        """Images that have an answer."""
        return self.desk.answered

    @property
    def expected(self) -> int | None:
        """How many images will come; None where nobody said (`expect`)."""
        return self.desk.expected

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of the questions that wait for an answer, the oldest first."""
        return tuple(sorted([*self.desk.queries.pending]))  # a copy in one step: another thread may predict

    @property
    def recent(self) -> tuple[int, ...]:
        """Ids of the unqueried images that `learn_one` still takes a label for, the oldest first."""
        return tuple(sorted([*self.desk.queries.recent]))

    @property
    def answered_ids(self) -> tuple[int, ...]:
        """Ids of the images whose answers can be taken back, in the order in which they were given."""
        return tuple(self.desk.queries.given)

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
        began = time.perf_counter() - (0.0 if isinstance(image, DrawnImage) else image.seconds)
        return self.desk.conclude(self._predicted(image), began)

    def _predicted(self, image: DrawnImage | ViewedImage | KnownImage) -> MethodOutput:
        if isinstance(image, KnownImage):
            return image.predicted_by(self.method)
        return self.method.predict(image.views if isinstance(image, ViewedImage) else self._views(image))

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
        self.desk.expect(images)

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
        id = self.desk.known_id(id)
        before = self.desk.earlier(id)
        given = label if isinstance(label, Answer) else Answer(label, no, none, annotator=annotator)  # type: ignore[arg-type]
        labels_only = None if self.method.takes_any_answer else self.method_name
        answer = normalise_answer(given, self.classes, before, labels_only=labels_only)
        if before is not None:
            if answer.follows_from(before):
                return
            self.undo(id)
            self.desk.replaced(before, answer)
        self.method.learn_answer(id, answer, self.desk.queries.item(id))
        self.desk.take(id, answer)
        queries = self.desk.queries
        queries.shorten([old for old in queries.given if not self.method.remembers(old)])

    @in_turn
    def ask(self, id: int, drawn: bool = False) -> None:
        """Ask about one of the `recent` images; it counts as a question.

        Args:
            id: Of the prediction.
            drawn: Whether it was drawn at random among all of them. Only such answers count for the estimate
                of the accuracy (`summary`).
        """
        id = self.desk.known_id(id)
        self.desk.check_may_ask(id)
        queries = self.desk.queries
        if drawn and (probs := self.method.predict_kept(queries.item(id))) is not None:
            self.desk.accuracy.sample(id, int(probs.argmax()), len(queries.recent))
        self.desk.ask(id)

    @in_turn
    def skip(self, id: int) -> None:
        """The annotator does not know: the question is closed and given back to the budget.

        At most half of all questions are given back, so at most twice as many are put as the budget allows.
        Of a budget in seconds nothing is given back: the time is spent. The image takes a label while it is
        among the `recent` ones.
        """
        self.desk.skip(self.desk.known_id(id))

    @in_turn
    def undo(self, id: int) -> str | None:
        """Take an answer back, as if it had never been given; its question, if there was one, is open again.

        A skipped question is open again too, and counts against the budget. A label head forgets exactly:
        later answers are learned anew without this one. So does the labelled buffer, but for a sample that
        was evicted for it and prompts that carried over meanwhile: those stay.

        Returns:
            The class that had been answered; None where no class was named, or the question was skipped.
        """
        id = self.desk.known_id(id)
        if id in self.desk.queries.skipped:
            self.desk.reopen(id)
            return None
        given = self.desk.queries.answered(id)
        label = given.answer.label if isinstance(given.answer.label, int) else -1
        self.method.forget(id, label, given.item)
        self.desk.take_back(id)
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
        self.desk.grow(classes, settings)
        self.method, self.classes, self.settings = method, classes, settings
        self._tell_method()

    def class_index(self, label: str | int) -> int:
        """Index of a class given by name or index."""
        return class_index(self.classes, label)

    @in_turn
    def summary(self) -> dict[str, Any]:
        """Counts so far, as plain values."""
        found = self.desk.summary() | self.method.summary()
        return found | {"notes": self.desk.notes() + found.get("notes", [])}

    @in_turn
    def repredict(self, id: int, image: Any) -> Prediction:
        """Predict an image again, with the views it had at prediction `id`; nothing is changed."""
        id = self.desk.known_id(id)
        with self._unchanged():
            self.desk.seen = id
            return self.predict_one(image)

    @in_turn
    def repredict_kept(self, ids: Iterable[int]) -> dict[int, FloatArray]:
        """Predict `pending` and `recent` images again, from what is kept of them; nothing is changed.

        Quick, as only a head's share is computed. Other images are left out, and so are all images of methods
        that have to encode an image again (`repredict`).
        """
        kept = {id: item for id in ids if (item := self.desk.queries.kept(id)) is not None}
        probs = {id: self.method.predict_kept(item) for id, item in kept.items()}
        return {id: found for id, found in probs.items() if found is not None}

    @in_turn
    def wanted_kept(self, ids: Iterable[int]) -> dict[int, float]:
        """Acquisition scores of some `recent` images: the highest is the one to `ask` about next.

        A method with a head compares them with each other and with those that are answered or asked about.
        Other methods give none. Nothing is changed.
        """
        kept = {id: item for id in ids if (item := self.desk.queries.recent.get(id)) is not None}
        scores = self.method.wanted_kept(list(kept.values()), list(self.desk.queries.pending.values()))
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
        tensors = with_prefix("method.", snapshot.tensors) | self.desk.queries.tensors()
        values = {
            "method": self.method_name,
            "classes": list(self.classes),
            "seed": self.seed,
            **self.desk.values(),
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
        # Of the method alone there is no second one: the desk is restored first.
        desk = self.desk.restored(values, tensors, self.clip.device)
        for item in desk.queries.items():
            self.method.check_item(item)
        snapshot = Snapshot(without_prefix("method.", tensors), values["state"])
        before = self.method.snapshot()
        try:
            self.method.restore(snapshot)
            self.method.check(snapshot)
        except Exception:
            self.method.restore(before)
            raise
        self.seed, self.desk = desk.seed, desk

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

    def _tell_method(self) -> None:
        """Let a method that does not learn from queried images know which these are going to be."""
        if not getattr(self.settings, "update_queried", True):
            self.method.will_ask = self._will_ask

    def _will_ask(self, entropy: float) -> bool:
        return self.desk.will_ask(entropy)

    @contextmanager
    def _unchanged(self) -> Iterator[Callable[[], None]]:
        """Predictions inside change nothing; yields a function that restores the state at once.

        Kept images are not copied: no prediction writes to them.
        """
        method, desk = _copied(self.method.snapshot()), self.desk

        def put_back() -> None:
            self.method.restore(_copied(method))
            self.desk = desk.trial()

        try:
            self.desk = desk.trial()
            yield put_back
        finally:
            put_back()
            self.desk = desk

    def _make_method(self, classes: tuple[str, ...], settings: Settings) -> Method:
        try:
            method = find_method(self.method_name).build(self.clip, classes, settings, self.seed)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not re.search("alloc|overflow", str(error)):
                raise
            why = str(error).partition("\n")[0]
            raise SettingsError(
                f"There is too little memory for {self.method_name} with these settings; choose smaller ones "
                f"({why})."
            ) from error
        if method.asks and not isinstance(settings, Asking):
            raise SettingsError(
                f"{self.method_name!r} asks, but its settings are no `Asking` ones; add them."
            )
        return method

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
