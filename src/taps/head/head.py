"""The label head: experts learned from the labels, and their mixture with the neighbours' votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import SettingsError, StateError
from taps.head.experts import ClassShares, Experts, HeadSettings
from taps.head.mixture import SMALLEST, Mixture
from taps.head.neighbours import Neighbourhood, RecentImages
from taps.head.out_of_class import OutOfClass
from taps.head.predictor import POWER, Predictor, fair_share, usual_of
from taps.head.threads import one_thread
from taps.head.whitening import FeatureWhitener
from taps.saved import Shape, check_arrays
from taps.types import OUTSIDE, Array

State = dict[str, Array]
DOUBT = 0.5  # an answer more likely wrong than this is worth a second look
PAIRS = 10  # pairs of answers taken for fair beforehand
SHARES_TAU = 0.5  # τ of the votes where the classes' shares are added
HEARD = 0.01  # an expert trusted less than this is left out of a prediction


@dataclass(frozen=True)
class LabelledExample:
    """One answer as the head learned it.

    Attributes:
        look: The image and its neighbours when it was predicted.
        label: Its class, or `OUTSIDE`; ignored where `no` is given.
        alike: `Head.alike` when it came; so `usual`.
        gain: By how many nats the mixture predicted it better than the bases did.
        doubt: Probability that the answer is wrong, by what was known before it came.
        no: Classes it is not of, where that is what was answered.
        person: Who answered.
    """

    look: Neighbourhood
    label: int
    alike: float
    usual: Array
    gain: float = 0.0
    doubt: float = 0.0
    no: tuple[int, ...] = ()
    person: int = 0

    def likelihood(self, probs: Array) -> Array:
        """Probability of this answer under probabilities of the classes [..., K]."""
        if not self.no:
            return np.asarray(probs[..., self.label])
        return np.asarray(np.maximum(1.0 - probs[..., list(self.no)].sum(axis=-1), 0.0))


class Head:
    """Learns from labelled features on top of given predictions, and from the images most like each other.

    An expert is a base with or without what was learned on top (`taps.head.experts`). Together with a share ε
    of wrong answers for each annotator (`taps.head.mixture`) it gives to an answer (1 − ε)·p + ε/K; to the
    answer that it is none of n classes, (1 − ε)·(1 − Σp) + ε·(1 − n/K). The experts' mixture without
    wrong answers, the votes of the image's neighbours at several strengths τ, and the classes of the last
    answers (`ClassShares`) form a second mixture: the prediction.

    Args:
        dim: Length of a feature.
        classes: K.
        bases: How many predictions come with each image, the zero-shot one first.
        several: Whether images come with several views.

    Example:
        >>> head = Head(dim=2, classes=2, bases=1)
        >>> even = np.log([[0.5, 0.5]])
        >>> for label in (0, 1) * 5:
        ...     example = head.learn(head.see(np.eye(2)[[label]], even), label)
        >>> bool(head.predict(head.see(np.eye(2)[[1]], even))[1] > 0.7)
        True
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        bases: int,
        several: bool = False,
        settings: HeadSettings | None = None,
    ) -> None:
        if bases < 1:
            raise SettingsError("A head needs at least one prediction; give the zero-shot one.")
        self.settings = settings or HeadSettings()
        features = (1 + several, dim)
        self.whitener = FeatureWhitener(dim, several)
        self.recent = RecentImages(features, (bases, classes))
        self.stream: Array = np.zeros(classes)  # probabilities by the first base, summed over all images
        self.before: Array = np.zeros(classes)  # images seen before each class was added
        self.experts = Experts(features, bases, classes, self.settings)
        self.counts: Array = np.zeros(classes)
        self.told: Array = np.zeros((2, classes))  # the same of labelled images, and of their squares
        self.gain = self.doubted = 0.0
        self._predictor: Predictor | None = None
        self.mixture = Mixture(self.experts.prior, len(self.settings.wrong))
        self.outside = OutOfClass(dim, self.settings.refit)
        self.shares = ClassShares(classes, self.settings.fading, self.settings.shares)
        self.taus, prior = ballot_grid(self.settings)
        self.votes = Mixture(prior)

    @property
    def labels(self) -> int:
        """How many labels were learned."""
        return int(self.counts.sum())

    @property
    def trust(self) -> float:
        """Posterior weight of the experts that learn from the labels."""
        return float(self._weights().sum(axis=1)[self.experts.alone :].sum())

    @property
    def noise(self) -> float:
        """Estimated share of wrong answers."""
        answers = self.mixture.answers
        shares = np.array([self.noise_of(person) for person in range(len(answers))])
        return float(shares @ answers / answers.sum()) if answers.any() else float(shares[0])

    def noise_of(self, person: int) -> float:
        """Estimated share of wrong answers of one annotator."""
        return float(self._weights(person).sum(axis=0) @ np.array(self.settings.wrong))

    def _weights(self, person: int = 0) -> Array:
        """Posterior weight of each expert with each share of wrong answers [experts, shares]."""
        return self.mixture.weights(person).reshape(-1, len(self.settings.wrong))

    def see(self, views: Array, logs: Array) -> Neighbourhood:
        """Add an image to the stream, and find its neighbours.

        Args:
            views: Features of its views, of length 1, view 0 first [V, d].
            logs: Log-probabilities of the bases [B, K].
        """
        self.stream = self.stream + np.exp(logs[0])
        with one_thread():
            return self.recent.look(self.whitener.see(views), logs)

    @property
    def usual(self) -> Array:
        """Mean probabilities of the first base over the stream, of a class added later since then [K]."""
        if not self.stream.any():
            return np.full(len(self.stream), 1 / len(self.stream))
        return np.asarray(usual_of(self.stream, self.before))

    @property
    def answered(self) -> Array:
        """For each class added later, its labels / (1 + all labels) [K].

        Experts without names give the class this probability for any image, even where zero-shot never names
        it: neighbours that give no more do not vote for it.
        """
        shares: Array = np.where(self.before > 0, self.counts / (self.labels + 1), 0.0)
        return shares

    @property
    def alike(self) -> float:
        """Probability that two images of the stream are of one class, by the first base; 1 before any."""
        return float((self.usual**2).sum()) if self.stream.any() else 1.0

    def fairness(self, alike: float | None = None) -> float:
        """How far the labels are those of a fair sample of the stream: 1 where they are, 0 for one class.

        Features of one model point much the same way, so a fit that knows few classes pulls every image to
        them, and the answers, all of these classes, confirm it. Two images of a fair sample differ as often
        as two of the stream do; where they differ less often, what was learned is scaled down.
        """
        return float(fair_share(self.alike if alike is None else alike, self.fair) ** POWER)

    @property
    def pairs(self) -> tuple[float, float]:
        """How many pairs of labelled images differ, and how many pairs there are.

        They differ by their labels or by the first base, whichever finds more: a poor base finds many classes
        in a stream of few. None differ where all labels are of one class.
        """
        pairs = self.labels * (self.labels - 1) / 2
        if np.count_nonzero(self.counts) < 2:
            return 0.0, pairs
        sums, squares = self.told
        named = float((self.counts * (self.counts - 1)).sum())
        return pairs - min(named, float(sums @ sums - squares.sum())) / 2, pairs

    @property
    def fair(self) -> Array:
        """The labels' part of `fairness`: share of pairs that differ, and of the pairs beforehand [2]."""
        different, pairs = self.pairs
        return np.array([different, PAIRS]) / (pairs + PAIRS)

    @property
    def heard(self) -> Array:
        """Each expert's share of a prediction; 0 for those of little weight."""
        trust = self._weights().sum(axis=1)
        trust = np.where(trust >= min(HEARD, float(trust.max())), trust, 0.0)
        shares: Array = trust / trust.sum()
        return shares

    def predict(self, look: Neighbourhood, again: bool = False) -> Array:
        """Probability of each class for an image that was seen.

        With `again` it is not the latest one, so all answers count alike for the classes' shares.
        """
        with one_thread():
            predictor = self.predictor
            if again:
                predictor = replace(predictor, leaning=self.leaning(len(self.counts), self.counts))
            blended: Array = predictor.votes @ predictor.ballots(look.wide(), self.alike, self.usual)
        return blended

    def leaning(self, classes: int, answers: Array | None = None) -> Array:
        """What each row of `taus` adds for the classes' shares: 0 in the rows without them [T, K]."""
        none = np.zeros((1 + len(self.settings.votes), classes))
        return np.concatenate([none, self.shares.logits(classes, answers)])

    def reject(self, look: Neighbourhood) -> float:
        """Probability that an image shows none of the classes."""
        with one_thread():
            return self.outside.probability(look.features[0, -1].astype(np.float64))

    @property
    def predictor(self) -> Predictor:
        """The experts that are heard, as a prediction needs them; made once for every answer."""
        if self._predictor is None:
            shares = self.heard
            self._predictor = self._predictor_of(np.flatnonzero(shares).tolist(), shares)
        return self._predictor

    @property
    def whole_predictor(self) -> Predictor:
        """The same of all experts."""
        return self._predictor_of(range(len(self.experts.prior)), self.heard)

    def _predictor_of(self, which: Sequence[int], shares: Array) -> Predictor:
        return Predictor(
            shares=shares[which],
            factors=self.experts.factors[:, which],
            strengths=self.experts.strengths(which),
            ridge=self.experts.ridge.weights,
            fits=partial(self.experts.fits, which=which),
            taus=self.taus[:, None],
            leaning=self.leaning(len(self.counts)),
            votes=self.votes.weights(),
            answered=self.answered,
            fair=self.fair,
        )

    def learn(
        self, look: Neighbourhood, label: int, no: tuple[int, ...] = (), person: int = 0
    ) -> LabelledExample:
        """Weigh the experts by an answer, then learn it.

        Args:
            look: What `see` returned for its image.
            label: Its class, or `OUTSIDE` for an image outside all of them.
            no: Classes it is not of, where that is what was answered, instead of `label`.
            person: Who answered; 0 without a name.
        """
        example = LabelledExample(look, int(label), self.alike, self.usual, no=tuple(no), person=person)
        return self.learn_again(example)

    def learn_again(self, example: LabelledExample) -> LabelledExample:
        """The same for an example as it once came, when another one was taken back."""
        features, logs = example.look.features[0].astype(np.float64), example.look.logs[0].astype(np.float64)
        with one_thread():
            if not example.no:
                self.outside.learn(features[-1], example.label == OUTSIDE)
            if example.label == OUTSIDE and not example.no:  # it says nothing about the classes
                return example
            example = self._judge(example)
            self.experts.learn(features, logs, example.label, example.no)
        self._predictor = None
        if not example.no:
            probs = np.exp(np.pad(logs[0], (0, len(self.counts) - logs.shape[1]), constant_values=-np.inf))
            self.told = self.told + np.stack([probs, probs**2])
            # The first answer of an added class may be a slip, and must not take the images after it.
            if self.counts[example.label] or not self.before[example.label]:
                self.shares.learn(example.label)
            self.counts = self.counts + np.eye(len(self.counts))[example.label]
        return example

    def _judge(self, example: LabelledExample) -> LabelledExample:
        """Weigh the experts and the votes by how well they predicted an answer; add its gain and doubt."""
        look, everyone = example.look.wide(), self.whole_predictor
        probs = everyone.probs(look.features[:1], look.logs[:1], self.fairness(example.alike))[0]
        likelihood = example.likelihood(probs)
        wrong = np.array(self.settings.wrong)
        chance = float(example.likelihood(np.full(probs.shape[1], 1 / probs.shape[1])))
        given = np.maximum(likelihood[:, None] * (1 - wrong) + wrong * chance, SMALLEST)
        weights, noise = self._weights(example.person), self.noise_of(example.person)
        mixed = float((weights * given).sum())
        alone = self.experts.alone
        bases = float(self.mixture.weights(example.person, alone) @ given[:alone].ravel())
        right = float((weights * (1 - wrong)).sum(axis=1) @ likelihood)
        predictor = replace(self.predictor, leaning=self.leaning(probs.shape[1]))
        ballots = example.likelihood(predictor.ballots(look, example.alike, example.usual))
        ballots = (1 - noise) * ballots + noise * chance
        ballots[0] = mixed  # no votes: the first mixture itself, so that its promise is kept
        self.votes.learn(ballots)
        self.mixture.learn(given.ravel(), example.person)
        gain, doubt = float(np.log(mixed / bases)), max(0.0, 1.0 - right / mixed)
        self.gain, self.doubted = self.gain + gain, self.doubted + (doubt > DOUBT)
        return replace(example, gain=gain, doubt=doubt)

    def leverage(self, look: Neighbourhood) -> float:
        """How new an image is to the labels: 1 before any, near 0 where many like it were answered."""
        feature, ridge = look.features[0, 0].astype(np.float64), self.experts.ridge
        with one_thread():
            return ridge.penalty * ridge.leverage(feature) / max(float(feature @ feature), 1e-12)

    def summary(self) -> dict[str, Any]:
        """What the labels were worth, as plain values.

        `head_gain`: nats a label by which the mixture beat the bases alone *before* learning each label; near
        0 or below, the answers (wrong, or contradicting each other) taught nothing so far. `head_trust`,
        `head_votes`, `head_shares`: weight of the labels, of the neighbours, of the classes of the last
        answers. `head_noise`: estimated share of wrong answers. `head_fairness`: 1 where the labelled images
        are as diverse as the others. `head_doubted`: answers more likely wrong than right when they came.
        """
        heard = float(self.mixture.answers.sum())
        _, *votes = self.votes.weights()
        neighbours = len(self.settings.votes)
        return {
            "head_labels": self.labels,
            "head_classes": int((self.counts > 0).sum()),
            "head_trust": round(self.trust, 4),
            "head_votes": round(float(sum(votes[:neighbours])), 4),
            "head_shares": round(float(sum(votes[neighbours:])), 4),
            "head_gain": round(self.gain / heard, 4) if heard else 0.0,
            "head_noise": round(self.noise, 4),
            "head_fairness": round(self.fairness(), 4),
            "head_doubted": int(self.doubted),
        }

    def state(self) -> State:
        """Everything that labels change; none of these arrays is ever changed in place."""
        own = {
            "counts": self.counts,
            "told": self.told,
            "losses": self.mixture.losses,
            "answers": self.mixture.answers,
            "vote_losses": self.votes.losses[0],
            "shares": self.shares.answers,
            "numbers": np.array([self.gain, self.doubted]),
        }
        return own | self.experts.arrays() | self.outside.arrays()

    def check(self, state: State) -> None:
        """Refuse a `state` that is not one of this head's."""
        check_arrays(state, {"counts": ("K",)}, at_least=0)
        if len(state["counts"]) > len(self.counts):
            raise StateError(
                f"The saved head has {len(state['counts'])} classes, this one {len(self.counts)}; "
                "use the saved classes."
            )
        counts: dict[str, Shape] = {
            "counts": ("K",),
            "told": (2, "K"),
            "losses": ("people", len(self.mixture.log_prior)),
            "answers": ("people",),
            "vote_losses": self.taus.shape,
            "shares": (len(self.settings.fading), "K"),
        }
        sizes: dict[str, int] = {}
        check_arrays(state, counts, at_least=0, sizes=sizes)
        rest: dict[str, Shape] = {"numbers": (2,), **self.experts.shapes(), **self.outside.shapes()}
        check_arrays(state, rest, sizes=sizes)

    def go_to(self, state: State) -> None:
        """Return to a `state`, but for the images seen since; classes may have been added."""
        self.check(state)
        classes = len(self.counts)
        new = (0, classes - len(state["counts"]))
        self.counts = np.pad(state["counts"], new)
        self.told = np.pad(state["told"], ((0, 0), new))
        self.mixture.restore(state["losses"], state["answers"])
        self.outside.restore(state)
        self.votes.restore(state["vote_losses"])
        self.shares.answers = np.pad(state["shares"], ((0, 0), new))
        self.gain, self.doubted = (float(number) for number in state["numbers"])
        self.experts.restore(state)
        self.experts.grow(classes)
        self._predictor = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything to be saved: what images changed, and what labels did."""
        return {
            **self.whitener.arrays(),
            **self.recent.arrays(),
            "stream": self.stream,
            "before": self.before,
        } | self.state()

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from where `arrays` was taken: the same bits follow."""
        self.whitener.restore(arrays)
        self.go_to({name: arrays[name] for name in self.state()})
        self.recent.restore(arrays)
        check_arrays(arrays, dict.fromkeys(("stream", "before"), arrays["counts"].shape), at_least=0)
        stream, new = arrays["stream"], (0, len(self.counts) - len(arrays["stream"]))
        self.stream = np.pad(stream, new)
        self.before = np.pad(arrays["before"], new, constant_values=float(stream.sum()))


def ballot_grid(settings: HeadSettings) -> tuple[Array, Array]:
    """τ and prior of each row of the mixture with the neighbours: no votes, votes, votes and shares."""
    shares = len(settings.shares) * len(settings.fading)
    taus = np.array([0.0, *settings.votes, *[SHARES_TAU] * shares])
    votes = (0.5 - settings.shares_prior) / len(settings.votes)
    prior = np.array([0.5, *[votes] * len(settings.votes), *[settings.shares_prior / shares] * shares])
    return taus, prior
