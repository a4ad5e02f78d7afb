"""The parts of `taps.learning.step` as captured graphs, cut where the host has to decide something.

The kernels of a step are too small to fill a GPU one by one. So the backward through the text tower overlaps
with the one through the vision tower; after the update, encoding the texts overlaps with encoding view 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from taps.learning.alignment import Alignment
from taps.learning.fast.capture import CapturedGraph, GraphCapture
from taps.learning.fast.static_buffers import Chunks, StaticGradient, StaticMemory
from taps.learning.gradient import NOTHING, Gradient, Point, differentiate, leaves_of, point_at
from taps.learning.losses import cross_entropies
from taps.learning.memory import Known, Labelled, Memory, ReplayItem, labelled_logits, stack_inputs
from taps.learning.optimiser import Moments, fresh_moments
from taps.learning.step import (
    Scored,
    StepResult,
    StepSettings,
    ViewScores,
    differentiate_views,
    encode_view,
    move,
    not_updated,
    nothing,
    predict_view,
    pull_back_texts,
    score_views,
    step_gradient,
    step_result,
    take_step,
)
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.families import Parameters

Gate = Callable[[Tensor], bool]
"""Decides by an image's entropy whether to learn from it."""


@dataclass(frozen=True)
class StreamSetup:
    """The arguments of a step that stay the same for a whole stream."""

    classifier: Classifier
    memory: Memory | None
    settings: StepSettings
    alignment: Alignment | None
    anchor: Point | None = None  # where features of labelled images are taken, when prompts carry over

    def update(
        self,
        start: Point,
        moments: Moments,
        scored: Scored,
        memory: Labelled | None,
        graphs: GraphCapture,
    ) -> tuple[Parameters, Moments, Tensor]:
        """Step 7 in one piece."""
        gradient = step_gradient(
            self.classifier, start, scored, memory, self.settings, self.alignment, graphs
        )
        return move(self.classifier, start, moments, gradient, self.settings)


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
            return copied(not_updated(self.scored, start, moments))
        self.finish.replay()
        return copied(step_result(self.scored, *self.finish.result, start, moments))

    def _score(self) -> Scored:
        return score_views(self.setup.classifier, self.start, self.views, self.setup.settings)

    def _finish(self) -> tuple[Tensor, Tensor]:
        setup, start, scored = self.setup, self.start, self.scored
        parameters, _, taken = setup.update(start, self.moments, scored, self.static, self.graphs)
        return predict_view(setup.classifier, scored, parameters, self.graphs), taken


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
            return copied(not_updated(self.scored, self.point, self._now()))
        self.update.begin()
        note_losses = self._remember()
        taken = self.update.finish()
        with self.graphs.side_stream():
            self.look.replay()
        self.text.replay()
        self.graphs.join()
        self.predict.replay()
        self.steps += 1
        done = copied(step_result(self.scored, self.predict.result, taken, self.point, self._now()))
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
        now = encode_view(classifier, self.scored, classifier.tokens(self.parameters).vision).clone()
        vision = None if anchor is None else anchor.tokens.vision
        return now, now[0] if vision is None else encode_view(classifier, self.scored, vision)[0]

    @torch.no_grad()
    def _predict(self) -> Tensor:
        return self.setup.classifier.logits(self.look.result[0], self.point.text)[0]


def copied(result: StepResult) -> StepResult:
    """The same in tensors of its own: the next replay overwrites the originals."""
    return replace(
        result,
        logits=result.logits.clone(),
        entropy=result.entropy.clone(),
        taken=result.taken.clone(),
        chosen=result.chosen.clone(),
        ensemble=result.ensemble.clone(),
        features=result.features.clone(),
    )


class CapturedSteps:
    """The step of as many images as are given when it is made, all of which start alike.

    Args:
        graphs: Captures the work.
        classifier: The frozen model and the classes.
        start: θ0, its autograd graph built on the capture stream.
        views: Of the number and shape that are going to be seen.
        labelled: What the labelled memories add, likewise.
        settings: Of the step.
    """

    def __init__(
        self,
        graphs: GraphCapture,
        classifier: Classifier,
        start: Point,
        views: Tensor,
        labelled: Gradient,
        settings: StepSettings,
    ) -> None:
        self.start = start
        self.views = views.clone(memory_format=torch.contiguous_format)
        self.labelled = StaticGradient(labelled.text, labelled.vision, torch.float64)
        self.moments = fresh_moments(start.parameters)
        memory = Known(self.labelled.value)

        def steps() -> tuple[Tensor, ...]:
            done = take_step(classifier, start, self.moments, self.views, memory, settings, streams=graphs)
            return done.logits, done.entropy, done.taken, done.chosen, done.ensemble, done.features

        self.graph = graphs.capture(steps)

    def fits(self, start: Point, views: Tensor) -> bool:
        return start is self.start and views.shape == self.views.shape and views.dtype == self.views.dtype

    def __call__(self, views: Tensor, labelled: Gradient) -> StepResult:
        self.views.copy_(views)
        self.labelled.load(labelled)
        self.graph.replay()
        logits, entropy, taken, chosen, ensemble, features = (each.clone() for each in self.graph.result)
        return StepResult(logits, entropy, taken, chosen, self.start, self.moments, ensemble, features)


class CapturedAnswer:
    """What `Memory.sample_gradient` gives for an episodic memory without fine alignment.

    Args:
        graphs: Captures the work.
        classifier: The frozen model and the classes.
        point: θ0, its autograd graph built on the capture stream.
        item: An image of the shape that is going to be seen.
        weight_ce: α.
    """

    def __init__(
        self, graphs: GraphCapture, classifier: Classifier, point: Point, item: ReplayItem, weight_ce: float
    ) -> None:
        self.classifier, self.point, self.weight_ce = classifier, point, weight_ce
        self.inputs = stack_inputs([item], point).clone()
        self.target = torch.zeros(1, dtype=torch.long, device=self.inputs.device)
        self.graph = graphs.capture(self._differentiate)

    def __call__(self, item: ReplayItem, label: int) -> tuple[Gradient, float]:
        self.inputs.copy_(stack_inputs([item], self.point))
        self.target.fill_(label)
        self.graph.replay()
        gradient, loss = self.graph.result
        kept = (None if part is None else part.clone() for part in (gradient.text, gradient.vision))
        return Gradient(*kept), float(loss)

    def _differentiate(self) -> tuple[Gradient, Tensor]:
        text, vision = leaves_of(self.point)
        with torch.enable_grad():
            logits = labelled_logits(self.classifier, self.inputs, text, vision)
            loss = cross_entropies(logits, self.target).sum()
        gradient = differentiate(self.weight_ce * loss, text, vision)
        return self.point.pull_back(gradient), loss.detach()


class Update(Protocol):
    """Step 7 of `taps.learning.step`, moving parameters and moments where they lie."""

    stages: dict[str, CapturedGraph[object]]

    def begin(self) -> None:
        """Launch what needs no labelled image, on the side stream."""
        ...

    def finish(self) -> Tensor:
        """Launch the rest; whether the update was made."""
        ...


class WholeUpdate:
    """One tower alone, or alignment to go back through: all in one piece.

    Args:
        graphs: Captures the work.
        setup: Of the stream.
        point: The prompts; its parameters are moved.
        moments: Moved, too.
        scored: The views.
        memory: What the labelled images add.
    """

    def __init__(
        self,
        graphs: GraphCapture,
        setup: StreamSetup,
        point: Point,
        moments: Moments,
        scored: Scored,
        memory: StaticMemory | None,
    ) -> None:
        def learn() -> Tensor:
            return write_back(point, moments, *setup.update(point, moments, scored, memory, graphs))

        self.learn = graphs.capture(learn)
        self.stages: dict[str, CapturedGraph[object]] = {"learn": self.learn}

    def begin(self) -> None:
        pass

    def finish(self) -> Tensor:
        self.learn.replay()
        return self.learn.result


class SplitUpdate:
    """Prompts in both towers: four graphs on two streams.

    The forward of the confident views overlaps with the labelled images; the backward through the vision
    tower overlaps with the one through the text tower.

    Args:
        graphs: Captures the work, like the other arguments as for `WholeUpdate`.
        own: Captures what the side stream replays; it must not have captured anything yet.
    """

    def __init__(
        self,
        graphs: GraphCapture,
        own: GraphCapture,
        setup: StreamSetup,
        point: Point,
        moments: Moments,
        scored: Scored,
        memory: StaticMemory | None,
    ) -> None:
        self.graphs = graphs
        recent = NOTHING if memory is None else memory.recent.value

        def see() -> ViewScores:
            return differentiate_views(setup.classifier, point, scored, setup.settings)

        def back() -> Tensor | None:
            return self.see.result.pull_back()

        def pull() -> Tensor:
            by_text = Gradient(self.see.result.by_text, None) + Gradient(recent.text, None)
            text = pull_back_texts(setup.classifier, point, by_text)
            assert text is not None
            return text

        def learn() -> Tensor:
            gradient = Gradient(self.pull.result, self.back.result) + Gradient(None, recent.vision)
            gradient = gradient if memory is None else gradient + memory.constant()
            return write_back(
                point, moments, *move(setup.classifier, point, moments, gradient, setup.settings)
            )

        self.see = own.capture_autograd(see)
        self.see.replay()
        self.back = own.capture(back)
        self.pull = graphs.capture(pull)
        self.learn = graphs.capture(learn)
        self.stages: dict[str, CapturedGraph[object]] = {
            "see": self.see, "back": self.back, "pull": self.pull, "learn": self.learn
        }  # fmt: skip

    def begin(self) -> None:
        with self.graphs.side_stream():
            self.see.replay()

    def finish(self) -> Tensor:
        self.graphs.join()
        with self.graphs.side_stream():
            self.back.replay()
        self.pull.replay()
        self.graphs.join()
        self.learn.replay()
        return self.learn.result


def make_update(
    graphs: GraphCapture,
    own: GraphCapture,
    setup: StreamSetup,
    point: Point,
    moments: Moments,
    scored: Scored,
    memory: StaticMemory | None,
) -> Update:
    """A `SplitUpdate` where there are two towers to go back through, else a `WholeUpdate`."""
    two_towers = point.tokens.vision is not None and point.graph is not None
    if two_towers and not (setup.settings.weight_coarse and setup.alignment):
        return SplitUpdate(graphs, own, setup, point, moments, scored, memory)
    return WholeUpdate(graphs, setup, point, moments, scored, memory)


def write_back(point: Point, moments: Moments, parameters: Parameters, new: Moments, taken: Tensor) -> Tensor:
    """Copy the new values into the static buffers of the old ones; returns `taken`."""
    copy_values(point.parameters, moments, parameters, new)
    assert isinstance(moments.steps, Tensor)
    moments.steps.add_(1)
    return taken


def copy_values(parameters: Parameters, moments: Moments, new_parameters: Parameters, new: Moments) -> None:
    """Copy parameters and moments, all but the number of steps, into the static buffers of others."""
    pairs = (parameters, new_parameters), (moments.first, new.first), (moments.second, new.second)
    for mine, given in pairs:
        for name, value in given.items():
            mine[name].copy_(value)
