"""ProKeR (Bendou et al., CVPR 2025): kernel ridge regression on zero-shot's residuals."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, method, setting
from taps.methods.features import closeness
from taps.methods.labelled import BufferSettings, LabelledImages

LEAST = 1e-6  # a probability below this is taken for this


class ProKerSettings(BufferSettings):
    """One kernel and penalty for all data sets; its authors search both on a validation set.

    Attributes:
        sharpness: β of the kernel exp(−β(1 − cos)), which is the RBF kernel of unit features; Tip-Adapter's.
        penalty: λ of the ridge.
    """

    sharpness: float = setting(5.5, at_least=0)
    penalty: float = setting(0.1, above=0)


@method("proker", ProKerSettings)
class ProKer(LabelledImages):
    settings: ProKerSettings
    fitted: Tensor | None  # (K + λI)⁻¹(Y − p(X)) [n, K]

    def adapt(self, seen: EncodedImage) -> Tensor:
        """p(x) + k(x, X)(K + λI)⁻¹(Y − p(X)), p zero-shot's probabilities and X the labelled images."""
        known, labels = self.held()
        if self.fitted is None:
            self.fitted = self.coefficients(known, labels)
        corrected = seen.probs + closeness(known, seen.feature, self.settings.sharpness) @ self.fitted
        return corrected.clamp_min(LEAST).log()

    def coefficients(self, known: Tensor, labels: Tensor) -> Tensor:
        """Coefficients of the labelled images [n, K]; a row sums to 0."""
        kernel = closeness(known.double(), known.double().T, self.settings.sharpness)
        kernel.diagonal().add_(self.settings.penalty)
        wrong = F.one_hot(labels, len(self.text)) - torch.softmax(self.logits(known), dim=-1)
        return torch.cholesky_solve(wrong.double(), torch.linalg.cholesky(kernel)).to(known)
