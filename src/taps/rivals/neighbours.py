"""Neighbours: the recent images most like one vote on its class; no labels, no gradient."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from taps.head.arrays import softmax
from taps.head.neighbours import RecentImages, vote
from taps.head.threads import one_thread
from taps.head.whitening import FeatureWhitener
from taps.methods import MethodOutput, Snapshot, method, setting
from taps.methods.base import to_array, to_arrays, to_tensors
from taps.methods.ensemble import EnsembleSettings, confident_mean, given_prompts
from taps.methods.frozen import Frozen
from taps.model.clip import Clip
from taps.saved import check_arrays


class NeighbourSettings(EnsembleSettings):
    """The views that TPT keeps, and the weight of the vote.

    Attributes:
        vote: τ, factor on the neighbours' log-odds; None for √(10/K), at most 1. With ten classes 1 pays;
            with hundreds, whose beliefs are less sure, ¼ does no harm.
    """

    vote: float | None = setting(None, at_least=0)


def usual_vote(classes: int) -> float:
    """τ where none is given.

    >>> [round(usual_vote(classes), 2) for classes in (7, 40, 160, 1000)]
    [1.0, 0.5, 0.25, 0.1]
    """
    return min(1.0, math.sqrt(10 / classes))


@method("neighbours", NeighbourSettings, prompts="optional")
class Neighbours(Frozen):
    """The confident views' mean, and the vote of the recent images most like this one; no gradient.

    The 16 nearest of the last 1,000 images are compared by the mean of their views, from the centre of the
    stream and in the views' metric (`taps.head.whitening`); p · e^(τ r), r being `taps.head.neighbours.vote`.
    """

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: NeighbourSettings, seed: int) -> None:
        rule = partial(confident_mean, fraction=settings.fraction, tsallis=settings.tsallis)
        super().__init__(clip, classes, rule, settings, prompts=given_prompts(clip, settings))
        dim = clip.config.embed_dim
        self.whitener = FeatureWhitener(dim, several=True)
        self.recent = RecentImages((2, dim), (1, len(classes)))
        self.stream = np.zeros(len(classes))
        self.vote = usual_vote(len(classes)) if settings.vote is None else settings.vote

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        output = super().predict(views, ahead)
        assert output.features is not None
        features, logs = to_array(output.features), to_array(torch.log(output.probs.clamp_min(1e-12)))
        if not (np.isfinite(features).all() and np.isfinite(logs).all()):
            return output
        self.stream = self.stream + np.exp(logs)
        with one_thread():
            look = self.recent.look(self.whitener.see(features), logs[None])
        cosines = look.cosines.astype(np.float64)
        odds = vote(np.exp(look.logs[1:, 0]), cosines, self.stream / self.stream.sum())
        probs = torch.from_numpy(softmax(logs + self.vote * odds)).to(output.probs)
        entropy = float(-(probs * torch.log(probs.clamp_min(1e-12))).sum())
        return replace(output, probs=probs, entropy=entropy)

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def snapshot(self) -> Snapshot:
        arrays = {**self.whitener.arrays(), **self.recent.arrays(), "stream": self.stream}
        begun = super().snapshot()
        return Snapshot(begun.tensors | to_tensors(arrays), begun.values)

    def restore(self, snapshot: Snapshot) -> None:
        arrays = to_arrays(snapshot.tensors)
        self.whitener.restore(arrays)
        self.recent.restore(arrays)
        check_arrays(arrays, {"stream": (range(1, len(self.stream) + 1),)}, at_least=0)
        self.stream = np.pad(arrays["stream"], (0, len(self.stream) - len(arrays["stream"])))
