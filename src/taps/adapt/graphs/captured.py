"""The step of `taps.adapt.step`, recorded: the same functions, cut where the host has to decide something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from taps.adapt.gradient import NOTHING, Point, point_at
from taps.adapt.graphs.capture import Tape
from taps.adapt.graphs.side_stream import predict_beside, update_beside, view_zero
from taps.adapt.graphs.static_buffers import Chunks, StaticMemory
from taps.adapt.graphs.update import make_update
from taps.adapt.memory import Alignment, Memory
from taps.adapt.optimiser import Moments, fresh_moments
from taps.adapt.step import Outcome, Scored, StepSettings, nothing, score_views
from taps.prompts.classifier import Classifier

Gate = Callable[[Tensor], bool]


@dataclass(frozen=True)
class Given:
    """What stays the same for a whole stream."""

    classifier: Classifier
    memory: Memory | None
    settings: StepSettings
    alignment: Alignment | None
    anchor: Point | None = None  # where features of labelled images are taken, when prompts carry over


class EpisodicStep:
    """Every image starts from the same prompts: the labelled memory is a constant, the end is forgotten.

    Args:
        tape: What to record on.
        given: Of the stream.
        start: θ0, its graph built at the tape's home.
        views: Views of the shape that is going to be seen.
    """

    def __init__(self, tape: Tape, given: Given, start: Point, views: Tensor) -> None:
        self.tape, self.given, self.start = tape, given, start
        self.moments = fresh_moments(start.parameters)
        self.views = views.clone(memory_format=torch.contiguous_format)
        self.static = StaticMemory(start) if given.memory is not None else None
        self.score = tape.record(self._score)
        self.scored = self.score.result
        self.finish = tape.record(self._finish)

    def fits(self, start: Point, views: Tensor) -> bool:
        return start is self.start and views.shape == self.views.shape and views.dtype == self.views.dtype

    def __call__(self, start: Point, moments: Moments, views: Tensor, update: Gate | None) -> Outcome:
        self.views.copy_(views)
        self.score.replay()
        if self.static is not None and self.given.memory is not None:
            self.static.known.load(self.given.memory.constant())
        if update is not None and not update(self.scored.entropy):
            return not_updated(self.scored, start, moments)
        self.finish.replay()
        logits, taken = self.finish.result
        return outcome(self.scored, logits, taken, start, moments)

    def _score(self) -> Scored:
        return score_views(self.given.classifier, self.start, self.views, self.given.settings)

    def _finish(self) -> tuple[Tensor, Tensor]:
        given = self.given
        parameters, _, taken = update_beside(
            self.tape,
            given.classifier,
            self.start,
            self.moments,
            self.scored,
            self.static,
            given.settings,
            given.alignment,
        )
        return predict_beside(self.tape, given.classifier, self.scored, parameters), taken


class ContinualStep:
    """Prompts carry over: parameters and moments live at fixed places and are moved by each replay."""

    def __init__(self, tape: Tape, given: Given, start: Point, views: Tensor) -> None:
        self.tape, self.given = tape, given
        self.views = views.clone(memory_format=torch.contiguous_format)
        self.parameters = {name: value.clone() for name, value in start.parameters.items()}
        zeros = fresh_moments(self.parameters)
        count = torch.zeros((), dtype=torch.float64, device=start.text.device)
        self.moments = Moments(zeros.first, zeros.second, count)
        self.steps = 0
        self.text = tape.keep(self._text)
        self.point = self.text.result
        self.text.replay()
        self.static = StaticMemory(self.point) if given.memory is not None else None
        self.chunks: Chunks | None = None
        if self.static is not None and given.memory is not None:
            self.chunks = Chunks(given.classifier, self.point, given.memory, views[0], self.static.recent)
            self.chunks.record(tape)
        self.score = tape.record(self._score)
        self.scored = self.score.result
        own = tape.apart()
        self.update = make_update(
            tape, own, given.classifier, self.point, self.moments, self.scored, self.static,
            given.settings, given.alignment,
        )  # fmt: skip
        self.look = own.record(self._look)
        self.predict = tape.record(self._predict)

    def fits(self, start: Point, views: Tensor) -> bool:
        return views.shape == self.views.shape and views.dtype == self.views.dtype

    def __call__(self, start: Point, moments: Moments, views: Tensor, update: Gate | None) -> Outcome:
        if start is not self.point or moments.steps != self.steps:
            self._load(start, moments)
        self.views.copy_(views)
        self.score.replay()
        if update is not None and not update(self.scored.entropy):
            return not_updated(self.scored, self.point, self._now())
        self.update.begin()
        note_losses = self._remember()
        taken = self.update.finish()
        with self.tape.beside():
            self.look.replay()
        self.text.replay()
        self.tape.meet()
        self.predict.replay()
        self.steps += 1
        done = outcome(self.scored, self.predict.result, taken, self.point, self._now())
        if self.given.anchor is not None and self.given.anchor.tokens.vision is not None:
            done = replace(done, anchored=self.look.result[1].clone())
        return replace(done, note=note_losses)

    def _remember(self) -> Callable[[], None]:
        memory = self.given.memory
        if memory is None or self.static is None or self.chunks is None:
            return nothing
        if not len(memory.buffer):  # nobody was asked yet, or all was taken back
            self.static.recent.load(NOTHING)
            return nothing
        if memory.weight_fine:  # views of many shapes; rare enough to be left unrecorded
            self.static.recent.load(memory.fresh(self.given.classifier, self.point))
            return nothing
        return self.chunks.accumulate()

    def _load(self, start: Point, moments: Moments) -> None:
        """Go on from prompts that came from elsewhere: loaded, restored, or after a reset."""
        for mine, given in (
            (self.parameters, start.parameters),
            (self.moments.first, moments.first),
            (self.moments.second, moments.second),
        ):
            for name, value in given.items():
                mine[name].copy_(value)
        self.steps = int(moments.steps)
        assert isinstance(self.moments.steps, Tensor)
        self.moments.steps.fill_(self.steps)
        self.text.replay()

    def _now(self) -> Moments:
        return Moments(self.moments.first, self.moments.second, self.steps)

    def _text(self) -> Point:
        return point_at(self.given.classifier, self.parameters)

    def _score(self) -> Scored:
        return score_views(self.given.classifier, self.point, self.views, self.given.settings)

    @torch.no_grad()
    def _look(self) -> tuple[Tensor, Tensor]:
        """View 0's feature at the prompts after the update [1, d], and at the loaded ones [d]."""
        classifier, anchor = self.given.classifier, self.given.anchor
        # A copy: where prompts leave images alone there would be nothing to record.
        now = view_zero(classifier, self.scored, classifier.tokens(self.parameters).vision).clone()
        vision = None if anchor is None else anchor.tokens.vision
        return now, now[0] if vision is None else view_zero(classifier, self.scored, vision)[0]

    @torch.no_grad()
    def _predict(self) -> Tensor:
        return self.given.classifier.logits(self.look.result[0], self.point.text)[0]


def outcome(scored: Scored, logits: Tensor, taken: Tensor, end: Point, moments: Moments) -> Outcome:
    """Copies of what the caller may keep: the next replay overwrites the rest."""
    return Outcome(
        logits.clone(),
        scored.entropy.clone(),
        taken.clone(),
        scored.chosen.clone(),
        scored.features[0].clone(),
        end,
        moments,
        scored.ensemble.clone(),
    )


def not_updated(scored: Scored, end: Point, moments: Moments) -> Outcome:
    return outcome(scored, scored.logits[0], torch.tensor(False), end, moments)
