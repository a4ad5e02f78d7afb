"""The update of a continual step, recorded in pieces, so that some run beside the labelled images."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from taps.adapt.gradient import Gradient, Point
from taps.adapt.graphs.capture import Recording, Tape
from taps.adapt.graphs.side_stream import Seen, has_two_towers, move, see_views
from taps.adapt.graphs.static_buffers import StaticMemory
from taps.adapt.memory import Alignment
from taps.adapt.optimiser import Moments
from taps.adapt.step import Scored, StepSettings, update_prompts
from taps.prompts.classifier import Classifier


class Update(Protocol):
    """Step 7 of `taps.adapt.step`, moving parameters and moments where they lie."""

    stages: dict[str, Recording[object]]

    def begin(self) -> None:
        """Launch what needs no labelled image, on the second lane."""
        ...

    def finish(self) -> Tensor:
        """Launch the rest; whether the update was made."""
        ...


class WholeUpdate:
    """One tower alone, or alignment to go back through: all in one piece.

    Args:
        tape: What to record on.
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
        tape: Tape,
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
            return settle(point, moments, *new)

        self.learn = tape.record(learn)
        self.stages: dict[str, Recording[object]] = {"learn": self.learn}

    def begin(self) -> None:
        pass

    def finish(self) -> Tensor:
        self.learn.replay()
        return self.learn.result


class SplitUpdate:
    """Prompts in both towers: the confident views are seen beside the labelled images, and the way back
    through the vision tower runs beside the one through the text tower.

    Args:
        tape: What to record on.
        own: Another, for what runs beside; nothing may be recorded on it yet.
        classifier: The frozen model and the classes.
        point: The prompts; its parameters are moved.
        moments: Moved, too.
        scored: The views.
        memory: What the labelled images add.
        settings: Of the step.
    """

    def __init__(
        self,
        tape: Tape,
        own: Tape,
        classifier: Classifier,
        point: Point,
        moments: Moments,
        scored: Scored,
        memory: StaticMemory | None,
        settings: StepSettings,
    ) -> None:
        self.tape = tape

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
            return settle(point, moments, *move(classifier, point, moments, gradient, memory, settings))

        self.see = own.keep(see)
        self.see.replay()
        self.back = own.record(back)
        self.pull = tape.record(pull)
        self.learn = tape.record(learn)
        self.stages: dict[str, Recording[object]] = {
            "see": self.see, "back": self.back, "pull": self.pull, "learn": self.learn
        }  # fmt: skip

    def begin(self) -> None:
        with self.tape.beside():
            self.see.replay()

    def finish(self) -> Tensor:
        self.tape.meet()
        with self.tape.beside():
            self.back.replay()
        self.pull.replay()
        self.tape.meet()
        self.learn.replay()
        return self.learn.result


def make_update(
    tape: Tape,
    own: Tape,
    classifier: Classifier,
    point: Point,
    moments: Moments,
    scored: Scored,
    memory: StaticMemory | None,
    settings: StepSettings,
    alignment: Alignment | None,
) -> Update:
    """In pieces, where there are any."""
    if has_two_towers(point, settings, alignment):
        return SplitUpdate(tape, own, classifier, point, moments, scored, memory, settings)
    return WholeUpdate(tape, classifier, point, moments, scored, memory, settings, alignment)


def settle(
    point: Point, moments: Moments, parameters: dict[str, Tensor], new: Moments, taken: Tensor
) -> Tensor:
    """Put the new values where the old ones lie; whether there are any."""
    for mine, given in (
        (point.parameters, parameters),
        (moments.first, new.first),
        (moments.second, new.second),
    ):
        for name, value in given.items():
            mine[name].copy_(value)
    assert isinstance(moments.steps, Tensor)
    moments.steps.add_(1)
    return taken
