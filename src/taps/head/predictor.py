"""The head's prediction for an image and its neighbours: one code for numpy (host) and torch (device)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from taps.head.arrays import AnyArray, at_least, library, plus_product, softmax
from taps.head.neighbours import LOWEST, Neighbourhood, vote

POWER = 4  # how steeply fairness falls


@dataclass
class Predictor:
    """Some experts and all that was learned, as a prediction needs it.

    Experts that ignore the labels come first, then those on a ridge, then those on logistic fits.

    Attributes:
        shares: Of each expert in a prediction [n].
        factors: On each base in each expert's logits, and what labels change of them [2, n, B].
        strengths: Of the ridge in the experts that have it [r, 1].
        ridge: Its weights [d, K].
        fits: What the logistic fits add to the log-odds of images [m, F, d], in parts [m, ·, K].
        taus: Factors on the neighbours' log-odds [T, 1].
        leaning: What is added in each of these rows for the classes' shares of the answers [T, K].
        votes: Weight of each row [T].
        answered: `Head.answered` [K].
        fair: `Head.fair` [2].
    """

    shares: AnyArray
    factors: AnyArray
    strengths: AnyArray
    ridge: AnyArray
    fits: Callable[[AnyArray], Iterable[AnyArray]]
    taus: AnyArray
    leaning: AnyArray
    votes: AnyArray
    answered: AnyArray
    fair: AnyArray

    def arrays(self) -> dict[str, AnyArray]:
        """All but the fits, by name."""
        return {name: array for name, array in vars(self).items() if name != "fits"}

    def ballots(self, look: Neighbourhood, alike: AnyArray, usual: AnyArray) -> AnyArray:
        """The experts' prediction for an image without votes, with each τ, then with shares too [T, K].

        Args:
            look: The image and its neighbours, in double precision.
            alike: `Head.alike`.
            usual: `Head.usual` [K].
        """
        own, fair = library(usual), fair_share(alike, self.fair)
        beliefs = self.shares @ self.probs(look.features, look.logs, fair**POWER)
        usual = own.maximum(usual, self.answered[: len(usual)])
        odds = vote(beliefs[1:], look.cosines, usual, look.logs[1:, 0] > LOWEST)
        # An expert may give a class exactly 0; its log must stay finite for the votes to be added.
        voted = plus_product(own.log(at_least(beliefs[0], 1e-12)), self.taus, odds)
        return softmax(plus_product(voted, fair, self.leaning))

    def probs(self, features: AnyArray, logs: AnyArray, fairness: AnyArray) -> AnyArray:
        """Each expert's probabilities for some images [m, n, K].

        Args:
            features: Of the images [m, F, d].
            logs: Log-probabilities of the bases [m, B, K], of fewer classes where some were added later.
            fairness: Factor on what labels change: at 0 every expert is a base.
        """
        logits = plus_product(self.factors[0], fairness, self.factors[1]) @ logs
        parts = list(self.fits(features))
        if len(self.strengths):
            parts.insert(0, self.strengths * (features[:, 0] @ self.ridge)[:, None])
        place = len(self.shares) - sum(part.shape[1] for part in parts)
        for part in parts:
            learned = logits[:, place : place + part.shape[1]]
            plus_product(learned, fairness, part[..., : logs.shape[2]], out=learned)
            place += part.shape[1]
        return softmax(logits)


def fair_share(alike: AnyArray, fair: AnyArray) -> AnyArray:
    """How often two labels differ / how often two images do, at most 1, of `Head.alike` and `Head.fair`."""
    differ = at_least(1 - alike, 1e-9)
    share = fair[0] / differ + fair[1]
    return library(share).where((share < 1) & (differ > 1e-9), share, 1.0)


def usual_of(stream: AnyArray, before: AnyArray) -> AnyArray:
    """`Head.usual`, of the stream's summed probabilities and the images before each class was added [K]."""
    return stream / at_least(stream.sum() - before, 1e-9)  # none may have come since a class was added
