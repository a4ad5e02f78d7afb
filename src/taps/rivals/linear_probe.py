"""Linear probe: logistic regression on the labelled images' features, refitted with every answer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, ReplayItem, State, method, setting
from taps.rivals.labelled import BufferSettings, LabelledImages

STEPS = 1000  # of L-BFGS at most; a warm fit needs few of them
TOLERANCE = 1e-8  # of the largest entry of the gradient, and of what a step still changes


class ProbeSettings(BufferSettings):
    """scikit-learn's; `penalty` is λ = 1/C of ½‖W‖² beside the sum of cross-entropies, intercepts free."""

    penalty: float = setting(1.0, above=0)


@method("linear_probe", ProbeSettings)
class LinearProbe(LabelledImages):
    settings: ProbeSettings

    def start(self) -> State:
        classes, dim = self.text.shape
        return super().start() | {
            "weights": self.text.new_zeros(classes, dim + 1, dtype=torch.float64),  # the last one: intercepts
            "named": self.text.new_zeros(classes, dtype=torch.bool),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        named = self.state["named"]
        if int(named.sum()) < 2:
            return seen.logits[0]
        scores = self.state["weights"] @ with_one(seen.feature[None])[0]
        return torch.where(named, scores, -torch.inf).to(self.text)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        super().learn(id, label, item)
        self.refit()

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        super().forget(id, label, item)
        self.refit()

    def refit(self) -> None:
        """Go from the last fit to the minimum over the labels held, for the classes they name."""
        features, labels = self.held()
        named = torch.bincount(labels, minlength=len(self.text)) > 0
        weights, self.state["named"] = self.state["weights"], named
        weights[~named] = 0
        if int(named.sum()) >= 2:
            targets = F.one_hot(labels, len(named))[:, named].double()
            weights[named] = fit(with_one(features), targets, weights[named], self.settings.penalty)


def with_one(features: Tensor) -> Tensor:
    """Features in double precision, with an entry of 1 for the intercept [n, d + 1]."""
    return F.pad(features.double(), (0, 1), value=1.0)


def fit(inputs: Tensor, targets: Tensor, begin: Tensor, penalty: float) -> Tensor:
    """The weights [K, d + 1] that minimise Σ cross-entropies + λ/2·‖W‖², without the intercepts in ‖W‖.

    Of two classes scikit-learn fits the difference w of their weights alone, with λ/2·‖w‖², which is twice
    the penalty that the two have at their best.

    Args:
        inputs: Features with a last entry of 1 [n, d + 1].
        targets: One-hot rows [n, K].
        begin: Weights to start from.
        penalty: λ.
    """
    weights = begin.clone()
    weight = penalty * (2 if len(begin) == 2 else 1)
    optimiser = torch.optim.LBFGS(
        [weights],
        max_iter=STEPS,
        tolerance_grad=TOLERANCE,
        tolerance_change=TOLERANCE**2,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        logs = torch.log_softmax(inputs @ weights.T, dim=-1)
        shrunk = F.pad(weights[:, :-1], (0, 1))
        weights.grad = (logs.exp() - targets).T @ inputs + weight * shrunk
        return -(targets * logs).sum() + 0.5 * weight * shrunk.square().sum()

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return weights
