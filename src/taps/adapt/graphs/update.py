"""The update of a continual step as several graphs, so that some replay while the labelled images are run."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from taps.adapt.gradient import Gradient, Point
from taps.adapt.graphs.capture import CapturedGraph, GraphCapture
from taps.adapt.graphs.side_stream import Seen, has_two_towers, move, see_views
from taps.adapt.graphs.static_buffers import StaticMemory
from taps.adapt.memory import Alignment
from taps.adapt.optimiser import Moments
from taps.adapt.step import Scored, StepSettings, update_prompts
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier


class Update(Protocol):
    """Step 7 of `taps.adapt.step`, moving parameters and moments where they lie."""

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
        classifier: The frozen model and the classes.
        point: The prompts; its parameters are moved.
        moments: Moved, too.
        scored: The views.
        memory: What the labelled images add.
        settings: Of the step.
        alignment: Of the step.
    """

    def __init__(
        self,
        graphs: GraphCapture,
        classifier: Classifier,
        point: Point,
        moments: Moments,
        scored: Scored,
        memory: StaticMemory | None,
        settings: StepSettings,
        alignment: Alignment | None,
    ) -> None:
        def learn() -> Tensor:
            new = update_prompts(classifier, point, moments, scored, memory, settings, alignment)
            return write_back(point, moments, *new)

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
        graphs: Captures the work.
        own: Captures what the side stream replays; it must not have captured anything yet.
        classifier: The frozen model and the classes.
        point: The prompts; its parameters are moved.
        moments: Moved, too.
        scored: The views.
        memory: What the labelled images add.
        settings: Of the step.
    """

    def __init__(
        self,
        graphs: GraphCapture,
        own: GraphCapture,
        classifier: Classifier,
        point: Point,
        moments: Moments,
        scored: Scored,
        memory: StaticMemory | None,
        settings: StepSettings,
    ) -> None:
        self.graphs = graphs

        def see() -> Seen:
            return see_views(classifier, point, scored, settings)

        def back() -> Tensor:
            return self.see.result.pull_back()

        def pull() -> Tensor:
            gradient = Gradient(self.see.result.by_text, None)
            if memory is not None:
                gradient = gradient + Gradient(memory.fresh(classifier, point).text, None)
            text = point.pull_back(gradient).text
            assert text is not None
            return text

        def learn() -> Tensor:
            gradient = Gradient(self.pull.result, self.back.result)
            if memory is not None:
                gradient = gradient + Gradient(None, memory.fresh(classifier, point).vision)
            return write_back(point, moments, *move(classifier, point, moments, gradient, memory, settings))

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
    classifier: Classifier,
    point: Point,
    moments: Moments,
    scored: Scored,
    memory: StaticMemory | None,
    settings: StepSettings,
    alignment: Alignment | None,
) -> Update:
    """A `SplitUpdate` where there are two towers to go back through, else a `WholeUpdate`."""
    if has_two_towers(point, settings, alignment):
        return SplitUpdate(graphs, own, classifier, point, moments, scored, memory, settings)
    return WholeUpdate(graphs, classifier, point, moments, scored, memory, settings, alignment)


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
