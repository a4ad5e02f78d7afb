"""Streams of one learner after another over the same images, and how their predictions are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from taps.errors import TapsError
from taps.types import PixelArray, Prediction


class ContractError(TapsError, AssertionError):
    """A method that does not keep the contract."""


class Streaming(Protocol):
    """What is checked: `Learner`, or anything of yours that speaks like it."""

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
    """Streams of one factory's learners over the same images."""

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
        said = []
        for number in range(start, stop):
            prediction = learner.predict_one(self.images[number % len(self.images)])
            kept = copy.deepcopy(prediction)
            said.append(kept)
            given = label(prediction.id, len(prediction.probs)) if prediction.ask else None
            if given is not None:
                learner.learn_one(prediction.id, given)
                if not self.same(prediction, kept):
                    raise ContractError(
                        f"The prediction of image {number} changed when its label came; it must be final."
                    )
        return said

    def same(self, one: Prediction, other: Prediction) -> bool:
        """Whether two predictions agree in all but the time they took."""
        said = (one.id, one.index, one.ask) == (other.id, other.index, other.ask)
        first, second = (np.array([*each.probs, each.entropy, each.threshold]) for each in (one, other))
        return said and np.allclose(first, second, rtol=0, atol=self.tolerance, equal_nan=True)

    def equal(self, ones: Sequence[Prediction], others: Sequence[Prediction], what: str) -> None:
        for number, (one, other) in enumerate(zip(ones, others, strict=True)):
            if not self.same(one, other):
                raise ContractError(f"{what}: image {number} of the stream was predicted differently.")
