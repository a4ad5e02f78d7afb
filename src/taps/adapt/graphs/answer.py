"""Taking in an answer as a captured graph: a labelled image's gradient at the prompts images start from."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.adapt.gradient import Gradient, Point, differentiate, leaves_of
from taps.adapt.graphs.capture import GraphCapture
from taps.adapt.losses import cross_entropies
from taps.adapt.memory import ReplayItem, labelled_logits, stack_inputs
from taps.prompts.classifier import Classifier


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
