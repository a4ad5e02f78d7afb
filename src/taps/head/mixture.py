"""Weights of several predictors, by how well each predicted the labels before learning them.

A Bayesian mixture of experts: the weight of each is its prior weight times the probability it gave to the
labels so far.

What is promised, for every sequence of labels and every expert e of prior weight w_e:

    Σ_t (loss of the mixture at t − loss of e at t)  ≤  −ln w_e

where losses are −ln p(label). Why: with L_e the sum of the losses of e and Φ(L) = −ln Σ_e w_e·exp(−L_e), the
mixture's loss at t is Φ(L_t) − Φ(L_{t−1}). The sum telescopes to Φ(L_T) ≤ L_e − ln w_e.

A mixture may be an expert of another one, as the experts' mixture is of the votes' (`taps.head.head`): where
an expert of prior weight w in the second gives every label the probability that the first gives it, the loss
of the second exceeds that of the first by at most −ln w, and so that of any expert e of the first by at most
−ln w − ln(prior weight of e). With half of the prior on no votes, that is ln 2 more than the first promises.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.errors import SettingsError, StateError
from taps.head.arrays import softmax

Array = NDArray[np.float64]
SMALLEST = 1e-6  # no expert may say "impossible": one wrong answer would silence it for good


class Mixture:
    """Experts weighted by their predict-then-learn log-loss.

    Args:
        prior: Weight of each expert before any label; normalised here.

    Example:
        >>> mixture = Mixture(np.ones(2))
        >>> mixture.learn(np.array([0.8, 0.2]))
        >>> mixture.weights().round(3).tolist()
        [0.8, 0.2]
    """

    def __init__(self, prior: Array) -> None:
        if len(prior) == 0 or not (prior > 0).all():
            raise SettingsError("Every expert needs a prior weight above 0.")
        self.log_prior: Array = np.log(prior / prior.sum())
        self.losses: Array = np.zeros(len(prior))

    def weights(self) -> Array:
        """How much each expert is believed; they sum to 1."""
        return np.asarray(softmax(self.log_prior - self.losses))

    def learn(self, given: Array) -> None:
        """Take in what each expert said of a label.

        Args:
            given: The probability each gave to the label before learning it [N].
        """
        self.losses = self.losses + losses_of(given)

    def restore(self, losses: Array) -> None:
        """Go on from `losses` as they were: after a stop, or before a label taken back."""
        if losses.shape != self.losses.shape:
            raise StateError(
                f"The saved head has {len(losses)} experts, this one {len(self.losses)}; make it with the "
                "saved settings."
            )
        self.losses = losses.copy()


def losses_of(given: Array) -> Array:
    """−ln of the probabilities that were given to a label."""
    losses: Array = -np.log(np.clip(np.nan_to_num(given), SMALLEST, 1.0))
    return losses
