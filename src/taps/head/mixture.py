"""Weights of several predictors, by how well each predicted the labels before learning them.

A Bayesian mixture of experts: the weight of each is the probability it gave to the labels so far. Old labels
count less, by a factor for every later one, because experts that learn get better.

What is promised, for every sequence of labels and every expert e, with N experts of equal prior weight
(for ln N read −ln of its prior weight otherwise):

    Σ_t γ^(T−t) · ω_t · (loss of the mixture at t − loss of e at t)  ≤  ln N

where losses are −ln p(label), γ is the discount and ω_t ≤ 1 the importance of a label. Why: with
Φ(L) = −ln Σ_e exp(−L_e)/N, a label's loss is at most Φ(L_t) − Φ(γ·L_{t−1}), for Jensen's inequality lets ω
into the sum; and Φ(γL) ≥ γΦ(L) by the same inequality. The discounted sum telescopes to Φ(L_T) ≤ ln N + L_e.

A mixture may be an expert of another one, as the readings' mixture is of the votes' (`taps.head.head`): where
an expert of prior weight w in the second gives every label the probability that the first gives it, the loss
of the second exceeds that of the first by at most −ln w, and so that of any expert e of the first by at most
−ln w − ln(prior weight of e). With half of the prior on no votes, that is ln 2 more than the first promises.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.errors import SettingsError, StateError

Array = NDArray[np.float64]
SMALLEST = 1e-6  # no expert may say "impossible": one wrong answer would silence it for good


class Mixture:
    """Experts weighted by their predict-then-learn log-loss.

    Args:
        prior: Weight of each expert before any label; normalised here.
        discount: γ, how much a label counts when one more has come; 1 forgets nothing.

    Example:
        >>> mixture = Mixture(np.ones(2), discount=1.0)
        >>> mixture.learn(np.array([0.8, 0.2]))
        >>> mixture.weights().round(3).tolist()
        [0.8, 0.2]
    """

    def __init__(self, prior: Array, discount: float = 1.0) -> None:
        if not 0 < discount <= 1:
            raise SettingsError(f"A discount of {discount} cannot be; use a number above 0 and up to 1.")
        if len(prior) == 0 or not (prior > 0).all():
            raise SettingsError("Every expert needs a prior weight above 0.")
        self.log_prior: Array = np.log(prior / prior.sum())
        self.discount = float(discount)
        self.losses: Array = np.zeros(len(prior))

    def weights(self) -> Array:
        """How much each expert is believed; they sum to 1."""
        logs = self.log_prior - self.discount * self.losses  # discounted for the label to come, too
        raised = np.exp(logs - logs.max())
        weights: Array = raised / raised.sum()
        return weights

    def learn(self, given: Array, importance: float = 1.0) -> None:
        """Take in what each expert said of a label.

        Args:
            given: The probability each gave to the label before learning it [N].
            importance: ω, how much this label stands for, at most 1.
        """
        self.losses = self.discount * self.losses + losses_of(given, importance)

    def restore(self, losses: Array) -> None:
        """Go on from `losses` as they were: after a stop, or before a label taken back."""
        if losses.shape != self.losses.shape:
            raise StateError(
                f"The saved head has {len(losses)} experts, this one {len(self.losses)}; make it with the "
                "saved settings."
            )
        self.losses = losses.copy()


def losses_of(given: Array, importance: float = 1.0) -> Array:
    """ω · −ln of the probabilities that were given to a label."""
    if not 0 <= importance <= 1:
        raise SettingsError(f"An importance of {importance} cannot be; use a number from 0 to 1.")
    losses: Array = -importance * np.log(np.clip(np.nan_to_num(given), SMALLEST, 1.0))
    return losses
