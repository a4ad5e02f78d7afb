"""RLCF (Zhao et al., ICLR 2024): REINFORCE steps of the context, rewarded by a second CLIP's CLIPScore."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, MethodOutput, method, setting
from taps.methods.contexts import ContextSettings, ContextTuner
from taps.model.clip import Clip, load_clip
from taps.model.prompts.classify import text_classifier

SHARPNESS = 2.5  # of CLIPScore


class RlcfSettings(ContextSettings):
    """RLCF's published values.

    Attributes:
        reward: The model that judges, as `load_clip` takes it; None for the tuned model itself.
        likeliest: How many classes of each view are judged.
    """

    lr: float = 7e-3
    weight_decay: float = 5e-4
    steps: int = 3
    reward: str | None = None
    likeliest: int = setting(3, at_least=2)


@method("rlcf", RlcfSettings, prompts="hand")
class Rlcf(ContextTuner):
    settings: RlcfSettings
    needs_features_only = False  # the second CLIP encodes the views themselves

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: RlcfSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        judge = clip if settings.reward is None else load_clip(settings.reward, device=str(clip.device))
        self.judge = text_classifier(judge, classes, settings.template, settings.texts)
        with torch.no_grad():
            self.judge_text = self.judge.text(None)
        self.rewards = self.text  # of the views of the present image [n, K]

    @torch.no_grad()
    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        size = self.judge.clip.config.image_size
        shown = views
        if size != views.shape[-1]:
            shown = F.interpolate(views.float(), (size, size), mode="bicubic", antialias=True).clamp(0, 255)
        features = self.judge.image(self.judge.clip.preprocess(shown), None)
        self.rewards = (SHARPNESS * features @ self.judge_text.T).clamp_min(0)
        return super().predict(views, ahead)

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        """Mean over confident views and their likeliest classes of (reward − its mean) · cross-entropy."""
        logs = torch.log_softmax(self.classifier.logits(seen.features[seen.chosen], text), dim=-1)
        likeliest = logs.topk(min(self.settings.likeliest, logs.shape[1]), dim=1).indices
        rewards = self.rewards[seen.chosen].gather(1, likeliest).to(logs)
        better = rewards - rewards.mean(dim=1, keepdim=True)
        return -(better * logs.gather(1, likeliest)).mean()
