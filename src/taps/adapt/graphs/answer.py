"""An answer taken in, recorded: one labelled image's gradient at the prompts every image starts from."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.adapt.gradient import Gradient, Point
from taps.adapt.graphs.capture import Tape
from taps.adapt.losses import cross_entropies
from taps.adapt.memory import ReplayItem, differentiate, labelled_logits, leaves_of, stack_inputs
from taps.prompts.classifier import Classifier


class RecordedAnswer:
    """What `Memory.sample_gradient` gives for an episodic memory without fine alignment.

    Args:
        tape: What to record on.
        classifier: The frozen model and the classes.
        point: θ0, its graph built at the tape's home.
        item: An image of the shape that is going to be seen.
        weight_ce: α.
    """

    def __init__(
        self, tape: Tape, classifier: Classifier, point: Point, item: ReplayItem, weight_ce: float
    ) -> None:
        self.classifier, self.point, self.weight_ce = classifier, point, weight_ce
        self.inputs = stack_inputs([item], point).clone()
        self.target = torch.zeros(1, dtype=torch.long, device=self.inputs.device)
        self.recording = tape.record(self._differentiate)

    def __call__(self, item: ReplayItem, label: int) -> tuple[Gradient, float]:
        self.inputs.copy_(stack_inputs([item], self.point))
        self.target.fill_(label)
        self.recording.replay()
        gradient, loss = self.recording.result
        kept = (None if part is None else part.clone() for part in (gradient.text, gradient.vision))
        return Gradient(*kept), float(loss)

    def _differentiate(self) -> tuple[Gradient, Tensor]:
        text, vision = leaves_of(self.point)
        with torch.enable_grad():
            logits = labelled_logits(self.classifier, self.inputs, text, vision)
            loss = cross_entropies(logits, self.target).sum()
        gradient = differentiate(self.weight_ce * loss, text, vision)
        return self.point.pull_back(gradient), loss.detach()
