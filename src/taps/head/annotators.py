"""Whom to believe where several people (annotators) answer, each with a share of wrong answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.errors import StateError
from taps.head.arrays import softmax
from taps.head.mixture import Mixture, losses_of

Array = NDArray[np.float64]


class AnnotatorMixture:
    """A mixture of experts, each together with one share of wrong answers for every person.

    With π_r the prior of expert r, q_ε that of a share ε, and L_j(r, ε) the loss of r with ε on what person
    j has answered so far, the weight of r together with ε for person j is proportional to

        π_r · q_ε · e^(−L_j(r, ε)) · Π_{i ≠ j} Σ_ε' q_ε' · e^(−L_i(r, ε'))

    This is Bayes' rule over every expert with every choice of a share for each person, so what
    `taps.head.mixture` promises holds against each of these, with −ln(π_r · q^J) for J people. Memory is one
    row of losses a person. Answers without a name are those of one person, the first.

    Args:
        experts: Prior of each expert [R].
        shares: S, how many shares of wrong answers there are; all equally likely beforehand.

    Example:
        >>> annotators = AnnotatorMixture(np.ones(2), shares=2)
        >>> annotators.learn(np.array([0.9, 0.5, 0.1, 0.5]), person=1)
        >>> annotators.weights(1).round(2).tolist(), annotators.weights(0).round(2).tolist()
        ([0.45, 0.25, 0.05, 0.25], [0.35, 0.35, 0.15, 0.15])
    """

    def __init__(self, experts: Array, shares: int) -> None:
        self.log_prior: Array = Mixture(np.repeat(experts, shares)).log_prior
        self.shares = shares
        self.losses: Array = np.zeros((1, len(self.log_prior)))
        self.answers: Array = np.zeros(1)  # of each person

    def weights(self, person: int = 0, among: int | None = None) -> Array:
        """How much each expert is believed with each share of a person, expert by expert [R · S].

        Args:
            person: Whose shares.
            among: Of so many of the first experts alone: these weights, too, sum to 1.
        """
        logs = self.log_prior - (self.losses[person] if person < len(self.losses) else 0.0)
        for other in np.flatnonzero(self.answers):
            if other != person:
                said = -self.losses[other].reshape(-1, self.shares)
                most = said.max(axis=1, keepdims=True)
                logs = logs + np.repeat(most[:, 0] + np.log(np.exp(said - most).mean(axis=1)), self.shares)
        return np.asarray(softmax(logs if among is None else logs[: among * self.shares]))

    def learn(self, given: Array, person: int = 0) -> None:
        """Take in what each expert with each share said of an answer.

        Args:
            given: The probability each gave to it beforehand [R · S].
            person: Who gave it.
        """
        new = max(0, person + 1 - len(self.losses))
        losses, answers = np.pad(self.losses, ((0, new), (0, 0))), np.pad(self.answers, (0, new))
        losses[person] += losses_of(given)
        answers[person] += 1
        self.losses, self.answers = losses, answers

    def restore(self, losses: Array, answers: Array) -> None:
        """Go on from losses and counts as they were."""
        if losses.shape[1] != self.losses.shape[1]:
            raise StateError(
                f"The saved head has {losses.shape[1]} experts, this one {self.losses.shape[1]}; make it "
                "with the saved settings."
            )
        self.losses = losses.copy()
        self.answers = answers.copy()
