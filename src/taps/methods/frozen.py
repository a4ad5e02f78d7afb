"""Methods that adapt nothing: frozen prompts or texts, and a rule from the views' logits to a prediction.

`source`, `coop`, `cocoop`, `proda` and `maple` predict view 0 with trained prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from taps.errors import SettingsError
from taps.learning.losses import mean_entropy
from taps.methods import HeadInputs, MethodOutput, Snapshot, TextSettings, method
from taps.methods.base import prompts_snapshot
from taps.methods.features import EncodingMethod
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.choose import starting_prompts
from taps.model.prompts.classify import class_features, placed, prompt_classifier, text_classifier
from taps.model.prompts.families import FAMILIES, Parameters

Rule = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Logits of the views [N, K] → probabilities [K] and the entropy of the prediction."""


class FrozenSettings(TextSettings):
    """`prompts` is a directory made by `taps train`, or a `Prompts`; None for the package's own."""

    prompts: str | Path | Prompts | None = None


class Frozen(EncodingMethod):
    """A model that never changes. Without prompts, `template` and `texts` are the class texts."""

    def __init__(
        self,
        clip: Clip,
        classes: tuple[str, ...],
        rule: Rule,
        settings: TextSettings,
        *,
        prompts: Prompts | None = None,
    ) -> None:
        self.rule = rule
        self.prompts = prompts
        self.parameters: Parameters = {}
        if prompts is None:
            self.classifier = text_classifier(clip, classes, settings.template, settings.texts)
        else:
            if settings.texts is not None:
                raise SettingsError(
                    "Learned prompts take the place of texts; give prompts or texts, not both."
                )
            self.classifier = prompt_classifier(clip, classes, prompts)
            self.parameters = placed(prompts, self.classifier)
        self.text: Tensor | None = None
        if prompts is None or not FAMILIES[prompts.kind].by_image:
            with torch.no_grad():
                self.text, self.vision = class_features(self.classifier, self.parameters)

    @property
    def stateless(self) -> bool:
        return type(self) is Frozen  # one that builds on it may remember

    @torch.no_grad()
    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        features, text = self.encode(views, ahead), self.text
        if text is None:  # CoCoOp's context depends on the image: on view 0, for all views
            text, _ = class_features(self.classifier, self.parameters, features[0])
        probs, entropy = self.rule(self.classifier.logits(features, text))
        return MethodOutput(probs, float(entropy), feature=features[0], features=features)

    def head_inputs(self) -> HeadInputs:
        if self.text is None:
            raise SettingsError(
                "A head needs class texts that are the same for every image; CoCoOp's are not."
            )
        several = self.rule is not view_zero
        bases = ("zero_shot", "own") if several else ("zero_shot",)
        return HeadInputs(self.classifier, self.text.detach(), bases, several)

    def grow(self, old: Self) -> None:
        """There is nothing to take over."""

    def snapshot(self) -> Snapshot:
        return Snapshot() if self.prompts is None else prompts_snapshot(self.prompts, self.parameters)


def view_zero(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The prediction of the image itself."""
    return torch.softmax(logits[0], dim=-1), mean_entropy(logits[:1])


def build_trained(
    clip: Clip, classes: tuple[str, ...], settings: FrozenSettings, seed: int, *, prompts: str
) -> Frozen:
    """Trained prompts, not adapted."""
    return Frozen(
        clip, classes, view_zero, settings, prompts=starting_prompts(clip, settings.prompts, prompts)
    )


class SourceSettings(FrozenSettings):
    """Of `source`."""


class CoopSettings(FrozenSettings):
    """Of `coop`."""


class CocoopSettings(FrozenSettings):
    """Of `cocoop`."""


class ProdaSettings(FrozenSettings):
    """Of `proda`."""


class MapleSettings(FrozenSettings):
    """Of `maple`."""


for name, own, prompts, line in (
    ("source", SourceSettings, "any", "The trained prompts TAPS starts from, not adapted."),
    ("coop", CoopSettings, "coop", "CoOp: a trained text context."),
    ("cocoop", CocoopSettings, "cocoop", "CoCoOp: a trained text context that follows the image."),
    ("proda", ProdaSettings, "proda", "ProDA: a trained bank of contexts, their mean classifies."),
    ("maple", MapleSettings, "maple", "MaPLe: trained prompts in both towers."),
):
    build = partial(build_trained, prompts=prompts)
    method(name, own, prompts=prompts, baseline=2 if name == "source" else 0, line=line)(build)
