"""What is kept of the last answers, so that each can be taken back, also after the stream was resumed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LabelledExample:
    """One label as the head learned it.

    Attributes:
        feature: Of the image [d].
        beliefs: Log-probabilities of the bases when it was predicted [B, K as it was then].
        label: Its class.
        importance: How much it stood for in the trust.
        alike: How likely two images of the stream were of one class then (`Head.alike`).
        losses: Of the experts, before this label came [N]; what was learned since is learned anew from there.
        gain: By how many nats the mixture predicted it better than the bases did.
        doubt: How likely the answer was wrong, by what was known before it came.
    """

    feature: Array
    beliefs: Array
    label: int
    importance: float
    alike: float
    losses: Array
    gain: float
    doubt: float

    def residual(self, classes: int) -> Array:
        """One-hot − p of the first base [K]; classes added since are no part of what was learned then."""
        residual = np.zeros(classes)
        residual[: self.beliefs.shape[1]] = -np.exp(self.beliefs[0])
        residual[self.label] += 1.0
        return residual


def example_arrays(examples: Mapping[int, LabelledExample]) -> dict[str, Array]:
    """Examples by the id of their image, as arrays by name; nothing where there are none."""
    if not examples:
        return {}
    kept = list(examples.values())
    widest = max(one.beliefs.shape[1] for one in kept)
    plain = [
        (id, one.label, one.importance, one.alike, one.gain, one.doubt, one.beliefs.shape[1])
        for id, one in examples.items()
    ]
    return {
        "examples.features": np.stack([one.feature for one in kept]),
        "examples.beliefs": np.stack(
            [np.pad(one.beliefs, ((0, 0), (0, widest - one.beliefs.shape[1]))) for one in kept]
        ),
        "examples.losses": np.stack([one.losses for one in kept]),
        "examples.plain": np.array(plain, dtype=np.float64),
    }


def examples_from(arrays: Mapping[str, Array]) -> OrderedDict[int, LabelledExample]:
    """The inverse of `example_arrays`."""
    examples: OrderedDict[int, LabelledExample] = OrderedDict()
    if "examples.plain" not in arrays:
        return examples
    names = ("features", "beliefs", "losses", "plain")
    rows = zip(*(arrays[f"examples.{name}"] for name in names), strict=True)
    for feature, beliefs, losses, (id, label, importance, alike, gain, doubt, width) in rows:
        examples[int(id)] = LabelledExample(
            feature.copy(),
            beliefs[:, : int(width)].copy(),
            int(label),
            float(importance),
            float(alike),
            losses.copy(),
            float(gain),
            float(doubt),
        )
    return examples
