"""BiTTA (Lee et al., ICML 2025): steps on yes/no answers, and on images that dropout does not change."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.asking.question import KINDS, YES_NO_SECONDS
from taps.asking.rules import RULES
from taps.methods import MethodOutput, ReplayItem, method, setting
from taps.rivals.stepwise import RecentImagesMethod, RecentSettings, gradient_of
from taps.types import Answer

PASSES = 4  # with dropout, whose mean is the policy π


class BittaSettings(RecentSettings):
    """BiTTA's values, but for the learning rate.

    Attributes:
        acquisition: "confidence" is BiTTA's: how little the mean of passes with dropout gives to the class
            predicted. With `dropout=0` it is plain confidence. The other rules are those of all methods.
        dropout: Share of a feature's entries that a pass leaves out.
        questions: What is asked: "yes_no" (is it the likeliest one?), "class" (which one it is) or "both".
        yes_no_seconds: Seconds that a yes or no takes.
    """

    buffer: int = setting(128, at_least=1)
    acquisition: str = setting("confidence", choices=RULES)
    lr: float = setting(1e-5, above=0)
    dropout: float = setting(0.3, at_least=0, at_most=0.99)
    questions: str | None = setting("yes_no", choices=(*KINDS, "both"))
    yes_no_seconds: float = setting(YES_NO_SECONDS, above=0)


@method("bitta", BittaSettings)
class Bitta(RecentImagesMethod):
    settings: BittaSettings
    takes_any_answer = True

    @property
    def lowest(self) -> int:  # type: ignore[override]
        return -len(self.text)

    def weights(self) -> Tensor:
        return self.text.clone()

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        return self.classifier.logits(features, F.normalize(weights, dim=-1))

    def policy(self, weights: Tensor, features: Tensor, generator: torch.Generator) -> Tensor:
        """π: the mean prediction of some passes with dropout [n, K]."""
        kept = 1 - self.settings.dropout
        masks = torch.rand((PASSES, *features.shape), generator=generator) < kept
        passes = self.classify(weights, features * masks.to(features) / kept)
        return torch.softmax(passes, dim=-1).mean(dim=0)

    def gradient(self, weights: Tensor, generator: torch.Generator) -> Tensor:
        (known, answers), others = self.held(), self.others()
        yes = answers >= 0
        with torch.enable_grad():
            weights = weights.detach().requires_grad_()
            policy = self.policy(weights, known, generator)
            asked = bounded(policy, torch.where(yes, answers, -1 - answers))
            loss = total([asked[yes], -asked[~yes]])
            around = self.policy(weights, others, generator)
            likeliest = self.classify(weights, others).argmax(dim=-1)
            sure = around.argmax(dim=-1) == likeliest
            loss = loss + total([bounded(around, likeliest)[sure]])
            return gradient_of(loss, weights)

    def score(self, output: MethodOutput, feature: Tensor) -> float:
        score = super().score(output, feature)
        if self.settings.acquisition != "confidence":
            return score
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + int(self.state["images"]))
        policy = self.policy(self.state["weights"], feature[None], generator)[0]
        return 1 - float(policy[output.probs.argmax()])

    def label_counts(self) -> Tensor:
        answers = self.held()[1]
        return torch.bincount(answers[answers >= 0], minlength=len(self.text))

    def learn_answer(self, id: int, answer: Answer, item: ReplayItem) -> None:
        """A class that it is not of is kept as −1 − its index; "none of these" teaches nothing."""
        labels = [answer.label] if isinstance(answer.label, int) else [-1 - int(each) for each in answer.no]
        for label in labels:
            self.learn(id, label, item)


def bounded(policy: Tensor, classes: Tensor) -> Tensor:
    """Loss of each row's class, ln Σ_k exp(π_k) − π_y: the authors' cross-entropy takes π for logits.

    It is between ln(K − 1 + e) − 1 and ln(K − 1 + e): no single "no" outweighs all other answers.
    """
    return F.cross_entropy(policy, classes, reduction="none")


def total(parts: list[Tensor]) -> Tensor:
    """The sum of the parts' means; of an empty part, 0."""
    return torch.stack([part.mean() if len(part) else part.sum() for part in parts]).sum()
