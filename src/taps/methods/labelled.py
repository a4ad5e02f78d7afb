"""What methods share that learn from answers on features alone: the labelled images, or sums over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from taps.active.acquisition import SCORES, Acquisition, joined
from taps.clip import Clip
from taps.head.neighbours import RecentImages
from taps.head.threads import one_thread
from taps.head.whitening import FeatureWhitener
from taps.methods import (
    Asking,
    FeatureMethod,
    MethodOutput,
    ReplayItem,
    Snapshot,
    State,
    TextSettings,
    setting,
)
from taps.methods.base import with_prefix, without_prefix
from taps.types import FloatArray


@dataclass(frozen=True)
class LabelSettings(Asking, TextSettings):
    """Questions at an exact rate.

    Attributes:
        acquisition: Whom to ask about, as methods with a head do (`taps.methods.headed`). By "entropy", that
            of zero-shot, or "random" all methods ask about the same images.
        explore: Share of the questions that are put at random, whatever `acquisition` says. With 0 the
            learner cannot say how good its predictions are.
    """

    policy: str = "paced"
    acquisition: str = setting("entropy", choices=SCORES)
    explore: float = setting(0.0, at_least=0, at_most=1)


@dataclass(frozen=True)
class BufferSettings(LabelSettings):
    """For methods that keep the labelled images themselves.

    Attributes:
        buffer: How many labelled images are kept, the last ones.
    """

    buffer: int = setting(1000, at_least=1)


class Surroundings:
    """How typical an image is of the stream: mean cosine to the images most like it, as a head has it.

    Args:
        dim: Length of a feature.
    """

    def __init__(self, dim: int) -> None:
        self.whitener, self.recent = FeatureWhitener(dim, several=False), RecentImages((1, dim), (1, 1))

    def density(self, feature: NDArray[np.float64]) -> float:
        """Of an image, which is remembered."""
        with one_thread():
            return self.recent.look(self.whitener.see(feature[None]), np.zeros((1, 1))).density

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that changes with the images."""
        return self.whitener.arrays() | self.recent.arrays()

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from where `arrays` was taken."""
        self.whitener.restore(arrays)
        self.recent.restore(arrays)


class LabelMethod(FeatureMethod):
    """Learns from answers, and asks for them by any rule.

    Where a prediction changes nothing (`pure`), one of a feature nearby can be made beside it.

    Attributes:
        fitted: Whatever a method computes of the labels; None again once they change.
    """

    pure = True
    asks = True
    settings: LabelSettings
    fitted: Any = None

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: LabelSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        rule, dim = settings.acquisition, self.text.shape[1]
        self.acquisition = Acquisition(rule, seed)
        self.surroundings = Surroundings(dim) if rule == "density" else None

    def start(self) -> State:
        """Where the rule compares images with the labelled ones, also (I + Σ x xᵀ)⁻¹ over these."""
        if self.settings.acquisition not in ("leverage", "vessal"):
            return super().start()
        inverse = torch.eye(self.text.shape[1], dtype=torch.float64, device=self.text.device)
        return super().start() | {"inverse": inverse}

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        output = super().predict(views, ahead)
        if output.feature is None:  # an image without numbers
            return output
        return replace(output, score=self.score(output, output.feature))

    def score(self, output: MethodOutput, feature: Tensor) -> float:
        """How much an answer for this image is wanted."""
        around, dense = self.surroundings, 1.0
        if around is not None:
            dense = around.density(feature.double().cpu().numpy())
        probs, counts = (each.double().cpu().numpy() for each in (output.probs, self.label_counts()))
        return self.acquisition.score(
            probs,
            output.entropy,
            counts,
            dense,
            lambda: float(feature.double() @ self.state["inverse"] @ feature.double()),
            lambda: self.sensitivity(output.probs, feature),
            lambda: torch.softmax(self.logits(feature[None])[0], dim=-1).double().cpu().numpy(),
            lambda: joined(feature.double().cpu().numpy(), probs, self.text.double().cpu().numpy()),
        )

    @torch.no_grad()
    def sensitivity(self, probs: Tensor, feature: Tensor) -> float:
        """By how much the likeliest class's probability changes with a little noise on the feature."""
        noise = torch.from_numpy(self.acquisition.noise(len(feature))).to(feature)
        moved = torch.softmax(self.adapt(self.see(F.normalize(feature + noise, dim=-1)[None])), dim=-1)
        likeliest = int(probs.argmax())
        return abs(float(probs[likeliest]) - float(moved[likeliest]))

    def predict_kept(self, item: ReplayItem) -> FloatArray | None:
        """What is said now of an image, by its feature."""
        return self._said_of(item.feature) if self.pure else None

    @torch.no_grad()
    def _said_of(self, feature: Tensor) -> FloatArray:
        seen = self.see(feature.to(self.text)[None])
        return torch.softmax(self.adapt(seen), dim=-1).float().cpu().numpy()

    def row_of(self, item: ReplayItem) -> FloatArray | None:
        """Its feature."""
        return item.feature.float().cpu().numpy() if self.pure else None

    def predict_rows(self, rows: Sequence[FloatArray]) -> Iterator[FloatArray]:
        return (self._said_of(torch.from_numpy(row)) for row in rows)

    def label_counts(self) -> Tensor:
        """Labels held of each class [K]."""
        raise NotImplementedError

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        self.change(item, 1)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        self.change(item, -1)

    def change(self, item: ReplayItem, times: int) -> None:
        """Where directions are counted: an image's is known, or no longer is (Sherman–Morrison)."""
        self.fitted = None
        self.acquisition.answered(lambda: item.feature.double().cpu().numpy(), times)
        if "inverse" in self.state:
            feature = item.feature.to(self.state["inverse"])
            across = self.state["inverse"] @ feature
            self.state["inverse"] -= times * torch.outer(across, across) / (1 + times * feature @ across)

    def grow(self, old: Self) -> None:
        super().grow(old)
        self.fitted = None

    def snapshot(self) -> Snapshot:
        arrays = self.acquisition.clusters.arrays()
        arrays |= {} if self.surroundings is None else self.surroundings.arrays()
        around = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        found = super().snapshot()
        values = found.values | {"acquisition": self.acquisition.values()}
        return Snapshot(found.tensors | with_prefix("around.", around), values)

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.fitted = None
        self.acquisition.restore(snapshot.values["acquisition"])
        tensors = without_prefix("around.", snapshot.tensors)
        arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
        self.acquisition.clusters.restore(arrays)
        if self.surroundings is not None:
            self.surroundings.restore(arrays)


class LabelledImages(LabelMethod):
    """Keeps the features and labels of the last images with an answer."""

    settings: BufferSettings

    def start(self) -> State:
        size, numbers = self.settings.buffer, torch.int64
        return super().start() | {
            "known": self.text.new_zeros(size, self.text.shape[1]),
            "labels": self.text.new_zeros(size, dtype=numbers),
            "ids": self.text.new_full((size,), -1, dtype=numbers),
            "answers": self.text.new_zeros((), dtype=numbers),
        }

    def held(self) -> tuple[Tensor, Tensor]:
        """Features [n, d] and labels [n] of the labelled images."""
        held = self.state["ids"] >= 0
        return self.state["known"][held], self.state["labels"][held]

    def label_counts(self) -> Tensor:
        return torch.bincount(self.held()[1], minlength=len(self.text))

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        super().learn(id, label, item)
        place = int(self.state["answers"]) % self.settings.buffer
        self.state["answers"] += 1
        self.state["known"][place], self.state["labels"][place] = item.feature, label
        self.state["ids"][place] = id

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        super().forget(id, label, item)
        self.state["ids"][self.state["ids"] == id] = -1

    def remembers(self, id: int) -> bool:
        return bool((self.state["ids"] == id).any())


class LabelSums(LabelMethod):
    """Keeps the sum and the number of each class's labelled features: d + 1 numbers a class."""

    def start(self) -> State:
        # In double precision, so that an answer that is taken back leaves no trace.
        return super().start() | {
            "sums": self.text.new_zeros(self.text.shape, dtype=torch.float64),
            "counts": self.text.new_zeros(len(self.text), dtype=torch.float64),
        }

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        super().learn(id, label, item)
        self.add(label, item.feature.to(self.state["sums"]), 1)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        super().forget(id, label, item)
        self.add(label, item.feature.to(self.state["sums"]), -1)

    def label_counts(self) -> Tensor:
        return self.state["counts"]

    def add(self, label: int, feature: Tensor, times: int) -> None:
        """Add an image to the sums, or take it off."""
        self.state["sums"][label] += times * feature
        self.state["counts"][label] += times

    def means(self) -> Tensor:
        """Of each class's labelled features [K, d]; 0 where there are none."""
        return self.state["sums"] / self.state["counts"].clamp_min(1)[:, None]

    def against_the_others(self, scores: Tensor) -> Tensor:
        """Scores of the classes [K] less their mean; a class that nobody has named counts as the mean one."""
        named = self.state["counts"] > 0
        mean = scores[named].mean() if bool(named.any()) else 0.0
        return torch.where(named, scores - mean, 0.0).to(self.text)
