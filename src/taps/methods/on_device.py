"""The head's predictions on a GPU: what `Head.see` and `Head.predict` compute, launched beside the step.

Learning stays on the host, in numpy; after an answer the device is told what changed. Everything is computed
in double precision, as on the host, but sums are taken in another order: of two images that are all but
equally near, another one may vote. Its hundred small kernels can be captured as one CUDA graph.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.adapt.graphs.capture import CapturedGraph, GraphCapture
from taps.head.head import PAIRS, POWER, Head
from taps.head.lens import LAST, SHRINK, VIEWS, is_time, metric
from taps.head.logistic import INTERCEPT
from taps.head.neighbours import FAINT, LOWEST, NEAR, STEEP, TWIN

log = logging.getLogger("taps")


@dataclass(frozen=True)
class Seen:
    """What was computed of one image; nothing is remembered until `DeviceHead.keep`.

    Attributes:
        told: All that the host waits for: probabilities [K], mean cosine to the neighbours, a number that is
            finite where all features and predictions are, and the last feature [d].
        look: The image and its neighbours, as `Look.packed` has them; filled anew for the next image.
        mean: Of the stream's features, with this image.
        stream: What zero-shot says of all images, with this one.
        covariances: Of views and of means, with this image; none where they are complete.
        own: The image's features [F, d], predictions [B, K] and direction [d], for the ring.
    """

    told: Tensor
    look: Tensor
    mean: Tensor
    stream: Tensor
    covariances: tuple[Tensor, ...]
    own: tuple[Tensor, Tensor, Tensor]


class DeviceHead:
    """Sees and predicts on a device for a head that learns on the host.

    Args:
        head: Learns; its lens, ring and stream are those of the last `bring`.
        device: Where images are seen.
        graphs: Captures what is computed of an image; None to compute it kernel by kernel.
    """

    def __init__(self, head: Head, device: torch.device, graphs: GraphCapture | None = None) -> None:
        self.head, self.device, self.graphs = head, device, graphs
        self.load()

    def load(self) -> None:
        """Take over all that the head on the host has seen and learned."""
        lens, ring, settings = self.head.lens, self.head.ring, self.head.settings
        within, between = lens.covariances()
        self.captured: dict[bool, CapturedGraph[Seen]] = {}
        self.unkept: Seen | None = None
        self.views = self.predictions = torch.zeros(0)  # where captured work reads an image
        self.seen, self.several, self.ringed = lens.seen, lens.several, ring.seen
        self.mean, self.transform = self._put(lens.mean), self._put(lens.transform)
        self.within, self.between = self._put(within), self._put(between)
        self.stream = self._put(self.head.stream)
        self.features, self.logs = self._put(ring.features), self._put(ring.logs)
        self.unit, self.places = self._put(ring.unit).double(), self._put(np.arange(len(ring.unit)))
        self.counts = self._put(np.array([lens.seen, ring.held], dtype=np.float64))
        self.sharpness = self._put(np.array(settings.sharpness))[:, None, None, None]
        self.strengths = self._put(np.array(settings.strengths))[:, None, None]
        self.taus = self._put(np.array([0.0, *settings.votes]))[:, None]
        fits, dim = self.head.readings.logistic, lens.mean.shape[1]
        self.capacity = fits[0].capacity
        penalties, kept = fits[0].coefficients.shape[:2]
        shape = (len(fits), penalties * kept, self.capacity + dim + 1, len(self.head.counts))
        self.kept = self._put(np.tile(settings.kept, len(fits) * penalties))[:, None, None]
        self.fits = torch.zeros(shape, dtype=torch.float64, device=self.device)
        self.labelled = torch.zeros(
            len(fits), self.capacity, dim + 1, dtype=torch.float64, device=self.device
        )
        self.known: list[Any] = [None] * len(fits)  # weights of each fit as the device has them
        self.trust, self.votes = self._put(self.head.heard), self._put(self.head.votes.weights())
        self.pairs, self.ridge = self._put(np.zeros(2)), self._put(self.head.readings.ridge.weights)
        self.learned()

    def learned(self) -> None:
        """Take over what answers have changed."""
        head, readings = self.head, self.head.readings
        self.trust.copy_(self._put(head.heard))
        self.votes.copy_(self._put(head.votes.weights()))
        self.pairs.copy_(self._put(np.array(head.pairs)))
        self.ridge.copy_(self._put(readings.ridge.weights))
        for place, fit in enumerate(readings.logistic):
            held, rows = len(fit.inputs), self.fits[place]
            self.labelled[place].zero_()[:held] = self._put(fit.inputs)
            rows[:, : self.capacity].zero_()
            rows[:, :held] = self._put(fit.coefficients).flatten(0, 1)
            gone = fit.last_gone
            if gone is not None and gone[0] is self.known[place] and gone[1] is fit.weights:
                rows[:, self.capacity :] += self._put(gone[2])[:, None] * self._put(gone[3]).flatten(0, 1)
            elif fit.weights is not self.known[place]:
                rows[:, self.capacity :] = self._put(fit.weights).flatten(0, 1) if fit.weights.size else 0.0
            self.known[place] = fit.weights

    def bring(self) -> None:
        """Tell the head on the host what was seen here."""
        self._settle()
        lens, ring = self.head.lens, self.head.ring
        lens.seen = self.seen
        lens.mean, lens.transform = self._take(self.mean), self._take(self.transform)
        lens.take_in(self._take(self.within), self._take(self.between))
        ring.seen = self.ringed
        ring.features, ring.logs = self._take(self.features), self._take(self.logs)
        ring.unit = self._take(self.unit.float())
        self.bring_stream()

    def bring_stream(self) -> None:
        """Tell it what zero-shot said of all images: what an answer is learned with."""
        self._settle()
        self.head.stream = self._take(self.stream)

    @torch.no_grad()
    def see(self, views: Tensor, logs: Tensor) -> Seen:
        """Compute what an image shows, without waiting for the device.

        Args:
            views: Features of its views, of length 1, view 0 first [V, d].
            logs: Log-probabilities of the bases [B, K].
        """
        self._settle()
        number = self.seen + 1
        measuring = self.several and number <= LAST
        if measuring and is_time(number):
            self._make_metric(views.double())
        captured = self._captured(views, logs, measuring)
        if captured is None:
            return self._compute(views.double(), logs.double(), measuring)
        captured.replay()
        return captured.result

    def _captured(self, views: Tensor, logs: Tensor, measuring: bool) -> CapturedGraph[Seen] | None:
        """The graph for an image, with the image put where it reads it; None for the first images."""
        if self.graphs is None or self.ringed < NEAR:
            return None
        if views.shape != self.views.shape:
            self.captured = {}
            self.views, self.predictions = views.double().clone(), logs.double().clone()
        self.views.copy_(views)
        self.predictions.copy_(logs)
        try:
            if measuring not in self.captured:
                self.captured[measuring] = self._capture(self.graphs, measuring)
        except RuntimeError as error:
            log.info("The head predicts without a CUDA graph (%s).", error)
            self.graphs, self.captured = None, {}
        return self.captured.get(measuring)

    def _capture(self, graphs: GraphCapture, measuring: bool) -> CapturedGraph[Seen]:
        """Capture what is computed of an image, and see once that a replay says the same."""
        captured = graphs.capture(lambda: self._compute(self.views, self.predictions, measuring))
        expected = self._compute(self.views, self.predictions, measuring).told
        captured.replay()
        if not torch.allclose(captured.result.told, expected, rtol=0, atol=1e-6, equal_nan=True):
            raise RuntimeError("a replay says something else")
        return captured

    def keep(self, seen: Seen) -> None:
        """Remember an image; what that takes is launched behind the next step, not at the end of this one."""
        self.unkept = seen

    def _settle(self) -> None:
        seen, self.unkept = self.unkept, None
        if seen is None:
            return
        self.mean.copy_(seen.mean)
        self.stream.copy_(seen.stream)
        for mine, new in zip((self.within, self.between), seen.covariances, strict=False):
            mine.copy_(new)
        at = self.ringed % len(self.unit)
        self.features[at], self.logs[at], self.unit[at] = seen.own
        self.counts += 1
        self.seen, self.ringed = self.seen + 1, self.ringed + 1

    def _compute(self, views: Tensor, logs: Tensor, measuring: bool) -> Seen:
        mean, centred = self._centred(views)
        covariances = self._covariances(views, centred) if measuring else ()
        if self.several:
            centred = torch.stack([centred[0], centred[1] @ self.transform])
        mine, said = centred.float(), logs.clamp_min(LOWEST).float()
        unit = mine[-1].double()
        unit = (unit / unit.norm().clamp_min(1e-12)).float().double()
        near, their_logs, cosines = self._neighbours(unit)
        stream = self.stream + logs[0].exp()
        features, told_logs = torch.cat([mine[None], near]), torch.cat([said[None], their_logs])
        probs = self._predict(features.double(), told_logs.double(), cosines.double(), stream)
        first = torch.cat([cosines.new_ones(1), cosines])[:, None]
        density = (cosines if len(cosines) else first).double().mean()
        told = torch.cat([probs, torch.stack([density, views.sum() + logs.sum()]), mine[-1].double()])
        look = torch.cat([first, features.flatten(1), told_logs.flatten(1)], dim=1)
        return Seen(told, look, mean, stream, covariances, (mine, said, unit))

    def _centred(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """As `Lens.see`: the mean of the stream with this image, and its features from there [F, d]."""
        number = self.counts[0] + 1
        given = torch.stack([views[0], views.mean(dim=0)]) if self.several else views[:1]
        mean = self.mean + (given - self.mean) / number
        return mean, given - mean * (number / (number + SHRINK))

    def _covariances(self, views: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
        some = views[:VIEWS]
        apart = some - some.mean(dim=0)
        within = self.within + apart.T @ apart / len(some)
        return within, self.between + torch.outer(centred[1], centred[1])

    def _make_metric(self, views: Tensor) -> None:
        """Make the metric anew, on the host, with this image; seven times in a stream."""
        within, between = map(self._take, self._covariances(views, self._centred(views)[1]))
        if np.isfinite(within).all():
            self.transform.copy_(self._put(metric(within, between)))

    def _neighbours(self, unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Ring.look`: features and predictions of the nearest images, and their cosines."""
        if self.ringed < NEAR:
            return self.features[:0], self.logs[:0], self.features.new_zeros(0)
        cosines = self.unit @ unit
        cosines = torch.where(cosines > TWIN, -1.0, cosines)
        cosines = torch.where(self.places < self.counts[1], cosines, -2.0)  # nothing is there yet
        cosines, places = cosines.float().topk(NEAR)
        return self.features[places], self.logs[places], cosines

    def _predict(self, features: Tensor, logs: Tensor, cosines: Tensor, stream: Tensor) -> Tensor:
        """As `Head.predict`: probabilities of the first of some images [K]; the others are its neighbours."""
        usual = stream / stream.sum()
        beliefs = self._beliefs(features, logs, self._fairness(usual))
        odds = torch.zeros_like(usual)
        if len(cosines):
            weights = torch.softmax(STEEP * cosines, dim=0)
            faint = FAINT / len(usual)
            odds = torch.log(weights @ beliefs[1:] + faint) - torch.log(usual + faint)
        ballots = torch.softmax(beliefs[0].clamp_min(1e-12).log() + self.taus * odds, dim=-1)
        return self.votes @ ballots

    def _beliefs(self, features: Tensor, logs: Tensor, fairness: Tensor) -> Tensor:
        """As `Readings.probs`, mixed by trust: probabilities of each of some images [m, K]."""
        bases, ground = logs.transpose(0, 1), self.head.readings.ground
        alone = (self.sharpness * bases).flatten(0, 1)
        ridged = bases[0] + fairness * self.strengths * (features[:, 0] @ self.ridge)
        constant = features.new_full((*features.shape[:2], 1), INTERCEPT)
        inputs = torch.cat([features, constant], dim=2).transpose(0, 1)
        inputs = torch.cat([inputs @ self.labelled.transpose(1, 2), inputs], dim=2)
        scores = (inputs[:, None] @ self.fits).flatten(0, 1)
        fitted = bases[ground] * (1 - fairness * (1 - self.kept)) + fairness * scores
        probs = torch.softmax(torch.cat([alone, ridged, fitted]), dim=-1)
        return (self.trust @ probs.flatten(1)).view(probs.shape[1:])

    def _fairness(self, usual: Tensor) -> Tensor:
        """As `Head.fairness`."""
        differ, different, pairs = 1 - (usual**2).sum(), self.pairs[0], self.pairs[1]
        share = (different + PAIRS * differ) / ((pairs + PAIRS) * differ)
        return torch.where(differ < 1e-9, 1.0, share.clamp(max=1.0) ** POWER)

    def _put(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self.device)  # a copy, also where the device is the host

    def _take(self, tensor: Tensor) -> NDArray[Any]:
        return tensor.cpu().numpy().copy()
