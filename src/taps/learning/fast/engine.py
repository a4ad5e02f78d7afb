"""How steps are computed: eagerly, or by replaying captured CUDA graphs. The numbers are the same."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from taps.errors import SettingsError
from taps.learning.alignment import Alignment
from taps.learning.fast.capture import CudaCapture, GraphCapture
from taps.learning.fast.captured import (
    CapturedAnswer,
    CapturedSteps,
    ContinualStep,
    EpisodicStep,
    Gate,
    StreamSetup,
)
from taps.learning.gradient import Gradient, Point, point_at
from taps.learning.memory import Known, Memory, ReplayItem, labelled_gradients
from taps.learning.optimiser import Moments, fresh_moments
from taps.learning.step import StepResult, StepSettings, always, take_step
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.families import Parameters

log = logging.getLogger("taps")
T = TypeVar("T")
ENGINES = ("auto", "eager", "graph")
VIEWS = {"cpu": 32, "cuda": 512}  # run together; more of them gain nothing and take memory
IMAGES = 32  # run together, where each has few views
FEWEST = {"cpu": 4}  # images that gain by running together; fewer are as fast or faster one by one


def batch_size(views: int, device: str = "cuda") -> int:
    """How many images of so many views run together on a kind of device.

    >>> batch_size(64), batch_size(1), batch_size(1, "cpu"), batch_size(8, "cpu")
    (8, 32, 32, 4)
    """
    fit = min(IMAGES, VIEWS.get(device, VIEWS["cuda"]) // views)
    return fit if fit >= FEWEST.get(device, 1) else 1


def report(probs: Tensor, entropy: Tensor, taken: Tensor) -> Tensor:
    """Probabilities [K], H_t and whether the update was made, as one tensor; of many steps, in rows."""
    return torch.cat([probs, entropy[..., None], taken[..., None]], dim=-1)


def send_to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Start a copy to the host; the function waits for it, but not for work launched since."""
    if not tensor.is_cuda:
        return tensor.cpu
    host = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
    copied = torch.cuda.current_stream(tensor.device).record_event()

    def arrived() -> Tensor:
        copied.synchronize()
        return host

    return arrived


def each_of(many: StepResult) -> list[StepResult]:
    """The results of many images one by one; the copy of each `report` to the host is started."""
    arrived = send_to_host(report(torch.softmax(many.logits, dim=-1), many.entropy, many.taken))

    def result(index: int) -> StepResult:
        logits, entropy, taken = many.logits[index], many.entropy[index], many.taken[index]
        chosen, ensemble, features = many.chosen[index], many.ensemble[index], many.features[index]
        one = StepResult(logits, entropy, taken, chosen, many.end, many.moments, ensemble, features)
        return replace(one, arrived=lambda: arrived()[index])

    return [result(index) for index in range(len(many.logits))]


class Engine:
    """Takes steps for one stream, or for several that start from the same prompts.

    Args:
        kind: "auto" captures on CUDA and goes on eagerly where that fails, "eager" never captures, "graph"
            fails where it cannot capture.
        device: Of the model.
        episodic: Whether every image starts from the same prompts.
        graphs: Captures the work; None for the device's own way.
    """

    def __init__(
        self, kind: str, device: torch.device, *, episodic: bool, graphs: GraphCapture | None = None
    ) -> None:
        if kind == "graph" and device.type != "cuda" and graphs is None:
            raise SettingsError("The engine 'graph' needs a CUDA device; use 'auto' or 'eager'.")
        self.kind, self.episodic = kind, episodic
        if graphs is None and device.type == "cuda" and kind != "eager":
            graphs = CudaCapture(device)
        self.graphs = None if kind == "eager" else graphs
        self.captured: EpisodicStep | ContinualStep | None = None
        self.answer: CapturedAnswer | None = None
        self.answers_captured = True
        self.batches: dict[int, CapturedSteps] = {}
        self.lock = threading.Lock()  # captured work has one place for its inputs, whoever replays it

    def point_at(self, classifier: Classifier, parameters: Parameters) -> Point:
        """The prompts a stream starts from, such that captured work can differentiate them."""
        if self.graphs is None:
            return point_at(classifier, parameters)
        with self.graphs.capture_stream():  # a continual step captures an autograd graph of its own
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
    ) -> StepResult:
        """What `take_step` does."""
        if self.graphs is not None:
            setup = StreamSetup(classifier, memory, settings, alignment, anchor)
            # A captured graph reads and writes fixed buffers: two threads must not replay it at once.
            with self.lock:
                captured = self._captured_step(self.graphs, setup, start, views.to(start.text.device))
                if captured is not None:
                    return captured(start, moments, views, memory, update)
        # The eager step differentiates through the text tower, so it needs its graph.
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

    def steps(
        self,
        classifier: Classifier,
        start: Point,
        views: Tensor,
        memories: Sequence[Memory | None],
        settings: StepSettings,
    ) -> list[StepResult]:
        """Episodic steps of several images [B, N, 3, S, S], each with its own labelled memory.

        Captured are steps of 2, 4, 8 ... images; other numbers are made of these.
        """
        if len(views) == 1:
            moments = fresh_moments(start.parameters)
            return [self.step(classifier, start, moments, views[0], memories[0], settings)]
        size = 1 << (len(views).bit_length() - 1)
        if self.graphs is not None and size < len(views):
            parts = ((views[:size], memories[:size]), (views[size:], memories[size:]))
            return [one for part in parts for one in self.steps(classifier, start, *part, settings)]
        views, labelled = views.to(start.text.device), labelled_gradients(memories, start)
        with self.lock:
            captured = self._captured_steps(classifier, start, views, labelled, settings)
            if captured is not None:
                return each_of(captured(views, labelled))
        moments = fresh_moments(start.parameters)
        return each_of(take_step(classifier, start, moments, views, Known(labelled), settings))

    def learn(
        self, classifier: Classifier, point: Point, memory: Memory, id: int, label: int, item: ReplayItem
    ) -> None:
        """Take in an answer: what `Memory.insert` does."""
        with self.lock:
            captured = None
            if self.graphs is not None and memory.anchor is not None and not memory.weight_fine:
                captured = self._answer(self.graphs, classifier, memory.anchor, item, memory.weight_ce)
            memory.insert(classifier, point, id, label, item, captured=captured)

    def _answer(
        self, graphs: GraphCapture, classifier: Classifier, anchor: Point, item: ReplayItem, weight_ce: float
    ) -> CapturedAnswer | None:
        if self.answer is not None and self.answer.point is not anchor:
            self.answer = None
        if self.answer is None and self.answers_captured:
            try:
                self.answer = CapturedAnswer(graphs, classifier, anchor, item, weight_ce)
            except RuntimeError as error:
                if self.kind == "graph":
                    raise
                self.answers_captured = False
                log.info("Answers are taken in without a CUDA graph (%s).", error)
        return self.answer

    def _captured_steps(
        self,
        classifier: Classifier,
        start: Point,
        views: Tensor,
        labelled: Gradient,
        settings: StepSettings,
    ) -> CapturedSteps | None:
        if self.graphs is None:
            return None
        found = self.batches.pop(len(views), None)
        try:
            if found is None or not found.fits(start, views):
                found = None  # its memory is free before the next one takes some
                found = _on_two_streams_or_one(
                    self.graphs,
                    lambda graphs: CapturedSteps(graphs, classifier, start, views, labelled, settings),
                )
            self.batches[len(views)] = found
        except RuntimeError as error:
            if self.kind == "graph":
                raise
            log.warning("Steps of several images cannot be captured and run without CUDA graphs (%s).", error)
            self.graphs = None
        return found

    def _captured_step(
        self, graphs: GraphCapture, setup: StreamSetup, start: Point, views: Tensor
    ) -> EpisodicStep | ContinualStep | None:
        if self.captured is not None and self.captured.fits(start, views):
            return self.captured
        build = EpisodicStep if self.episodic else ContinualStep
        self.captured = None  # its memory is free before the next one takes some
        try:
            self.captured = _on_two_streams_or_one(graphs, lambda graphs: build(graphs, setup, start, views))
        except RuntimeError as error:
            if self.kind == "graph":
                raise
            log.warning(
                "The step cannot be captured on this device and runs without CUDA graphs (%s).", error
            )
            self.graphs = None
        return self.captured


def _on_two_streams_or_one(graphs: GraphCapture, build: Callable[[GraphCapture], T]) -> T:
    try:
        return build(graphs)
    except RuntimeError as error:
        if not graphs.drop_side_stream():
            raise
        log.info("The step cannot be captured on two streams; trying one (%s).", error)
        return build(graphs)


@dataclass
class Start:
    """Where episodic streams start: the engine that takes their steps, and θ0 with its graph."""

    engine: Engine
    anchor: Point


_SHARED: WeakValueDictionary[Hashable, Start] = WeakValueDictionary()


def shared_start(key: Hashable, make: Callable[[], Start]) -> Start:
    """The start of all streams with this key, as long as one of them lives.

    θ0's graph takes memory for every text, and captured steps take much more: a thousand streams of one
    model should take it once.
    """
    found = _SHARED.get(key)
    if found is None:
        found = _SHARED[key] = make()
    return found
