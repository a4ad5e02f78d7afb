"""ProKeR (Bendou et al., CVPR 2025): kernel ridge regression on zero-shot's residuals."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, method, setting
from taps.methods.features import cholesky, closeness
from taps.rivals.labelled import BufferSettings, LabelledImages


class ProKerSettings(BufferSettings):
    """One kernel and penalty for all data sets; its authors search both on a validation set.

    Attributes:
        sharpness: β of the kernel exp(−β(1 − cos)), which is the RBF kernel of unit features.
        penalty: λ of the ridge.
    """

    sharpness: float = setting(1.0, at_least=0)
    penalty: float = setting(0.1, above=0)


@method("proker", ProKerSettings)
class ProKer(LabelledImages):
    settings: ProKerSettings
    fitted: Tensor | None

    def adapt(self, seen: EncodedImage) -> Tensor:
        """s · (cos(x) + k(x, X)(K/λ + I)⁻¹(Y − cos(X))), cosines with the texts; X the labelled images."""
        known, labels = self.held()
        if self.fitted is None:
            self.fitted = self.coefficients(known, labels)
        corrected = closeness(known, seen.feature, self.settings.sharpness) @ self.fitted
        return seen.logits[0] + float(self.classifier.clip.scale) * corrected

    def coefficients(self, known: Tensor, labels: Tensor) -> Tensor:
        """(K/λ + I)⁻¹(Y − cos(X)) = λ(K + λI)⁻¹(Y − cos(X)) [n, K]."""
        kernel = closeness(known.double(), known.double().T, self.settings.sharpness)
        kernel.diagonal().add_(self.settings.penalty)
        wrong = self.settings.penalty * (F.one_hot(labels, len(self.text)) - known @ self.text.T)
        return torch.cholesky_solve(wrong.double(), cholesky(kernel)).to(known)
