"""Steps of many images at once as one captured graph."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from taps.adapt.batch import Stepped, take_steps
from taps.adapt.gradient import Gradient, Point
from taps.adapt.graphs.capture import GraphCapture
from taps.adapt.graphs.static_buffers import StaticGradient
from taps.adapt.step import StepSettings
from taps.prompts.classifier import Classifier


class CapturedSteps:
    """What `take_steps` does, for as many images as are given when it is made.

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
        self.graph = graphs.capture(
            lambda: take_steps(classifier, start, self.views, self.labelled.value, settings, graphs)
        )

    def fits(self, start: Point, views: Tensor) -> bool:
        return start is self.start and views.shape == self.views.shape and views.dtype == self.views.dtype

    def __call__(self, views: Tensor, labelled: Gradient) -> Stepped:
        self.views.copy_(views)
        self.labelled.load(labelled)
        self.graph.replay()
        done = self.graph.result  # the next replay overwrites it
        return Stepped(*(getattr(done, field.name).clone() for field in fields(done)))
