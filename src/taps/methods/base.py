"""The interface of methods: one predicts an image at a time and may learn from answers."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.errors import QueryError, SettingsError
from taps.learning.fast import batch_size
from taps.learning.memory import ReplayItem
from taps.learning.optimiser import Moments
from taps.model.prompts import Parameters, Prompts
from taps.model.prompts.classifier import Classifier
from taps.types import Answer, FloatArray


@dataclass(frozen=True)
class MethodOutput:
    """A method's prediction of one image.

    Attributes:
        probs: Probability of each class [K].
        entropy: H_t in nats, what the query decision is made on.
        item: What to keep of the image until its label arrives; None for methods that learn from none.
        updated: Whether the method took a step for this image.
        score: What the query decision is made on where that is not the entropy.
        feature: Normalised feature of view 0 at the loaded prompts [d], where the method has one.
        features: Those of all views, where the method looks at several [V, d].
        ensemble: Mean log-probability of the confident views at the loaded prompts [K], where it has views.
        reject: Probability that the image shows none of the classes, where the method learns that.
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
    """The tensors under longer names."""
    return {prefix + name: value for name, value in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def tuned_tensors(parameters: Parameters, moments: Moments) -> dict[str, Tensor]:
    """Tuned parameters and their optimiser's moments, as tensors of a snapshot."""
    both = with_prefix("first.", moments.first) | with_prefix("second.", moments.second)
    return with_prefix("parameters.", parameters) | both


def tuned_from(tensors: Mapping[str, Tensor], steps: int) -> tuple[Parameters, Moments]:
    """What `tuned_tensors` was given, with the optimiser's number of steps."""
    moments = Moments(without_prefix("first.", tensors), without_prefix("second.", tensors), steps)
    return without_prefix("parameters.", tensors), moments


def to_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Copies of arrays as tensors of a snapshot."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """The tensors of a snapshot as arrays."""
    return {name: value.cpu().numpy() for name, value in tensors.items()}


def to_array(tensor: Tensor) -> NDArray[np.float64]:
    """A tensor as an array in double precision."""
    return tensor.detach().double().cpu().numpy()


def prompts_snapshot(prompts: Prompts, parameters: Mapping[str, Tensor]) -> Snapshot:
    """The prompts a method began with; `taps.learner.checkpoint` makes them again from it."""
    return Snapshot(with_prefix("anchor.", parameters), {"kind": prompts.kind, "suffix": prompts.suffix})


@dataclass(frozen=True)
class HeadInputs:
    """What a method gives to a label head on it.

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
    """A method. A subclass has `predict`, and where it learns or keeps a state, the rest."""

    will_ask: Callable[[float], bool] | None = None  # of the learner: about an image of this entropy?

    @property
    def needs_features_only(self) -> bool:
        """Whether the frozen tower's features of the views are all that it needs of an image."""
        return False

    @property
    def stateless(self) -> bool:
        """Whether a prediction depends on the image alone, not on earlier ones or the seed."""
        return False

    @property
    def asks(self) -> bool:
        """Whether it learns from labels."""
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
        """Acquisition scores of kept images, beside those `open` to an answer; None where it has none."""
        return None

    def predict_kept(self, item: ReplayItem) -> FloatArray | None:
        """Probabilities now, from what the output kept of an image; None where the image itself is needed."""
        return None

    def row_of(self, item: ReplayItem) -> FloatArray | None:
        """What `predict_rows` needs of an image, from what its output kept; None where it cannot."""
        return None

    def predict_rows(self, rows: Sequence[FloatArray]) -> Iterator[FloatArray]:
        """Probabilities now of earlier images, from what `row_of` gave of each when it came."""
        raise NotImplementedError

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        """Learn the label of an image predicted before; `item` is what its output kept."""

    def learn_answer(self, id: int, answer: Answer, item: ReplayItem) -> None:
        """Learn an answer of any kind, classes by index; here, one that names the class."""
        assert isinstance(answer.label, int)
        self.learn(id, answer.label, item)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """Take an answer back that was given to `learn`; its label is −1 where it named no class."""
        raise QueryError(f"{type(self).__name__} cannot take answers back; it has no `forget`.")

    def remembers(self, id: int) -> bool:
        """Whether an answer can still be taken back."""
        return type(self).forget is not Method.forget

    def grow(self, old: Self) -> None:
        """Take over what the method learned with fewer classes; those added are the last."""
        raise SettingsError(
            f"{type(self).__name__} cannot take in classes added later; begin a new learner with all of them."
        )

    def snapshot(self) -> Snapshot:
        """The whole state, to be saved."""
        return Snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a state."""

    def check(self, snapshot: Snapshot) -> None:
        """Refuse a state from a file where `restore`, which is also called for every trial, does not."""

    def check_item(self, item: ReplayItem) -> None:
        """Refuse what a saved state holds of an image, where no output of this method can have kept it."""

    def summary(self) -> dict[str, Any]:
        """Plain values worth reporting: buffer fill, skipped updates."""
        return {}

    def head_inputs(self) -> HeadInputs:
        """What a label head needs, for methods whose outputs have features."""
        raise SettingsError(f"A head cannot be put on {type(self).__name__}: it gives no features.")


class BatchedMethod(Method):
    """A method that does a part of its work, independent of earlier images, for many images at once."""

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
            For each image the `ahead` of `predict`.
        """

    @abstractmethod
    def predict(self, views: Tensor, ahead: Any = None) -> MethodOutput:
        """As `Method.predict`; `ahead` is what `encode_batch` returned for the image, if it was called."""


def predict_batch(images: Iterable[tuple[Method, Tensor]]) -> list[Callable[[], MethodOutput]]:
    """For each image, given as its method and its views, a function that predicts it.

    The functions are to be called once and in order; each does what `Method.predict` would do there. Work
    that does not depend on the order is launched as soon as there are enough images to fill a batch.
    """
    waiting: dict[Hashable, list[tuple[int, BatchedMethod, Tensor]]] = defaultdict(list)
    predict: list[Callable[[], MethodOutput]] = []

    def flush(group: list[tuple[int, BatchedMethod, Tensor]]) -> None:
        places, methods, views = zip(*group, strict=True)
        encoded = methods[0].encode_batch(methods, views)
        for place, method, own, ahead in zip(places, methods, views, encoded, strict=True):
            predict[place] = lambda method=method, own=own, ahead=ahead: method.predict(own, ahead)  # type: ignore[misc]
        group.clear()

    for place, (method, views) in enumerate(images):
        predict.append(lambda method=method, views=views: method.predict(views))  # type: ignore[misc]
        if isinstance(method, BatchedMethod) and (key := method.batch_key()) is not None:
            group = waiting[key, views.shape, views.dtype]
            group.append((place, method, views))
            if len(group) == batch_size(len(views), views.device.type):
                flush(group)
    for group in waiting.values():
        if len(group) > 1:  # a single image needs no batch
            flush(group)
    return predict
