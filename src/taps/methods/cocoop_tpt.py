"""CoCoOp + TPT: the net writes a context for the image once, and that context takes one entropy step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from taps.adapt.gradient import point_at
from taps.adapt.optimiser import fresh_moments
from taps.adapt.step import StepSettings, take_step
from taps.clip import Clip
from taps.methods.base import Method, MethodOutput, Snapshot, prompts_snapshot
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import ViewSettings
from taps.prompts import Prompts, prompt_tokens
from taps.prompts.choose import trained_prompts
from taps.prompts.classify import placed, prompt_classifier


@dataclass(frozen=True)
class CocoopTptSettings(ViewSettings):
    """TPT's published values.

    Attributes:
        prompts: CoCoOp prompts, a directory or a `Prompts`; None for those that come with the package.
        lr: Learning rate.
        weight_decay: Of AdamW.
    """

    prompts: str | Path | Prompts | None = None
    lr: float = setting(5e-3, at_least=0)
    weight_decay: float = setting(0.01, at_least=0)


class CocoopTpt(Method):
    """Every image starts from a context of its own, so nothing can carry over."""

    def __init__(
        self, clip: Clip, classes: tuple[str, ...], prompts: Prompts, settings: CocoopTptSettings
    ) -> None:
        self.prompts = prompts
        # What is tuned is a context as CoOp's: the net has done its part once it is written.
        self.classifier = replace(prompt_classifier(clip, classes, prompts), kind="coop")
        self.parameters = placed(prompts, self.classifier)
        self.step_settings = StepSettings(settings.fraction, settings.lr, settings.weight_decay)
        self.skipped_updates = 0

    def predict(self, views: Tensor) -> MethodOutput:
        with torch.no_grad():
            feature = self.classifier.image(self.classifier.clip.preprocess(views[:1]), None)[0]
            written = prompt_tokens("cocoop", self.parameters, feature).text
        assert written is not None
        start = point_at(self.classifier, {"context": written[0]})
        outcome = take_step(
            self.classifier, start, fresh_moments(start.parameters), views, None, self.step_settings
        )
        updated = bool(outcome.taken)
        self.skipped_updates += not updated
        return MethodOutput(torch.softmax(outcome.logits, dim=-1), float(outcome.entropy), updated=updated)

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def snapshot(self) -> Snapshot:
        begun = prompts_snapshot(self.prompts, self.parameters)
        return Snapshot(begun.tensors, begun.values | self.summary())

    def restore(self, snapshot: Snapshot) -> None:
        self.skipped_updates = snapshot.values["skipped_updates"]

    def summary(self) -> dict[str, Any]:
        return {"skipped_updates": self.skipped_updates}


@method("cocoop+tpt", CocoopTptSettings, prompts="cocoop")
def build(clip: Clip, classes: tuple[str, ...], settings: CocoopTptSettings, seed: int) -> CocoopTpt:
    """TPT on top of the context CoCoOp writes for the image."""
    return CocoopTpt(clip, classes, trained_prompts(clip, settings.prompts, family="cocoop"), settings)
