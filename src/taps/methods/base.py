"""What every method is to the learner: it predicts one image at a time and may learn from answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from taps.adapt.memory import ReplayItem


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
        ensemble: Mean log-probability of the confident views at the loaded prompts [K], where it has views.
    """

    probs: Tensor
    entropy: float
    item: ReplayItem | None = None
    updated: bool = False
    score: float | None = None
    feature: Tensor | None = None
    ensemble: Tensor | None = None


@dataclass(frozen=True)
class Snapshot:
    """A method's whole state: tensors by name, and plain values that JSON can hold."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """One named system. A class of yours with these members is a method too."""

    @property
    def asks(self) -> bool:
        """Whether labels are any use to it."""
        ...

    def predict(self, views: Tensor) -> MethodOutput:
        """Adapt to one image's views (pixels 0..255, view 0 the image itself) and predict it."""
        ...

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        """Take in the label of an image predicted before."""
        ...

    def snapshot(self) -> Snapshot: ...

    def restore(self, snapshot: Snapshot) -> None: ...

    def summary(self) -> dict[str, Any]:
        """Plain values worth reporting: buffer fill, skipped updates."""
        ...
