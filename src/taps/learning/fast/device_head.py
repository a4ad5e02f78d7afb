"""A head's memory of the stream on a GPU: images are seen and predicted there, beside the step.

The formulas are the head's own; here is where their numbers lie. Learning stays on the host, in numpy; after
an answer the device is told what changed. Everything is computed in double precision, as on the host, but
sums are taken in another order: of two images that are all but equally near, another one may vote. The work
can be captured as two CUDA graphs: one computes what the head says, the other remembers the image while the
host goes on. All kernels are small, so their number is what they cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taps.head.head import Head
from taps.head.linear import INTERCEPT
from taps.head.neighbours import NEAR, Neighbourhood, row_of, with_neighbours
from taps.head.predictor import Predictor, usual_of
from taps.head.whitening import LAST, apart_of, centred, is_time, metric

if TYPE_CHECKING:
    from taps.learning.fast.capture import CapturedGraph, GraphCapture

log = logging.getLogger("taps")
FAR = 3.0  # taken from the cosine where no recent image is held yet


@dataclass(frozen=True)
class DeviceHeadState:
    """What was computed of one image; nothing is remembered until `DeviceHead.keep`.

    Attributes:
        told: All that the host waits for: probabilities [K], mean cosine to the neighbours, the sum of all
            predictions, which is finite where they are, and the last feature [d].
        look: The image and its neighbours, as `Neighbourhood` has them; overwritten by the next.
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
        head, whitener, recent = self.head, self.head.whitener, self.head.recent
        self.captured: dict[bool, CapturedGraph[DeviceHeadState]] = {}
        self.keepers: dict[bool, CapturedGraph[None]] = {}
        self.given: list[Tensor] = []  # where captured work reads an image
        self.seen = whitener.seen
        # Mean feature of the stream, zero-shot's sum over it, how many images there were.
        self.state = self._put(np.concatenate([whitener.mean.ravel(), head.stream, [self.seen]]))
        self.mean = self.state[: whitener.mean.size].view(whitener.mean.shape)
        self.before, self.transform = self._put(head.before), self._put(whitener.transform)
        self.within, self.between = map(self._put, whitener.covariances())
        self.rows, self.unit = self._put(recent.rows), self._put(recent.unit)
        held = np.arange(len(recent.unit)) < recent.held
        self.absent = self._put(np.where(held, 0.0, FAR).astype(np.float32))
        count, dim = whitener.mean.shape
        shape = (count, dim + 1, len(head.experts.fitted) // count * len(head.counts))
        self.older = torch.zeros(shape, dtype=torch.float64, device=self.device)  # of labels refitted no more
        self.weights = torch.zeros_like(self.older)
        self.known: list[Any] = [None] * count  # older weights of each fit as the device has them
        learned = {name: self._put(array) for name, array in head.whole_predictor.arrays().items()}
        self.predictor = Predictor(fits=self._fits, **learned)
        self.learned()

    def learned(self) -> None:
        """Take over what answers have changed."""
        for name, array in self.head.whole_predictor.arrays().items():
            getattr(self.predictor, name).copy_(self._put(array))
        for place, fit in enumerate(self.head.experts.logistic):
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

    def _fits(self, features: Tensor) -> Tensor:
        """As `Experts.fits` of all experts [F, m, P·H, K]."""
        images, _, dim = features.shape
        always, weights = self.weights[:, dim:], self.weights[:, :dim]
        scores = torch.baddbmm(always, features.transpose(0, 1), weights, beta=INTERCEPT)
        return scores.view(len(scores), images, -1, len(self.before))

    def bring(self) -> None:
        """Tell the head on the host what was seen here."""
        whitener, recent = self.head.whitener, self.head.recent
        whitener.seen, whitener.transform = self.seen, self._take(self.transform)
        whitener.mean = self._take(self.mean)
        whitener.take_in(self._take(self.within), self._take(self.between))
        recent.seen, recent.unit, recent.rows = self.seen, self._take(self.unit), self._take(self.rows)
        self.bring_stream()

    def bring_stream(self) -> None:
        """Tell it what zero-shot said of all images: what an answer is learned with."""
        self.head.stream = self._take(self.state[self.mean.numel() : -1])

    @torch.no_grad()
    def see(self, *given: Tensor) -> DeviceHeadState:
        """Compute what an image shows, without waiting for the device.

        Args:
            given: What `read` takes: features of its views, of length 1, view 0 first [V, d], and the rest.
        """
        measuring = len(self.mean) > 1 and self.seen < LAST
        if measuring and is_time(self.seen + 1):
            self._make_metric(given[0].double())
        captured = self._captured(given, measuring)
        if captured is None:
            return self._compute(given, measuring)
        captured.replay()
        return captured.result

    def _captured(self, given: tuple[Tensor, ...], measuring: bool) -> CapturedGraph[DeviceHeadState] | None:
        """The graph for an image, with the image put where it reads it; None for the first images."""
        if self.graphs is None or self.seen < NEAR:
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
        self.seen += 1

    def _remember(self, seen: DeviceHeadState) -> None:
        self.state.copy_(seen.state)
        for mine, new in zip((self.within, self.between), seen.covariances, strict=False):
            mine.copy_(new)
        place = (seen.state[-1:] - 1).remainder(len(self.unit)).long()
        self.rows.index_copy_(0, place, seen.look[:1])
        self.unit.index_copy_(0, place, seen.unit[None])
        self.absent.index_fill_(0, place, 0.0)

    def _compute(self, given: tuple[Tensor, ...], measuring: bool) -> DeviceHeadState:
        views, logs = (each.double() for each in self.read(*given))
        number = self.state[-1:] + 1
        mean, features = centred(views, self.mean, number)
        covariances = self._covariances(views, features) if measuring else ()
        if len(features) > 1:
            features[1] = features[1] @ self.transform
        row, shape = row_of(features, logs).float(), self.head.recent.shape
        look = Neighbourhood(row[None], shape)
        unit = look.unit
        if self.seen >= NEAR:
            look = Neighbourhood(with_neighbours(row, unit, self.rows, self.unit, self.absent), shape)
        stream = self.state[mean.numel() : -1] + logs[0].exp()
        usual = usual_of(stream, self.before)
        wide = Neighbourhood(look.rows.double(), shape)
        probs = self.predictor.votes @ self.predictor.ballots(wide, usual.square().sum(), usual)
        density = wide.rows[min(1, len(wide.cosines)) :, 0].mean()
        told = torch.cat([probs, density[None], logs.sum()[None], wide.features[0, -1]])
        state = torch.cat([mean.flatten(), stream, number])
        return DeviceHeadState(told, look.rows, unit, state, covariances)

    def _covariances(self, views: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        apart = apart_of(views)
        return self.within + apart.T @ apart, self.between + torch.outer(features[1], features[1])

    def _make_metric(self, views: Tensor) -> None:
        """Make the metric anew, on the host, with this image; seven times in a stream."""
        _, features = centred(views, self.mean, self.seen + 1)
        within, between = map(self._take, self._covariances(views, features))
        if np.isfinite(within).all():
            self.transform.copy_(self._put(metric(within, between)))

    def _put(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self.device)  # a copy, also where the device is the host

    def _take(self, tensor: Tensor) -> NDArray[Any]:
        return tensor.cpu().numpy().copy()
