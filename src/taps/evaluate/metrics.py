"""Measures as functions of arrays, one value an image in the order of the stream. Numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS = 15
WINDOW = 20  # images after a change
QUEUE = 512  # top probabilities that an open set's limit is found from
LEAST = 1e-12  # probability below which a loss grows no further


def per_class(labels: Sequence[str] | Floats, correct: Floats) -> float:
    """Mean of the accuracies of the classes that occurred.

    >>> per_class(["a", "a", "b"], np.array([1.0, 0.0, 1.0]))
    0.75
    """
    _, place = np.unique(np.asarray(labels), return_inverse=True)
    return float((np.bincount(place, weights=correct) / np.bincount(place)).mean())


def bins_of(probability: Floats, count: int = BINS) -> NDArray[np.int64]:
    """The index of each probability among `count` equal bins of (0, 1]."""
    return np.clip(np.ceil(probability * count).astype(np.int64) - 1, 0, count - 1)


def reliability(probability: Floats, correct: Floats, count: int = BINS) -> tuple[Floats, Floats, Floats]:
    """Share of images, mean confidence and accuracy of each bin; zeros where a bin is empty."""
    place = bins_of(probability, count)
    size = np.bincount(place, minlength=count).astype(np.float64)
    safe = np.maximum(size, 1)
    confidence = np.bincount(place, weights=probability, minlength=count) / safe
    accuracy = np.bincount(place, weights=correct, minlength=count) / safe
    return size / max(len(probability), 1), confidence, accuracy


def calibration_error(probability: Floats, correct: Floats, count: int = BINS) -> float:
    """Expected calibration error: mean distance between confidence and accuracy over bins, weighted by size.

    >>> calibration_error(np.array([0.9, 0.9]), np.array([1.0, 0.0]))
    0.4
    """
    share, confidence, accuracy = reliability(probability, correct, count)
    return float(share @ np.abs(confidence - accuracy))


def adaptive_calibration_error(probability: Floats, correct: Floats, count: int = BINS) -> float:
    """The same over bins of equally many images, or of one more: sorted by confidence and cut."""
    order = np.argsort(probability, kind="stable")
    gaps = np.array_split((probability - correct)[order], count)
    return float(sum(abs(gap.sum()) for gap in gaps) / len(probability))


def brier(squares: Floats, of_label: Floats) -> float:
    """Mean over images of Σ_k (p_k − [k is the class])².

    Args:
        squares: Σ_k p_k² of each image.
        of_label: Probability of its class.
    """
    return float((squares - 2 * of_label + 1).mean())


def log_loss(of_label: Floats) -> float:
    """Mean of −log of the probability of the class, in nats; a probability counts as 1e-12 at least."""
    return float(-np.log(np.maximum(of_label, LEAST)).mean())


def auroc(score: Floats, outside: NDArray[np.bool_]) -> float:
    """Chance that an image of no class has a higher score than one of a class; ties count half."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]  # from 1 on, ties share theirs
    n = int(outside.sum())
    return float((rank[outside].sum() - n * (n + 1) / 2) / (n * (len(score) - n)))


def fpr95(score: Floats, outside: NDArray[np.bool_]) -> float:
    """Share of the images of no class that are let in by the lowest limit that lets in 95 % of the others."""
    inside = np.sort(score[~outside])
    limit = inside[int(np.ceil(0.95 * len(inside) - 1e-9)) - 1]
    return float((score[outside] <= limit).mean())


def open_set(probability: Floats, correct: Floats, outside: NDArray[np.bool_]) -> dict[str, float]:
    """ROSITA's open set: an image is rejected where its top probability is below a limit.

    The limit is that which splits the last `QUEUE` top probabilities, the image's own too, into two groups of
    least variance within, in steps of 0.01. An image of a class is right where it is let in and its class
    is right, one of no class where it is rejected; `acc_hm` is the harmonic mean of both accuracies.
    """
    bins = np.clip((probability * 100).astype(np.int64), 0, 99)
    rejected = np.zeros(len(bins), bool)
    counts = np.zeros(100)
    for t, place in enumerate(bins):
        counts[place] += 1
        if t >= QUEUE:
            counts[bins[t - QUEUE]] -= 1
        rejected[t] = place < _best_split(counts)
    known = float(np.where(rejected, 0.0, correct)[~outside].mean())
    unknown = float(rejected[outside].mean())
    both = 2 * known * unknown / (known + unknown) if known + unknown else 0.0
    return {"acc_known": known, "acc_unknown": unknown, "acc_hm": both}


def _best_split(counts: Floats) -> int:
    """The first bin of the upper of two groups of least variance within (Otsu); 0 where one bin has all."""
    middles = np.arange(len(counts)) + 0.5
    below, sums = np.cumsum(counts)[:-1], np.cumsum(counts * middles)[:-1]
    above = counts.sum() - below
    apart = np.zeros(len(below))
    both = (below > 0) & (above > 0)
    upper = (counts * middles).sum() - sums[both]
    apart[both] = (below * above)[both] * (sums[both] / below[both] - upper / above[both]) ** 2
    return int(apart.argmax()) + 1 if both.any() else 0


def utility(seconds: Floats, correct: Floats, interval: float) -> float:
    """Tempora's discrete clock: the share of all images that are served in time and right.

    An image comes every `interval` seconds. One may wait while another is worked on; an image that finds
    that place taken is not served.
    """
    free, waits_until, right = 0.0, -1.0, 0.0
    for t, (taken, score) in enumerate(zip(seconds.tolist(), correct.tolist(), strict=True)):
        now = t * interval
        if now < waits_until:  # another one waits
            continue
        begins = max(now, free)
        waits_until, free = begins, begins + taken
        right += score
    return right / max(1, len(seconds))


def drift(phase: Floats, correct: Floats, window: int = WINDOW) -> dict[str, float]:
    """What a change of the stream does; nothing where there is none.

    A phase is a run of images between two changes: a class, a domain, a time of other shares. After every
    change but the first phase's beginning, `after_change` is the accuracy of the next `window` images (or the
    first half of a shorter phase); `drift_drop` is how much higher it is in the rest of the phase; `recovery`
    is how many images pass until the mean of the last `window` reaches that of the rest, all of them where it
    never does. Phases of one image say nothing; the others count alike.
    """
    starts = np.flatnonzero(np.diff(phase)) + 1
    parts = [part for part in np.split(correct, starts)[1:] if len(part) > 1]
    found = [_after(part, min(window, len(part) // 2)) for part in parts]
    if not found:
        return {}
    return dict(zip(("after_change", "drift_drop", "recovery"), np.mean(found, axis=0).tolist(), strict=True))


def _after(part: Floats, window: int) -> tuple[float, float, float]:
    first, settled = float(part[:window].mean()), float(part[window:].mean())
    sums = np.cumsum(np.concatenate([[0.0], part]))
    # Differences of running sums round: a mean equal to `settled` must count as reached.
    reached = np.flatnonzero((sums[window:] - sums[:-window]) / window >= settled - 1e-12)
    return first, settled - first, float(window + reached[0] if len(reached) else len(part))
