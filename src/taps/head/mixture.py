"""Bayesian mixtures of experts: weights by how well each expert predicted the labels before learning them.

The weight of an expert is its prior weight times the probability it gave to the labels so far. For every
sequence of labels and every expert e of prior weight w_e, with losses −ln p(label):

    Σ_t (loss of the mixture at t − loss of e at t)  ≤  −ln w_e

Why: with L_e the sum of the losses of e and Φ(L) = −ln Σ_e w_e·exp(−L_e), the mixture's loss at t is
Φ(L_t) − Φ(L_{t−1}). The sum telescopes to Φ(L_T) ≤ L_e − ln w_e.

A mixture may be an expert of another one, as the experts' mixture is of the votes' (`taps.head.head`): where
an expert of prior weight w in the second gives every label the probability that the first gives it, the loss
of the second exceeds that of the first by at most −ln w, and so that of any expert e of the first by at most
−ln w − ln(prior weight of e). With half of the prior on no votes, that is ln 2 more than the first promises.
"""

from __future__ import annotations

import numpy as np

from taps.errors import SettingsError, StateError
from taps.head.arrays import softmax
from taps.types import Array

SMALLEST = 1e-6  # no expert may say "impossible": one wrong answer would silence it for good


class Mixture:
    """Experts weighted by their predict-then-learn log-loss, one by one or by annotator.

    Where annotators may be wrong, an expert r comes with S shares ε of wrong answers. With π_r the prior of
    r, q_ε that of ε, and L_j(r, ε) the loss of r with ε on the answers of annotator j so far, the weight of r
    together with ε for j is proportional to

        π_r · q_ε · e^(−L_j(r, ε)) · Π_{i ≠ j} Σ_ε' q_ε' · e^(−L_i(r, ε'))

    This is Bayes' rule over every expert with every choice of a share for each annotator, so the bound above
    holds against each of these, with −ln(π_r · q^J) for J annotators. Memory is one row of losses for each.
    Answers without a name are those of one annotator, the first.

    Args:
        prior: Weight of each expert before any label [R]; normalised here.
        shares: S; all shares are equally likely beforehand.

    Example:
        >>> mixture = Mixture(np.ones(2))
        >>> mixture.learn(np.array([0.8, 0.2]))
        >>> mixture.weights().round(3).tolist()
        [0.8, 0.2]
        >>> annotators = Mixture(np.ones(2), shares=2)
        >>> annotators.learn(np.array([0.9, 0.5, 0.1, 0.5]), person=1)
        >>> annotators.weights(1).round(2).tolist(), annotators.weights(0).round(2).tolist()
        ([0.45, 0.25, 0.05, 0.25], [0.35, 0.35, 0.15, 0.15])
    """

    def __init__(self, prior: Array, shares: int = 1) -> None:
        if len(prior) == 0 or not (prior > 0).all():
            raise SettingsError("Every expert needs a prior weight above 0.")
        each = np.repeat(prior, shares)
        self.log_prior: Array = np.log(each / each.sum())
        self.shares = shares
        self.losses: Array = np.zeros((1, len(each)))  # a row for each annotator
        self.answers: Array = np.zeros(1)  # of each annotator

    def weights(self, person: int = 0, among: int | None = None) -> Array:
        """Posterior weight of each expert with each share of an annotator, expert by expert [R · S].

        Args:
            person: Whose shares.
            among: Only the first so many experts: these weights, too, sum to 1.
        """
        logs = self.log_prior - (self.losses[person] if person < len(self.losses) else 0.0)
        for other in np.flatnonzero(self.answers):
            if other != person:
                theirs = -self.losses[other].reshape(-1, self.shares)
                most = theirs.max(axis=1, keepdims=True)  # taken out, so that no exponential is 0
                summed = most[:, 0] + np.log(np.exp(theirs - most).mean(axis=1))
                logs = logs + np.repeat(summed, self.shares)
        return np.asarray(softmax(logs if among is None else logs[: among * self.shares]))

    def learn(self, given: Array, person: int = 0) -> None:
        """Take in the probability that each expert with each share gave to a label before learning it."""
        new = max(0, person + 1 - len(self.losses))
        losses, answers = np.pad(self.losses, ((0, new), (0, 0))), np.pad(self.answers, (0, new))
        losses[person] -= np.log(np.clip(np.nan_to_num(given), SMALLEST, 1.0))
        answers[person] += 1
        self.losses, self.answers = losses, answers

    def restore(self, losses: Array, answers: Array | None = None) -> None:
        """Go on from losses and counts as they were: after a stop, or before a label taken back."""
        rows = np.atleast_2d(losses)
        held, mine = rows.shape[1], len(self.log_prior)
        if held != mine:
            raise StateError(
                f"The saved head has {held} experts, this one {mine}; make it with the saved settings."
            )
        self.losses = rows.copy()
        self.answers = np.zeros(len(rows)) if answers is None else answers.copy()
