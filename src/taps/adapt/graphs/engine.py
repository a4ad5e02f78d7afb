"""How steps are taken: as written, or recorded on a GPU. The numbers are the same."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from taps.adapt.gradient import Point, point_at
from taps.adapt.graphs.answer import RecordedAnswer
from taps.adapt.graphs.capture import CudaTape, Tape
from taps.adapt.graphs.captured import ContinualStep, EpisodicStep, Gate, Given
from taps.adapt.memory import Alignment, Memory, ReplayItem
from taps.adapt.optimiser import Moments
from taps.adapt.step import Outcome, StepSettings, always, take_step
from taps.errors import SettingsError
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier

log = logging.getLogger("taps")
ENGINES = ("auto", "eager", "graph")


class Engine:
    """Takes steps for one stream.

    Args:
        kind: "auto" records on CUDA and goes on eagerly where that fails, "eager" never records, "graph"
            fails where it cannot record.
        device: Of the model.
        episodic: Whether every image starts from the same prompts.
        tape: What to record on; None for the device's own.
    """

    def __init__(self, kind: str, device: torch.device, *, episodic: bool, tape: Tape | None = None) -> None:
        if kind == "graph" and device.type != "cuda" and tape is None:
            raise SettingsError("The engine 'graph' needs a CUDA device; use 'auto' or 'eager'.")
        self.kind, self.episodic = kind, episodic
        if tape is None and device.type == "cuda" and kind != "eager":
            tape = CudaTape(device)
        self.tape = None if kind == "eager" else tape
        self.recorded: EpisodicStep | ContinualStep | None = None
        self.answer: RecordedAnswer | None = None
        self.answers_recorded = True

    def point_at(self, classifier: Classifier, parameters: Parameters) -> Point:
        """The prompts a stream starts from, where recordings can differentiate them."""
        if self.tape is None:
            return point_at(classifier, parameters)
        with self.tape.home():  # a continual recording has a graph of its own
            return point_at(classifier, parameters, graph=self.episodic)

    def step(
        self,
        classifier: Classifier,
        start: Point,
        moments: Moments,
        views: Tensor,
        memory: Memory | None,
        settings: StepSettings,
        *,
        alignment: Alignment | None = None,
        update: Gate | None = None,
        anchor: Point | None = None,
    ) -> Outcome:
        """What `take_step` does."""
        if self.tape is not None:
            given = Given(classifier, memory, settings, alignment, anchor)
            recorded = self._recorded(self.tape, given, start, views.to(start.text.device))
            if recorded is not None:
                return recorded(start, moments, views, update)
        if start.graph is None and start.tokens.text is not None:
            start = point_at(classifier, start.parameters)
        return take_step(
            classifier,
            start,
            moments,
            views,
            memory,
            settings,
            alignment=alignment,
            update=update or always,
            keep_graph=not self.episodic,
        )

    def learn(
        self, classifier: Classifier, point: Point, memory: Memory, id: int, label: int, item: ReplayItem
    ) -> None:
        """Take in an answer: what `Memory.insert` does."""
        recorded = None
        if self.tape is not None and memory.anchor is not None and not memory.weight_fine:
            recorded = self._answer(self.tape, classifier, memory.anchor, item, memory.weight_ce)
        memory.insert(classifier, point, id, label, item, recorded=recorded)

    def _answer(
        self, tape: Tape, classifier: Classifier, anchor: Point, item: ReplayItem, weight_ce: float
    ) -> RecordedAnswer | None:
        if self.answer is not None and self.answer.point is not anchor:
            self.answer = None
        if self.answer is None and self.answers_recorded:
            try:
                self.answer = RecordedAnswer(tape, classifier, anchor, item, weight_ce)
            except RuntimeError as error:
                if self.kind == "graph":
                    raise
                self.answers_recorded = False
                log.info("Answers are taken in unrecorded (%s).", error)
        return self.answer

    def _recorded(
        self, tape: Tape, given: Given, start: Point, views: Tensor
    ) -> EpisodicStep | ContinualStep | None:
        if self.recorded is not None and self.recorded.fits(start, views):
            return self.recorded
        build = EpisodicStep if self.episodic else ContinualStep
        self.recorded = None  # its memory is free before the next one takes some
        try:
            try:
                self.recorded = build(tape, given, start, views)
            except RuntimeError as error:
                if not tape.narrow():
                    raise
                log.info("The step cannot be recorded on two lanes; trying one (%s).", error)
                self.recorded = build(tape, given, start, views)
        except RuntimeError as error:
            if self.kind == "graph":
                raise
            log.warning("The step cannot be recorded on this device and runs unrecorded (%s).", error)
            self.tape = None
        return self.recorded
