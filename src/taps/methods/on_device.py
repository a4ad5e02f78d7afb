"""The head's predictions on a GPU: what `Head.see` and `Head.predict` compute, launched beside the step.

Learning stays on the host, in numpy; after an answer the device is told what changed. Everything is computed
in double precision, as on the host, but sums are taken in another order: of two images that are all but
equally near, another one may vote. Its kernels can be captured as two CUDA graphs: one computes what the head
says, the other remembers the image while the host goes on. All are small, so their number is what they cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.adapt.graphs.capture import CapturedGraph, GraphCapture
from taps.head.head import PAIRS, POWER, Head
from taps.head.logistic import INTERCEPT
from taps.head.neighbours import FAINT, LOWEST, NEAR, STEEP, TWIN
from taps.head.whitening import LAST, SHRINK, VIEWS, is_time, metric

log = logging.getLogger("taps")
FAR = 3.0  # further than any image: where the recent images holds none yet


@dataclass(frozen=True)
class DeviceHeadState:
    """What was computed of one image; nothing is remembered until `DeviceHead.keep`.

    Attributes:
        told: All that the host waits for: probabilities [K], mean cosine to the neighbours, the sum of all
            predictions, which is finite where they are, and the last feature [d].
        look: The image and its neighbours, as `Neighbourhood.packed` has them; overwritten by the next.
        unit: The image's direction, for the recent images [d].
        state: `DeviceHead.state` with this image.
        covariances: Of views and of means, with this image; none where they are complete.
    """

    told: Tensor
    look: Tensor
    unit: Tensor
    state: Tensor
    covariances: tuple[Tensor, ...]


class DeviceHead:
    """Sees and predicts on a device for a head that learns on the host.

    Args:
        head: Learns; its whitener, recent and stream are those of the last `bring`.
        device: Where images are seen.
        graphs: Captures what is computed of an image; None to compute it kernel by kernel.
        read: Makes the views' features [V, d] and the log-probabilities of the bases [B, K] of what `see` is
            given, the features first; None where `see` is given these.
    """

    def __init__(
        self,
        head: Head,
        device: torch.device,
        graphs: GraphCapture | None = None,
        read: Callable[..., tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        self.head, self.device, self.graphs = head, device, graphs
        self.read = read or (lambda views, logs: (views, logs))
        self.load()

    def load(self) -> None:
        """Take over all that the head on the host has seen and learned."""
        whitener, recent, settings = self.head.whitener, self.head.recent, self.head.settings
        within, between = whitener.covariances()
        self.captured: dict[bool, CapturedGraph[DeviceHeadState]] = {}
        self.keepers: dict[bool, CapturedGraph[None]] = {}
        self.given: list[Tensor] = []  # where captured work reads an image
        self.several, self.seen, self.ringed = whitener.several, whitener.seen, recent.seen
        # Mean feature of the stream, zero-shot's sum over it, counts of the recent images and the whitener.
        self.state = self._put(
            np.concatenate([whitener.mean.ravel(), self.head.stream, [recent.seen, whitener.seen]])
        )
        self.before = self._put(self.head.before)
        self.rates = self._put(np.zeros(2))
        self._set_rates()
        self.transform = self._put(whitener.transform)
        self.within, self.between = self._put(within), self._put(between)
        size = len(recent.unit)
        first = np.ones((size, 1), dtype=np.float32)
        self.rows = self._put(
            np.concatenate([first, recent.features.reshape(size, -1), recent.logs.reshape(size, -1)], axis=1)
        )
        self.unit, self.one = self._put(recent.unit), self._put(np.ones(1))
        self.absent = self._put(np.where(np.arange(size) < recent.held, 0.0, FAR).astype(np.float32))
        self.sharpness = self._put(np.array(settings.sharpness))[:, None, None, None]
        self.strengths = self._put(np.array(settings.strengths))[:, None, None]
        self.taus = self._put(self.head.taus)[:, None]
        fits, dim = self.head.experts.logistic, whitener.mean.shape[1]
        penalties, kept = fits[0].coefficients.shape[:2]
        self.kept = self._put(np.tile(settings.kept, penalties))[:, None, None]
        shape = (len(fits), dim + 1, penalties * kept * len(self.head.counts))
        self.older = torch.zeros(shape, dtype=torch.float64, device=self.device)  # of labels refitted no more
        self.weights = torch.zeros_like(self.older)
        self.known: list[Any] = [None] * len(fits)  # older weights of each fit as the device has them
        self.trust, self.votes = self._put(self.head.heard), self._put(self.head.votes.weights())
        self.fair, self.ridge = self._put(np.zeros(2)), self._put(self.head.experts.ridge.weights)
        self.answered = self._put(self.head.answered)
        self.leaning = self._put(self.head.leaning(len(self.head.counts)))
        self.learned()

    def learned(self) -> None:
        """Take over what answers have changed."""
        head, experts = self.head, self.head.experts
        different, pairs = head.pairs
        self.trust.copy_(self._put(head.heard))
        self.votes.copy_(self._put(head.votes.weights()))
        self.fair.copy_(self._put(np.array([different, PAIRS]) / (pairs + PAIRS)))
        self.ridge.copy_(self._put(experts.ridge.weights))
        self.answered.copy_(self._put(head.answered))
        self.leaning.copy_(self._put(head.leaning(len(head.counts))))
        for place, fit in enumerate(experts.logistic):
            older, gone = self.older[place], fit.last_gone
            if gone is not None and gone[0] is self.known[place] and gone[1] is fit.weights:
                older.addr_(self._put(gone[2]), self._side_by_side(gone[3])[0])
            elif fit.weights is not self.known[place]:
                older.copy_(self._side_by_side(fit.weights)) if fit.weights.size else older.zero_()
            self.known[place] = fit.weights
            inputs, coefficients = self._put(fit.inputs), self._side_by_side(fit.coefficients)
            torch.addmm(older, inputs.T, coefficients, out=self.weights[place])

    def _side_by_side(self, rows: NDArray[Any]) -> Tensor:
        """Rows of all fits of a feature [P, H, n, K] as [n, P·H·K], on the device."""
        return self._put(rows).permute(2, 0, 1, 3).flatten(1)

    def bring(self) -> None:
        """Tell the head on the host what was seen here."""
        whitener, recent = self.head.whitener, self.head.recent
        whitener.seen, whitener.transform = self.seen, self._take(self.transform)
        whitener.mean = self._take(self.state[: whitener.mean.size]).reshape(whitener.mean.shape)
        whitener.take_in(self._take(self.within), self._take(self.between))
        recent.seen, recent.unit = self.ringed, self._take(self.unit)
        rows, after = self._take(self.rows), 1 + whitener.mean.size
        recent.features = rows[:, 1:after].reshape(recent.features.shape).copy()
        recent.logs = rows[:, after:].reshape(recent.logs.shape).copy()
        self.bring_stream()

    def bring_stream(self) -> None:
        """Tell it what zero-shot said of all images: what an answer is learned with."""
        self.head.stream = self._take(self.state[self.head.whitener.mean.size : -2])

    @torch.no_grad()
    def see(self, *given: Tensor) -> DeviceHeadState:
        """Compute what an image shows, without waiting for the device.

        Args:
            given: What `read` takes: features of its views, of length 1, view 0 first [V, d], and the rest.
        """
        number = self.seen + 1
        measuring = self.several and number <= LAST
        if measuring and is_time(number):
            self._make_metric(given[0])
        captured = self._captured(given, measuring)
        if captured is None:
            return self._compute(given, measuring)
        captured.replay()
        return captured.result

    def _captured(self, given: tuple[Tensor, ...], measuring: bool) -> CapturedGraph[DeviceHeadState] | None:
        """The graph for an image, with the image put where it reads it; None for the first images."""
        if self.graphs is None or self.ringed < NEAR:
            return None
        if [each.shape for each in given] != [each.shape for each in self.given]:
            self.captured, self.keepers = {}, {}
            self.given = [each.clone() for each in given]
        for mine, new in zip(self.given, given, strict=True):
            mine.copy_(new)
        try:
            if measuring not in self.captured:
                self.captured[measuring] = self._capture(self.graphs, measuring)
        except RuntimeError as error:
            self._do_without(error)
        return self.captured.get(measuring)

    def _capture(self, graphs: GraphCapture, measuring: bool) -> CapturedGraph[DeviceHeadState]:
        """Capture what is computed of an image, and see once that a replay says the same."""
        given = tuple(self.given)
        captured = graphs.capture(lambda: self._compute(given, measuring))
        expected = self._compute(given, measuring).told
        captured.replay()
        if not torch.allclose(captured.result.told, expected, rtol=0, atol=1e-6, equal_nan=True):
            raise RuntimeError("a replay says something else")
        return captured

    def _do_without(self, error: RuntimeError) -> None:
        log.info("The head predicts without a CUDA graph (%s).", error)
        self.graphs, self.captured, self.keepers = None, {}, {}

    @torch.no_grad()
    def keep(self, seen: DeviceHeadState) -> None:
        """Remember the image that was seen last."""
        measuring = bool(seen.covariances)
        captured = self.captured.get(measuring)
        if self.graphs is None or captured is None or seen is not captured.result:
            self._remember(seen)
        elif measuring in self.keepers:
            self.keepers[measuring].replay()
        else:
            try:  # captured work is done once; to do it twice changes nothing
                self.keepers[measuring] = self.graphs.capture(lambda: self._remember(seen))
            except RuntimeError as error:
                self._do_without(error)
                self._remember(seen)
        self.seen, self.ringed = self.seen + 1, self.ringed + 1

    def _remember(self, seen: DeviceHeadState) -> None:
        self.state.copy_(seen.state)
        self._set_rates()
        for mine, new in zip((self.within, self.between), seen.covariances, strict=False):
            mine.copy_(new)
        place = (seen.state[-2:-1] - 1).remainder(len(self.unit)).long()
        self.rows.index_copy_(0, place, seen.look[:1])
        self.unit.index_copy_(0, place, seen.unit[None])
        self.absent.index_fill_(0, place, 0.0)

    def _set_rates(self) -> None:
        """What the next image weighs in the stream's mean, and how much of the mean is taken from it."""
        number = self.state[-1] + 1
        self.rates.copy_(torch.stack([1 / number, number / (number + SHRINK)]))

    def _compute(self, given: tuple[Tensor, ...], measuring: bool) -> DeviceHeadState:
        views, logs = self.read(*given)
        logs = logs.double()
        mean, centred = self._centred(views)
        covariances = self._covariances(views, centred) if measuring else ()
        last = (centred[1] @ self.transform,) if self.several else ()
        own = torch.cat([self.one, centred[0], *last, logs.clamp_min(LOWEST).flatten()])
        look = own.new_empty(1 if self.ringed < NEAR else 1 + NEAR, len(own), dtype=torch.float32)
        look[0] = own
        mine = look[0, mean.numel() + 1 - mean.shape[1] : mean.numel() + 1]
        unit = mine / mine.norm().clamp_min(1e-12)
        if len(look) > 1:
            self._find_neighbours(unit, look[1:])
        stream = self.state[mean.numel() : -2] + logs[0].exp()
        wide = look.double()
        probs = self._predict(wide, mean.shape, logs.shape, stream)
        density = wide[min(1, len(look) - 1) :, 0].mean()
        after = 1 + mean.numel()
        told = torch.cat([probs, density[None], logs.sum()[None], wide[0, after - mean.shape[1] : after]])
        state = torch.cat([mean.flatten(), stream, self.state[-2:] + 1])
        return DeviceHeadState(told, look, unit, state, covariances)

    def _centred(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """As `FeatureWhitener.see`: the stream's mean with this image, and its centred features [F, d]."""
        first = views[:1].double()
        given = (
            torch.cat([first, views.mean(dim=0, keepdim=True, dtype=torch.float64)])
            if self.several
            else first
        )
        before = self.state[: given.numel()].view(given.shape)
        mean = torch.lerp(before, given, self.rates[0])
        return mean, torch.addcmul(given, mean, self.rates[1], value=-1)

    def _covariances(self, views: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
        some = views[:VIEWS].double()
        apart = some - some.mean(dim=0)
        within = self.within + apart.T @ apart / len(some)
        return within, self.between + torch.outer(centred[1], centred[1])

    def _make_metric(self, views: Tensor) -> None:
        """Make the metric anew, on the host, with this image; seven times in a stream."""
        within, between = map(self._take, self._covariances(views, self._centred(views)[1]))
        if np.isfinite(within).all():
            self.transform.copy_(self._put(metric(within, between)))

    def _find_neighbours(self, unit: Tensor, rows: Tensor) -> None:
        """As `RecentImages.look`: fill rows with the nearest images, their cosine first."""
        apart = torch.addmv(self.absent, self.unit, unit, alpha=-1)  # less the cosine
        apart, places = torch.threshold(apart, -TWIN, 1.0).topk(NEAR, largest=False)
        torch.index_select(self.rows, 0, places, out=rows)
        torch.neg(apart, out=rows[:, 0])

    def _predict(self, wide: Tensor, features: torch.Size, logs: torch.Size, stream: Tensor) -> Tensor:
        """As `Head.predict`: probabilities of the first of some images [K]; the others are its neighbours.

        Args:
            wide: A row for each image, as `Neighbourhood.packed` has them.
            features: How many features an image has, of what length.
            logs: How many predictions, of how many classes.
            stream: What zero-shot says of all images, summed [K].
        """
        after = 1 + features.numel()
        usual = stream / (stream.sum() - self.before).clamp_min(1e-9)
        fairness = self._fairness(usual)
        beliefs = self._beliefs(
            wide[:, 1:after].view(-1, *features).transpose(0, 1),
            wide[:, after:].view(-1, *logs).transpose(0, 1),
            fairness,
        )
        own = torch.addcmul(beliefs[0].clamp_min(1e-12).log(), fairness ** (1 / POWER), self.leaning)
        if len(wide) == 1:
            return self.votes @ torch.softmax(own, dim=-1)
        weights = torch.softmax(STEEP * wide[1:, 0], dim=0)
        odds = self._vote(weights[:, None] * (wide[1:, after : after + logs[1]] > LOWEST), beliefs[1:], usual)
        return self.votes @ torch.softmax(torch.addcmul(own, self.taus, odds), dim=-1)

    def _vote(self, known: Tensor, beliefs: Tensor, usual: Tensor) -> Tensor:
        """As `vote`: log-odds that neighbours speak for [K].

        Args:
            known: The weight of each neighbour for the classes that it knows, else 0 [m, K].
            beliefs: Their probabilities [m, K].
            usual: Mean probabilities over the stream [K].
        """
        usual, count = torch.maximum(usual, self.answered), known.sum(dim=0)
        said = torch.where(count > 0, (known * beliefs).sum(dim=0) / count.clamp_min(1e-300), usual)
        faint = FAINT / len(usual)
        return ((said + faint) / (usual + faint)).log()

    def _beliefs(self, features: Tensor, bases: Tensor, fairness: Tensor) -> Tensor:
        """As `Experts.probs`, mixed by trust: probabilities of each of some images [m, K]."""
        count, images, classes = bases.shape
        sharp, fitted = len(self.sharpness) * count, len(self.kept) * len(features)
        logits = bases.new_empty(sharp + len(self.strengths) + fitted, images, classes)
        torch.mul(self.sharpness, bases, out=logits[:sharp].view(-1, *bases.shape))
        learned = features[0] @ self.ridge
        torch.addcmul(bases[0], fairness * self.strengths, learned, out=logits[sharp:-fitted])
        dim, ground = features.shape[2], bases[self.head.experts.ground]
        scores = torch.baddbmm(self.weights[:, dim:], features, self.weights[:, :dim], beta=INTERCEPT)
        scores = scores.view(len(features), images, -1, classes).transpose(1, 2)
        out = logits[-fitted:].view(len(features), -1, images, classes)
        torch.lerp(ground, torch.addcmul(scores, self.kept, ground), fairness, out=out)
        return (self.trust @ torch.softmax(logits, dim=-1).flatten(1)).view(images, classes)

    def _fairness(self, usual: Tensor) -> Tensor:
        """As `Head.fairness`."""
        differ = 1 - usual.square().sum()
        share = torch.addcdiv(self.fair[1], self.fair[0], differ)
        return torch.where(differ < 1e-9, 1.0, share.clamp(max=1.0) ** POWER)

    def _put(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self.device)  # a copy, also where the device is the host

    def _take(self, tensor: Tensor) -> NDArray[Any]:
        return tensor.cpu().numpy().copy()
