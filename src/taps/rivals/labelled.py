"""The base of methods that learn from answers on features alone: the labelled images, or sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.asking.rules import RULES, Acquisition
from taps.learning.memory import ReplayItem
from taps.methods import Asking, FeatureMethod, MethodOutput, Snapshot, State, TextSettings, setting
from taps.methods.base import to_array
from taps.model.clip import Clip
from taps.saved import check_arrays, check_features
from taps.types import FloatArray


class LabelSettings(Asking, TextSettings):
    """Questions at an exact rate.

    Attributes:
        acquisition: The asking rule (`taps.asking.rules`), which scores each image. By "entropy",
            that of zero-shot, or "random" all methods ask about the same images.
        explore: Share of the questions that are put at random, whatever `acquisition` is. With 0 the
            learner cannot estimate how good its predictions are.
    """

    policy: str = "paced"
    acquisition: str = setting("entropy", choices=RULES)
    explore: float = setting(0.0, at_least=0, at_most=1)


class BufferSettings(LabelSettings):
    """For methods that keep labelled images themselves: the last `buffer` of them."""

    buffer: int = setting(1000, at_least=1)


class LabelMethod(FeatureMethod):
    """Learns from answers, and asks for them by any rule."""

    pure = True  # a prediction changes no state, so that one of a feature nearby can be made beside it
    asks = True
    settings: LabelSettings
    fitted: Any = None  # whatever a method computes from the labels; None again once they change

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: LabelSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        self.acquisition = Acquisition(settings.acquisition, seed)

    def start(self) -> State:
        """Where the rule compares images with the labelled ones, also (I + Σ x xᵀ)⁻¹ over these."""
        if "leverage" not in RULES[self.settings.acquisition].needs:
            return super().start()
        inverse = torch.eye(self.text.shape[1], dtype=torch.float64, device=self.text.device)
        return super().start() | {"inverse": inverse}

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        output = super().predict(views, ahead)
        if output.feature is None:  # an image without numbers
            return output
        return replace(output, score=self.score(output, output.feature))

    def score(self, output: MethodOutput, feature: Tensor) -> float:
        """The acquisition score of an image."""
        known: dict[str, Callable[[], Any]] = {
            "probs": lambda: to_array(output.probs),
            "entropy": lambda: output.entropy,
            "feature": lambda: to_array(feature),
            "counts": lambda: to_array(self.label_counts()),
            "sensitivity": lambda: self.sensitivity(output.probs, feature),
        }
        if "inverse" in self.state:
            known["leverage"] = lambda: float(feature.double() @ self.state["inverse"] @ feature.double())
        return self.acquisition.score(**known)

    @torch.no_grad()
    def sensitivity(self, probs: Tensor, feature: Tensor) -> float:
        """By how much the likeliest class's probability changes with a little noise on the feature."""
        noise = torch.from_numpy(self.acquisition.noise(len(feature))).to(feature)
        moved = torch.softmax(self.adapt(self.see(F.normalize(feature + noise, dim=-1)[None])), dim=-1)
        likeliest = int(probs.argmax())
        return abs(float(probs[likeliest]) - float(moved[likeliest]))

    def predict_kept(self, item: ReplayItem) -> FloatArray | None:
        return self._predict_feature(item.feature) if self.pure else None

    @torch.no_grad()
    def _predict_feature(self, feature: Tensor) -> FloatArray:
        seen = self.see(feature.to(self.text)[None])
        return torch.softmax(self.adapt(seen), dim=-1).float().cpu().numpy()

    def row_of(self, item: ReplayItem) -> FloatArray | None:
        return item.feature.float().cpu().numpy() if self.pure else None

    def predict_rows(self, rows: Sequence[FloatArray]) -> Iterator[FloatArray]:
        return (self._predict_feature(torch.from_numpy(row)) for row in rows)

    def label_counts(self) -> Tensor:
        """Number of labels held of each class [K]."""
        raise NotImplementedError

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        self.change(label, item, 1)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        self.change(label, item, -1)

    def change(self, label: int, item: ReplayItem, times: int) -> None:
        """Add an answer (1), or take it back (−1); the inverse follows by Sherman–Morrison."""
        self.fitted = None
        if "inverse" in self.state:
            feature = item.feature.to(self.state["inverse"])
            across = self.state["inverse"] @ feature
            self.state["inverse"] -= times * torch.outer(across, across) / (1 + times * feature @ across)

    def grow(self, old: Self) -> None:
        super().grow(old)
        self.fitted = None

    def snapshot(self) -> Snapshot:
        own = super().snapshot()
        return Snapshot(own.tensors, own.values | {"acquisition": self.acquisition.values()})

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.fitted = None
        self.acquisition.restore(snapshot.values["acquisition"])


class LabelledImages(LabelMethod):
    """Keeps the features and labels of the last images with an answer."""

    settings: BufferSettings
    lowest: int = 0  # label that is kept

    def start(self) -> State:
        size, numbers = self.settings.buffer, torch.int64
        return super().start() | {
            "known": self.text.new_zeros(size, self.text.shape[1]),
            "labels": self.text.new_zeros(size, dtype=numbers),
            "ids": self.text.new_full((size,), -1, dtype=numbers),
            "answers": self.text.new_zeros((), dtype=numbers),
        }

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        low, high = self.lowest, len(self.text) - 1
        check_arrays(self.state, {"labels": ("n",)}, kind="int64", at_least=low, at_most=high)
        check_features("known", self.state["known"])

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

    def change(self, label: int, item: ReplayItem, times: int) -> None:
        super().change(label, item, times)
        self.state["sums"][label] += times * item.feature.to(self.state["sums"])
        self.state["counts"][label] += times

    def label_counts(self) -> Tensor:
        return self.state["counts"]

    def means(self) -> Tensor:
        """Mean of each class's labelled features [K, d]; 0 where there are none."""
        return self.state["sums"] / self.state["counts"].clamp_min(1)[:, None]

    def against_the_others(self, scores: Tensor) -> Tensor:
        """Scores of the classes [K] less their mean; 0 for a class without a label."""
        named = self.state["counts"] > 0
        mean = scores[named].mean() if bool(named.any()) else 0.0
        return torch.where(named, scores - mean, 0.0).to(self.text)
