"""The contract: each check raises `ContractError` with a sentence where a method fails it."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from taps.checks.states import footprint, same_state, state_tensors
from taps.errors import ImageError, TapsError
from taps.types import PixelArray, Prediction

ALLOWED = 192  # bytes that a learner may grow by with each image: a few numbers, and less than a tensor
ROUNDING = 1e-4
DOUBLINGS = 6  # of the stream in which a learner's memory must come to fit


class ContractError(TapsError, AssertionError):
    """A method that does not keep the contract."""


class Streaming(Protocol):
    """What is checked: `Learner`, or a class of your own with the same methods."""

    def predict_one(self, image: Any) -> Prediction: ...
    def learn_one(self, id: int, label: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Factory = Callable[..., Streaming]


def answer(id: int, classes: int) -> int:
    return (id * 7 + id // 3) % classes


def silence(id: int, classes: int) -> int | None:
    return None


def made_up_images(count: int) -> list[PixelArray]:
    """Coarse coloured squares, different from each other."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, (5, 6, 3), dtype=np.uint8).repeat(8, axis=0).repeat(8, axis=1)
        for _ in range(count)
    ]


@dataclass
class Harness:
    """Streams one learner after another over the same images, and compares their predictions."""

    factory: Factory
    images: list[Any]
    length: int
    tolerance: float
    bytes: int = 0

    def fresh(self) -> Streaming:
        return self.factory(seed=0)

    def stream(self, label: Callable[[int, int], int | None]) -> list[Prediction]:
        return self.walk(self.fresh(), label, 0, self.length)

    def walk(
        self, learner: Streaming, label: Callable[[int, int], int | None], start: int, stop: int
    ) -> list[Prediction]:
        """Predict images start..stop−1; a question is answered right after, unless the label is None."""
        predictions = []
        for number in range(start, stop):
            prediction = learner.predict_one(self.images[number % len(self.images)])
            kept = copy.deepcopy(prediction)
            predictions.append(kept)
            given = label(prediction.id, len(prediction.probs)) if prediction.ask else None
            if given is not None:
                learner.learn_one(prediction.id, given)
                if not self.same(prediction, kept):
                    raise ContractError(
                        f"The prediction of image {number} changed when its label came; it must be final."
                    )
        return predictions

    def same(self, one: Prediction, other: Prediction) -> bool:
        """Whether two predictions agree in all but the time they took."""
        alike = (one.id, one.index, one.ask) == (other.id, other.index, other.ask)
        first, second = (np.array([*each.probs, each.entropy, each.threshold]) for each in (one, other))
        return alike and np.allclose(first, second, rtol=0, atol=self.tolerance, equal_nan=True)

    def equal(self, ones: Sequence[Prediction], others: Sequence[Prediction], what: str) -> None:
        for number, (one, other) in enumerate(zip(ones, others, strict=True)):
            if not self.same(one, other):
                raise ContractError(f"{what}: image {number} of the stream was predicted differently.")


def check_predictions(harness: Harness, first: list[Prediction]) -> None:
    """Probabilities are finite, none negative, and sum to 1; ids are never used twice."""
    for number, prediction in enumerate(first):
        total = float(prediction.probs.sum())
        if not np.isfinite(prediction.probs).all() or (prediction.probs < 0).any() or abs(total - 1) > 1e-3:
            raise ContractError(
                f"The probabilities of image {number} are not a distribution; they sum to {total}."
            )
        if not 0 <= prediction.index < len(prediction.probs):
            raise ContractError(
                f"Image {number} was given class {prediction.index}, of {len(prediction.probs)} classes."
            )
    if len({prediction.id for prediction in first}) < len(first):
        raise ContractError("Two images were given the same id; answers could not be told apart.")


def check_determinism(harness: Harness, first: list[Prediction]) -> None:
    harness.equal(harness.stream(answer), first, "Two learners of one seed disagree")


def check_labels(harness: Harness, first: list[Prediction]) -> None:
    """No prediction may depend on its own label, nor on one that was never given."""
    for number in [number for number, prediction in enumerate(first) if prediction.ask][-3:]:
        turning = first[number].id

        def other(id: int, classes: int, turning: int = turning) -> int | None:
            return answer(id, classes) if id < turning else (answer(id, classes) + 1) % classes

        harness.equal(
            harness.stream(other)[: number + 1],
            first[: number + 1],
            "A prediction depends on the label after it",
        )
    silent = harness.stream(silence)
    until = next((number + 1 for number, prediction in enumerate(first) if prediction.ask), len(first))
    harness.equal(silent[:until], first[:until], "A prediction depends on a label that had not come yet")


def check_answers(harness: Harness, first: list[Prediction]) -> None:
    """What is refused leaves no trace: answers about images never seen, or that nobody asked about and that
    are not kept. An answer given again changes nothing."""
    learner = harness.fresh()
    harness.walk(learner, answer, 0, 3)
    for prediction in (None, *first[:3]):
        id, before = 10**9 if prediction is None else prediction.id, learner.state_dict()
        try:
            learner.learn_one(id, answer(id, len(first[0].probs)))
        except Exception:
            if not same_state(learner.state_dict(), before):
                raise ContractError(f"An answer for image {id} was refused, but changed the state.") from None
        else:
            taken = prediction is not None and (
                not prediction.ask or same_state(learner.state_dict(), before)
            )
            if not taken:
                raise ContractError(f"An answer was taken for image {id}, which was not open to any.")


def check_bad_images(harness: Harness, first: list[Prediction]) -> None:
    """Whatever an image holds, the state stays finite; one that is refused leaves no trace."""
    learner = harness.fresh()
    harness.walk(learner, answer, 0, 2)
    for name, image in bad_images().items():
        before = learner.state_dict()
        try:
            prediction = learner.predict_one(image)
        except ImageError:
            if not same_state(learner.state_dict(), before):
                raise ContractError(f"A {name} image was refused, but changed the state.") from None
            continue
        if not np.isfinite(prediction.probs).all():
            raise ContractError(f"A {name} image was predicted with probabilities that are not finite.")
        if prediction.ask:
            learner.learn_one(prediction.id, 0)
    for name, tensor in state_tensors(learner.state_dict()).items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ContractError(f"After odd images the state holds values that are not finite in {name}.")
    _finite(harness.walk(learner, answer, 2, 4), "After odd images")


def bad_images() -> dict[str, Any]:
    return {
        "NaN": np.full((8, 8, 3), np.nan),
        "black": np.zeros((40, 30, 3), np.uint8),
        "white": np.full((30, 40, 3), 255, np.uint8),
        "one-pixel": np.full((1, 1, 3), 7, np.uint8),
        "one-line": np.full((1, 60, 3), 9, np.uint8),
        "damaged": b"\xff\xd8\xff\xe0 no photograph",
    }


def check_memory(harness: Harness, first: list[Prediction]) -> None:
    """The last third of a stream needs no more memory than the rest: of one three times as long, or of a
    longer one, where memories are large and take more images to fill."""
    learner, walked = harness.fresh(), 0
    for third in (harness.length * 2**doubling for doubling in range(DOUBLINGS)):
        harness.walk(learner, answer, walked, 2 * third)
        early = footprint(learner)
        harness.walk(learner, answer, 2 * third, walked := 3 * third)
        harness.bytes = footprint(learner)
        # Windows and counts of plain numbers may still fill; a tensor for each image may not stay.
        if harness.bytes - early <= 1024 + ALLOWED * third:
            return
    grown = (harness.bytes - early) // third
    raise ContractError(
        f"The learner grows by {grown} bytes an image, after {3 * third} images still; bound what it keeps."
    )


def check_state(harness: Harness, first: list[Prediction]) -> None:
    """Stopped in the middle, with an open question, and resumed from its state: nothing differs."""
    middle = harness.length // 2
    stopped = harness.fresh()
    harness.walk(stopped, answer, 0, middle - 1)
    harness.walk(stopped, silence, middle - 1, middle)
    state = copy.deepcopy(stopped.state_dict())
    state["values"] = json.loads(json.dumps(state.get("values", {})))  # what is saved goes through JSON
    resumed = harness.fresh()
    resumed.load_state_dict(state)
    if not same_state(resumed.state_dict(), state):
        raise ContractError("A state that was loaded is not the state that comes out again.")
    volunteered = [_volunteered(each, first[:middle]) for each in (stopped, resumed)]
    if volunteered[0] != volunteered[1]:
        raise ContractError("A resumed learner takes other labels for images nobody asked about.")
    _continue_alike(harness, stopped, resumed, "A resumed stream disagrees")


def _continue_alike(harness: Harness, one: Streaming, other: Streaming, what: str) -> None:
    """The second half of the stream, by a learner and by what was made of its state."""
    ends = [harness.walk(each, answer, harness.length // 2, harness.length) for each in (one, other)]
    harness.equal(ends[1], ends[0], what)


def _volunteered(learner: Streaming, first: list[Prediction]) -> list[int]:
    """Give labels for images nobody asked about; ids of those that were taken."""
    taken = []
    for prediction in first:
        if not prediction.ask:
            with suppress(Exception):
                learner.learn_one(prediction.id, answer(prediction.id, len(prediction.probs)))
                taken.append(prediction.id)
    return taken


def check_saving(harness: Harness, first: list[Prediction]) -> None:
    """The same through a directory, for learners that can be saved to one."""
    learner: Any = harness.fresh()
    if not hasattr(learner, "save") or not hasattr(type(learner), "load"):
        return
    harness.walk(learner, answer, 0, harness.length // 2)
    with tempfile.TemporaryDirectory() as directory:
        learner.save(directory)
        known = {"clip": learner.clip} if hasattr(learner, "clip") else {}
        loaded = type(learner).load(directory, **known)
    _continue_alike(harness, learner, loaded, "A saved and loaded stream disagrees")


def check_backlog(harness: Harness, first: list[Prediction]) -> None:
    """Images predicted together are predicted as one after the other, for learners that can do both."""
    together: Any = harness.fresh()
    if not hasattr(together, "predict_many"):
        return
    alone, middle = harness.fresh(), harness.length // 2
    for learner in (alone, together):
        harness.walk(learner, answer, 0, middle)  # so that something was learned
    images = [harness.images[number % len(harness.images)] for number in range(middle, harness.length)]
    loose = replace(harness, tolerance=max(harness.tolerance, ROUNDING))  # sums in another order
    loose.equal(
        together.predict_many(images),
        harness.walk(alone, silence, middle, harness.length),
        "Images predicted together and one by one disagree",
    )


def check_undo(harness: Harness, first: list[Prediction]) -> None:
    """An answer that was taken back can be given again; where that is refused, nothing has changed."""
    learner: Any = harness.fresh()
    middle = harness.length // 2
    asked = [prediction.id for prediction in harness.walk(learner, answer, 0, middle) if prediction.ask]
    if not hasattr(learner, "undo") or not asked:
        return
    if _accepted(learner, lambda: learner.undo(asked[-1]), "Taking an answer back"):
        learner.learn_one(asked[-1], 0)
    _finite(harness.walk(learner, answer, middle, harness.length), "After an answer was taken back")


def check_added_class(harness: Harness, first: list[Prediction]) -> None:
    """A class added while the stream runs has a probability from then on; where that is refused, as above."""
    learner: Any = harness.fresh()
    middle = harness.length // 2
    harness.walk(learner, answer, 0, middle)
    if not hasattr(learner, "add_class"):
        return
    grown = _accepted(learner, lambda: learner.add_class("a class of its own"), "Adding a class")
    after = harness.walk(learner, answer, middle, harness.length)
    wanted = len(first[0].probs) + grown
    if any(len(prediction.probs) != wanted for prediction in after):
        raise ContractError(
            f"With a class added, images have {len(after[0].probs)} probabilities, not {wanted}."
        )
    _finite(after, "After a class was added")


def _accepted(learner: Streaming, act: Callable[[], object], what: str) -> bool:
    """Whether something was done; a refusal must leave the state as it was."""
    before = copy.deepcopy(learner.state_dict())
    try:
        act()
    except TapsError:
        if not same_state(learner.state_dict(), before):
            raise ContractError(f"{what} was refused, but changed the state.") from None
        return False
    return True


def _finite(predictions: list[Prediction], when: str) -> None:
    if not all(np.isfinite(each.probs).all() for each in predictions):
        raise ContractError(f"{when}, predictions are not finite any more.")


CHECKS: dict[str, Callable[[Harness, list[Prediction]], None]] = {
    "predictions": check_predictions,
    "determinism": check_determinism,
    "labels": check_labels,
    "answers": check_answers,
    "bad images": check_bad_images,
    "memory": check_memory,
    "state": check_state,
    "saving": check_saving,
    "backlog": check_backlog,
    "undo": check_undo,
    "added class": check_added_class,
}
