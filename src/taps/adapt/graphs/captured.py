"""The step of `taps.adapt.step` as captured graphs, cut where the host has to decide something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from taps.adapt.gradient import NOTHING, Point, point_at
from taps.adapt.graphs.capture import GraphCapture
from taps.adapt.graphs.setup import StreamSetup
from taps.adapt.graphs.side_stream import predict_on_two_streams, update_on_two_streams, view_zero
from taps.adapt.graphs.static_buffers import Chunks, StaticMemory
from taps.adapt.graphs.update import copy_values, make_update
from taps.adapt.memory import Memory
from taps.adapt.optimiser import Moments, fresh_moments
from taps.adapt.step import Scored, StepResult, nothing, score_views

Gate = Callable[[Tensor], bool]
"""Decides by an image's entropy whether to learn from it."""


class EpisodicStep:
    """The step where every image starts from the same prompts and the updated ones are dropped.

    The labelled memory's gradient is a constant then, and streams with the same prompts can take turns.

    Args:
        graphs: Captures the work.
        setup: Of the stream.
        start: θ0, its autograd graph built on the capture stream.
        views: Views of the shape that is going to be seen.
    """

    def __init__(self, graphs: GraphCapture, setup: StreamSetup, start: Point, views: Tensor) -> None:
        self.graphs, self.setup, self.start = graphs, setup, start
        self.moments = fresh_moments(start.parameters)
        self.views = views.clone(memory_format=torch.contiguous_format)
        self.static = StaticMemory(start) if setup.memory is not None else None
        self.score = graphs.capture(self._score)
        self.scored = self.score.result
        self.finish = graphs.capture(self._finish)

    def fits(self, start: Point, views: Tensor) -> bool:
        return start is self.start and views.shape == self.views.shape and views.dtype == self.views.dtype

    def __call__(
        self, start: Point, moments: Moments, views: Tensor, memory: Memory | None, update: Gate | None
    ) -> StepResult:
        self.views.copy_(views)
        self.score.replay()
        if self.static is not None and memory is not None:
            self.static.known.load(memory.constant())
        if update is not None and not update(self.scored.entropy):
            return not_updated(self.scored, start, moments)
        self.finish.replay()
        logits, taken = self.finish.result
        return copied_result(self.scored, logits, taken, start, moments)

    def _score(self) -> Scored:
        return score_views(self.setup.classifier, self.start, self.views, self.setup.settings)

    def _finish(self) -> tuple[Tensor, Tensor]:
        parameters, _, taken = update_on_two_streams(
            self.graphs, self.setup, self.start, self.moments, self.scored, self.static
        )
        return predict_on_two_streams(self.graphs, self.setup.classifier, self.scored, parameters), taken


class ContinualStep:
    """The step where prompts carry over: parameters and moments are static buffers, updated by replays."""

    def __init__(self, graphs: GraphCapture, setup: StreamSetup, start: Point, views: Tensor) -> None:
        self.graphs, self.setup = graphs, setup
        self.views = views.clone(memory_format=torch.contiguous_format)
        self.parameters = {name: value.clone() for name, value in start.parameters.items()}
        zeros = fresh_moments(self.parameters)
        count = torch.zeros((), dtype=torch.float64, device=start.text.device)
        self.moments = Moments(zeros.first, zeros.second, count)
        self.steps = 0
        self.text = graphs.capture_autograd(self._text)
        self.point = self.text.result
        self.text.replay()
        self.static = StaticMemory(self.point) if setup.memory is not None else None
        self.chunks: Chunks | None = None
        if self.static is not None and setup.memory is not None:
            self.chunks = Chunks(setup.classifier, self.point, setup.memory, views[0], self.static.recent)
            self.chunks.capture(graphs)
        self.score = graphs.capture(self._score)
        self.scored = self.score.result
        own = graphs.with_own_memory()
        self.update = make_update(graphs, own, setup, self.point, self.moments, self.scored, self.static)
        self.look = own.capture(self._look)
        self.predict = graphs.capture(self._predict)

    def fits(self, start: Point, views: Tensor) -> bool:
        return views.shape == self.views.shape and views.dtype == self.views.dtype

    def __call__(
        self, start: Point, moments: Moments, views: Tensor, memory: Memory | None, update: Gate | None
    ) -> StepResult:
        if start is not self.point or moments.steps != self.steps:
            self._load(start, moments)
        self.views.copy_(views)
        self.score.replay()
        if update is not None and not update(self.scored.entropy):
            return not_updated(self.scored, self.point, self._now())
        self.update.begin()
        note_losses = self._remember()
        taken = self.update.finish()
        with self.graphs.side_stream():
            self.look.replay()
        self.text.replay()
        self.graphs.join()
        self.predict.replay()
        self.steps += 1
        done = copied_result(self.scored, self.predict.result, taken, self.point, self._now())
        if self.setup.anchor is not None and self.setup.anchor.tokens.vision is not None:
            done = replace(done, anchored=self.look.result[1].clone())
        return replace(done, note=note_losses)

    def _remember(self) -> Callable[[], None]:
        memory = self.setup.memory
        if memory is None or self.static is None or self.chunks is None:
            return nothing
        if not len(memory.buffer):  # nobody was asked yet, or all was taken back
            self.static.recent.load(NOTHING)
            return nothing
        if memory.weight_fine:  # views of many shapes; rare enough to be left uncaptured
            self.static.recent.load(memory.fresh(self.setup.classifier, self.point))
            return nothing
        return self.chunks.accumulate()

    def _load(self, start: Point, moments: Moments) -> None:
        """Go on from prompts that came from elsewhere: loaded, restored, or after a reset."""
        copy_values(self.parameters, self.moments, start.parameters, moments)
        self.steps = int(moments.steps)
        assert isinstance(self.moments.steps, Tensor)
        self.moments.steps.fill_(self.steps)
        self.text.replay()

    def _now(self) -> Moments:
        return Moments(self.moments.first, self.moments.second, self.steps)

    def _text(self) -> Point:
        return point_at(self.setup.classifier, self.parameters)

    def _score(self) -> Scored:
        return score_views(self.setup.classifier, self.point, self.views, self.setup.settings)

    @torch.no_grad()
    def _look(self) -> tuple[Tensor, Tensor]:
        """View 0's feature at the prompts after the update [1, d], and at the loaded ones [d]."""
        classifier, anchor = self.setup.classifier, self.setup.anchor
        # A copy: where prompts leave images alone there would be nothing to capture.
        now = view_zero(classifier, self.scored, classifier.tokens(self.parameters).vision).clone()
        vision = None if anchor is None else anchor.tokens.vision
        return now, now[0] if vision is None else view_zero(classifier, self.scored, vision)[0]

    @torch.no_grad()
    def _predict(self) -> Tensor:
        return self.setup.classifier.logits(self.look.result[0], self.point.text)[0]


def copied_result(scored: Scored, logits: Tensor, taken: Tensor, end: Point, moments: Moments) -> StepResult:
    """A result whose tensors are copies: the next replay overwrites the originals."""
    return StepResult(
        logits.clone(),
        scored.entropy.clone(),
        taken.clone(),
        scored.chosen.clone(),
        scored.features[0].clone(),
        end,
        moments,
        scored.ensemble.clone(),
        scored.features.clone(),
    )


def not_updated(scored: Scored, end: Point, moments: Moments) -> StepResult:
    skipped = torch.zeros_like(scored.entropy, dtype=torch.bool)
    return copied_result(scored, scored.logits[0], skipped, end, moments)
