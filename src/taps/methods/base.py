"""What every method is to the learner: it predicts one image at a time and may learn from answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from taps.adapt.memory import ReplayItem
from taps.errors import QueryError, SettingsError
from taps.prompts import Prompts
from taps.prompts.classifier import Classifier
from taps.types import Answer, FloatArray


@dataclass(frozen=True)
class MethodOutput:
    """What a method says about one image.

    Attributes:
        probs: Probability of each class [K].
        entropy: H_t in nats, what the query decision is made on.
        item: What to keep of the image until its label arrives; None for methods that learn from none.
        updated: Whether the prompts were moved for this image.
        score: What the query decision is made on where that is not the entropy.
        feature: Normalised feature of view 0 at the loaded prompts [d], where the method has one.
        features: Those of all views, where the method looks at several [V, d].
        ensemble: Mean log-probability of the confident views at the loaded prompts [K], where it has views.
        reject: How likely the image shows none of the classes, where the method learns that.
    """

    probs: Tensor
    entropy: float
    item: ReplayItem | None = None
    updated: bool = False
    score: float | None = None
    feature: Tensor | None = None
    features: Tensor | None = None
    ensemble: Tensor | None = None
    reject: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """A method's whole state: tensors by name, and plain values that JSON can hold."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under longer names.

    >>> list(with_prefix("head.", {"mean": None}))
    ['head.mean']
    """
    return {prefix + name: value for name, value in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def prompts_snapshot(prompts: Prompts, parameters: Mapping[str, Tensor]) -> Snapshot:
    """What a state says of the prompts it began with; `taps.checkpoint` makes them again of it."""
    return Snapshot(with_prefix("anchor.", parameters), {"kind": prompts.kind, "suffix": prompts.suffix})


@dataclass(frozen=True)
class HeadInputs:
    """What a label head stands on.

    Attributes:
        classifier: The frozen model and the classes.
        text: Features of the class texts, the same for every image [K, d].
        bases: Names of the predictions that every output holds: "zero_shot" first; "view_ensemble" where
            there is one; last the method's own, under a name of its own, where it is none of these.
        several: Whether outputs have the features of several views.
    """

    classifier: Classifier
    text: Tensor
    bases: tuple[str, ...]
    several: bool = False


class Method:
    """One named system. A subclass says how it predicts, and where it learns or keeps a state, the rest."""

    @property
    def needs_features_only(self) -> bool:
        """Whether features of the views by the frozen tower are all that it needs of an image."""
        return False

    @property
    def stateless(self) -> bool:
        """Whether every image is predicted as if it were the first, whatever the seed."""
        return False

    @property
    def asks(self) -> bool:
        """Whether labels are any use to it."""
        return False

    @property
    def takes_any_answer(self) -> bool:
        """Whether it learns from "not a cat" and "none of these", and tells annotators apart."""
        return False

    def predict(self, views: Tensor) -> MethodOutput:
        """Adapt to one image's views (pixels 0..255, view 0 the image itself) and predict it."""
        raise NotImplementedError

    def wanted_kept(
        self, items: Sequence[ReplayItem], open: Sequence[ReplayItem]
    ) -> NDArray[np.float64] | None:
        """How much an answer is wanted for each of some images that are kept; None where it cannot say.

        Args:
            items: The images.
            open: Those that are asked about already.
        """
        return None

    def predict_kept(self, item: ReplayItem) -> FloatArray | None:
        """What it says now of an image, from what its output kept; None where it must look at it again."""
        return None

    def row_of(self, item: ReplayItem) -> FloatArray | None:
        """All that `predict_rows` needs of an image, from what its output kept; None where it cannot."""
        return None

    def predict_rows(self, rows: Sequence[FloatArray]) -> Iterator[FloatArray]:
        """What it says now of images that it has seen.

        Args:
            rows: What `row_of` gave of each, when it came.
        """
        raise NotImplementedError

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        """Take in the label of an image predicted before; `item` is what its output kept."""

    def learn_answer(self, id: int, answer: Answer, item: ReplayItem) -> None:
        """Take in an answer of any kind, classes by index; here, one that names the class."""
        assert isinstance(answer.label, int)
        self.learn(id, answer.label, item)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """Take an answer back, given as it was to `learn`: from now on it is no part of anything.

        Where the answer named no class, the label is −1.
        """
        raise QueryError(f"{type(self).__name__} cannot take answers back; it has no `forget`.")

    def remembers(self, id: int) -> bool:
        """Whether an answer can still be taken back."""
        return type(self).forget is not Method.forget

    def grow(self, old: Self) -> None:
        """Take over what the same method learned while there were fewer classes; those added are the last."""
        raise SettingsError(
            f"{type(self).__name__} cannot take in classes added later; begin a new learner with all of them."
        )

    def snapshot(self) -> Snapshot:
        """The whole state, to be saved."""
        return Snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a state."""

    def summary(self) -> dict[str, Any]:
        """Plain values worth reporting: buffer fill, skipped updates."""
        return {}

    def head_inputs(self) -> HeadInputs:
        """What a head can stand on, for methods whose outputs have features."""
        raise SettingsError(f"A head cannot be put on {type(self).__name__}: it gives no features.")


class BatchedMethod(Method):
    """A method a part of whose work, the same whatever came before, is done for many images at once."""

    def batch_key(self) -> Hashable:
        """Methods with equal keys can encode together; None where this one cannot."""
        return None

    @abstractmethod
    def encode_batch(self, methods: Sequence[Any], views: Sequence[Tensor]) -> list[Any]:
        """The work that can be done together.

        Args:
            methods: Whose image each is; all of them have this one's key.
            views: Of each image, all of one shape.

        Returns:
            For each image what `predict` is given.
        """

    @abstractmethod
    def predict(self, views: Tensor, ahead: Any = None) -> MethodOutput:
        """As `Method.predict`; `ahead` is what `encode_batch` gave for the image, if it was asked."""
