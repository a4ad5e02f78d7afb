"""In which order images come: shuffled, by class, domain after domain, in changing shares; or some of them.

Every function gives indices into a data set; `dataset.take(indices)` makes a data set of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.data.dataset import Dataset
from taps.data.protocols import PROTOCOLS, number_of
from taps.errors import DataError, SettingsError
from taps.types import OUTSIDE

Order = NDArray[np.int64]
ORDERS = ("shuffled", "by_class", "by_domain", "dirichlet", *PROTOCOLS)
PHASES = 10  # times of other shares under "dirichlet"


def stream_order(n: int, seed: int, limit: int | None = None) -> Order:
    """A seeded permutation of `n` samples, or its first `limit`.

    >>> stream_order(5, seed=1).tolist() == stream_order(5, seed=1).tolist()
    True
    """
    if n < 1:
        raise DataError("A stream needs at least one image.")
    if limit is not None and limit < 1:
        raise DataError(f"A stream of {limit} images is not possible; give at least one.")
    return np.random.default_rng(seed).permutation(n)[:limit].astype(np.int64)


def ordered_by_class(dataset: Dataset, seed: int) -> Order:
    """All images of one class, then all of the next: the hardest drift. Both orders are seeded."""
    return _in_groups(_labels(dataset), seed, shuffle_groups=True)


def domains_in_turn(dataset: Dataset, seed: int) -> Order:
    """One domain after the other in the order of their names, shuffled within each."""
    return _in_groups(_domains(dataset), seed, shuffle_groups=False)


def ordered(dataset: Dataset, kind: str, seed: int, limit: int | None = None) -> tuple[Order, Order]:
    """An order by its name, and how often the stream has changed by then, for each place.

    Args:
        dataset: What is put in order.
        kind: "shuffled"; "by_class"; "by_domain"; "dirichlet:0.1": ten times, in which classes have other
            shares, the more so the smaller the number (its concentration; 0.1 unless given). Or a stream as
            papers draw it (`taps.data.protocols`): "statA:0.1" or "statA:separate", which has as many times
            as batches, at most as classes; "statA_batch:64:1-4"; "correlated:0.1"; "longtail:100".
        seed: Of every random choice.
        limit: So many images only. A drifting order is made of those that the shuffled one begins with, so
            that a part of it has the same changes.

    >>> from taps.data import demo_dataset
    >>> order, phase = ordered(demo_dataset(), "by_class", seed=1)
    >>> len(order), int(phase[-1])
    (360, 47)
    """
    name, _, number = kind.partition(":")
    if name not in ORDERS or (number and name not in ("dirichlet", *PROTOCOLS)):
        raise SettingsError(f"Unknown order {kind!r}: use one of {', '.join(ORDERS)}, or dirichlet:0.1.")
    chosen = stream_order(len(dataset), seed, limit)
    if name == "shuffled":
        return chosen, np.zeros(len(chosen), np.int64)
    part = dataset.take(chosen.tolist())
    groups = np.array(_domains(part) if name == "by_domain" else _labels(part))
    # Images of no class come at any time.
    spread = groups[[sample.label != OUTSIDE for sample in part.samples]]
    groups = np.where(
        [sample.label == OUTSIDE for sample in part.samples],
        np.random.default_rng([seed, 2]).choice(spread, len(groups)),
        groups,
    )
    if name in PROTOCOLS:
        return _drawn(chosen, groups, kind, seed)
    if name == "dirichlet":
        groups = _in_shares(groups, number_of("dirichlet", number or "0.1"), seed)
    order = _in_groups(groups.tolist(), seed, shuffle_groups=name == "by_class")
    at = groups[order]
    return chosen[order], np.cumsum(np.diff(at, prepend=at[:1]) != 0)


def _drawn(chosen: Order, groups: Order, kind: str, seed: int) -> tuple[Order, Order]:
    """A stream by a protocol, of the images chosen in file order."""
    name, _, text = kind.partition(":")
    draw, usual = PROTOCOLS[name]
    in_file_order = np.argsort(chosen)
    places, slot = draw(groups[in_file_order], text or usual, np.random.default_rng([seed, 3]))
    return chosen[in_file_order[places]], np.cumsum(np.diff(slot, prepend=slot[:1]) != 0)


def _labels(dataset: Dataset) -> list[int]:
    return [-1 if sample.label is None else sample.label for sample in dataset.samples]


def _domains(dataset: Dataset) -> list[int]:
    """The place of each sample's domain among all by name."""
    domains = [sample.domain for sample in dataset.samples]
    names = sorted({s.domain for s in dataset.samples if s.label != OUTSIDE})
    if len(names) < 2:
        raise DataError(f"{dataset.name} has no domains: a domain/class/image layout or a domain column has.")
    return [names.index(domain) if domain in names else 0 for domain in domains]


def _in_shares(found: Order, concentration: float, seed: int) -> Order:
    """In which of `PHASES` times each image comes: of each class, shares drawn from a Dirichlet."""
    rng = np.random.default_rng([seed, 1])
    phase = np.zeros(len(found), np.int64)
    for label in np.unique(found):
        places = rng.permutation(np.flatnonzero(found == label))
        ends = np.cumsum(rng.dirichlet(np.full(PHASES, concentration))) * len(places)
        phase[places] = np.minimum(np.searchsorted(ends, np.arange(len(places)), side="right"), PHASES - 1)
    return phase


def subset_classes(dataset: Dataset, k: int, seed: int) -> Dataset:
    """The data set with `k` of its classes only, chosen with a seed; labels are counted anew."""
    if not 2 <= k <= len(dataset.classes):
        raise DataError(f"{k} classes of {dataset.name} are not possible: use 2 to {len(dataset.classes)}.")
    kept = sorted(np.random.default_rng(seed).choice(len(dataset.classes), size=k, replace=False).tolist())
    new_label = {old: new for new, old in enumerate(kept)}
    part = dataset.take([i for i, sample in enumerate(dataset.samples) if sample.label in new_label])
    return part.relabelled(tuple(dataset.classes[old] for old in kept), new_label)


def _in_groups(groups: list[int], seed: int, *, shuffle_groups: bool) -> Order:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(groups))
    names = np.unique(groups)
    rank_of = dict(
        zip(names.tolist(), rng.permutation(len(names)) if shuffle_groups else range(len(names)), strict=True)
    )
    rank = np.array([rank_of[groups[i]] for i in order])
    # Stable, so that the shuffled order lasts within a group.
    return order[np.argsort(rank, kind="stable")].astype(np.int64)
