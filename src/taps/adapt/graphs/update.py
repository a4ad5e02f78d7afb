"""The update of a continual step as several graphs, so that some replay while the labelled images are run."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from taps.adapt.batch import ViewScores
from taps.adapt.gradient import NOTHING, Gradient, Point
from taps.adapt.graphs.capture import CapturedGraph, GraphCapture
from taps.adapt.graphs.setup import StreamSetup
from taps.adapt.graphs.side_stream import has_two_towers, move, see_views
from taps.adapt.graphs.static_buffers import StaticMemory
from taps.adapt.optimiser import Moments
from taps.adapt.step import Scored, update_prompts
from taps.prompts.base import Parameters


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
            new = update_prompts(
                setup.classifier, point, moments, scored, memory, setup.settings, setup.alignment
            )
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
            return see_views(setup, point, scored)

        def back() -> Tensor | None:
            return self.see.result.pull_back()

        def pull() -> Tensor:
            text = point.pull_back(Gradient(self.see.result.by_text, None) + Gradient(recent.text, None)).text
            assert text is not None
            return text

        def learn() -> Tensor:
            gradient = Gradient(self.pull.result, self.back.result) + Gradient(None, recent.vision)
            return write_back(point, moments, *move(setup, point, moments, gradient, memory))

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
    if has_two_towers(setup, point):
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
