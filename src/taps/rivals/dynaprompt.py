"""DynaPrompt (Xiao et al., ICLR 2025): a buffer of contexts; those that suit an image take its step."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from taps.learning.gradient import point_at
from taps.learning.losses import entropies
from taps.methods import EncodedImage, State, method, setting
from taps.methods.contexts import ContextSettings, ContextTuner


class DynaPromptSettings(ContextSettings):
    """DynaPrompt's published values for fine-grained sets; `contexts` is the size of its buffer."""

    lr: float = 3e-3
    contexts: int = setting(10, at_least=1)


@method("dynaprompt", DynaPromptSettings, prompts="hand")
class DynaPrompt(ContextTuner):
    settings: DynaPromptSettings

    def start(self) -> State:
        """Contexts, their class texts, and when each was tuned last (0: the place is empty)."""
        context, count = self.anchor.parameters["context"], self.settings.contexts
        return {
            "texts": self.text.new_zeros(len(self.text), count, self.text.shape[1]),
            "contexts": context.new_zeros(count, *context.shape),
            "tuned": context.new_zeros(count),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        chosen = self.suitable(seen) or [self.open()]
        now, taken = float(self.state["tuned"].max()) + 1, True
        answers = []
        for slot in chosen:
            point = point_at(self.classifier, {"context": self.state["contexts"][slot].clone()})
            logits = self.classifier.logits(seen.features, point.text)
            own = replace(seen, chosen=self.settings.confident(logits))
            end, moved = self.tune(own, point)
            taken = taken and moved
            self.state["contexts"][slot] = end.parameters["context"]
            self.state["texts"][:, slot] = end.text
            self.state["tuned"][slot] = now
            answers.append(self.answer(seen, end.text))
        self.updated = taken
        self.skipped_updates += not taken
        return torch.stack(answers).mean(dim=0)

    def suitable(self, seen: EncodedImage) -> list[int]:
        """Places whose context is surer of the views than the initial one, with a larger gap."""
        entropy, gap = self.worth(seen, self.text)
        found = []
        for slot in self.state["tuned"].nonzero()[:, 0].tolist():
            own_entropy, own_gap = self.worth(seen, self.state["texts"][:, slot])
            if own_entropy < entropy and own_gap > gap:
                found.append(slot)
        return found

    def worth(self, seen: EncodedImage, text: Tensor) -> tuple[float, float]:
        """Mean entropy of the views, and by how much view 0's top logit exceeds those of the others."""
        logits = self.classifier.logits(seen.features, text)
        top = logits.max(dim=1).values
        return float(entropies(logits).mean()), float((top[0] - top[1:]).mean()) if len(top) > 1 else 0.0

    def open(self) -> int:
        """A place for a new context: an empty one, or that of the one tuned longest ago."""
        slot = int(self.state["tuned"].argmin())
        self.state["contexts"][slot] = self.anchor.parameters["context"]
        return slot

    def grow(self, old: Self) -> None:
        """The contexts stay; their class texts are computed again."""
        super().grow(old)
        with torch.no_grad():
            for slot in self.state["tuned"].nonzero()[:, 0].tolist():
                point = point_at(self.classifier, {"context": self.state["contexts"][slot]}, graph=False)
                self.state["texts"][:, slot] = point.text
