"""PCB (Bang et al., CVPR 2024): a context learns from labels alone, asked for evenly over classes."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from taps.methods import AskSettings, MethodOutput, method, reset_setting, setting
from taps.methods.taps import Launched, PromptTuner


class PcbSettings(AskSettings):
    """No entropy in the loss, prompts that carry over, questions at an exact rate."""

    weight_entropy: float = setting(0.0, at_least=0)
    reset: str = reset_setting("never")
    policy: str = "paced"


@method("pcb", PcbSettings, prompts="hand")
class Pcb(PromptTuner):
    def predict(self, views: Tensor, ahead: Launched | None = None) -> MethodOutput:
        """An image is asked about by its entropy, if its predicted class has no more labels than the mean."""
        output = super().predict(views, ahead)
        assert self.memory is not None
        counts = self.memory.buffer.counts()
        own = counts.get(int(output.probs.argmax()), 0)
        scarce = own * len(self.classes) <= sum(counts.values())
        return replace(output, score=output.entropy if scarce else 0.0)
