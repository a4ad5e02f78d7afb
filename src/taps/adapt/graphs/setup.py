"""The setup of a captured step: what stays the same for a whole stream."""

from __future__ import annotations

from dataclasses import dataclass

from taps.adapt.gradient import Point
from taps.adapt.memory import Alignment, Memory
from taps.adapt.step import StepSettings
from taps.prompts.classifier import Classifier


@dataclass(frozen=True)
class StreamSetup:
    """The arguments of a step that stay the same for a whole stream."""

    classifier: Classifier
    memory: Memory | None
    settings: StepSettings
    alignment: Alignment | None
    anchor: Point | None = None  # where features of labelled images are taken, when prompts carry over
