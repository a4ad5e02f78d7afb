"""CoCoOp + TPT: the context that CoCoOp computes for an image takes TPT's entropy step."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from taps.errors import SettingsError
from taps.learning.gradient import point_at
from taps.methods import EncodedImage, HeadInputs, method
from taps.methods.contexts import ContextSettings, ContextTuner
from taps.model.clip import Clip
from taps.model.prompts import prompt_tokens
from taps.model.prompts.choose import trained_prompts
from taps.model.prompts.classify import placed, prompt_classifier


class CocoopTptSettings(ContextSettings):
    """TPT's published values; `prompts` are CoCoOp's, None for those that come with the package."""


@method("cocoop+tpt", CocoopTptSettings, prompts="cocoop")
class CocoopTpt(ContextTuner):
    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: ContextSettings, seed: int) -> None:
        self.prompts = trained_prompts(clip, settings.prompts, family="cocoop")
        # What is tuned is a context as CoOp's: the net has done its part once it is written.
        self.classifier = replace(prompt_classifier(clip, classes, self.prompts), kind="coop")
        self.parameters = placed(self.prompts, self.classifier)
        self.settings, self.state = settings, {}
        self.skipped_updates = 0

    def see(self, features: Tensor) -> EncodedImage:
        """Every image starts from a context of its own, so nothing can carry over."""
        written = prompt_tokens("cocoop", self.parameters, features[0]).text
        assert written is not None
        self.anchor = point_at(self.classifier, {"context": written[0]})
        self.text = self.anchor.text
        return super().see(features)

    def head_inputs(self) -> HeadInputs:
        raise SettingsError("A head needs class texts that are the same for every image; CoCoOp's are not.")
