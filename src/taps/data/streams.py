"""In which order images come: shuffled, class by class, domain after domain, or only some of them.

Every function gives indices into a data set; `dataset.take(indices)` makes a data set of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.data.dataset import Dataset
from taps.errors import DataError

Order = NDArray[np.int64]


def stream_order(n: int, seed: int, limit: int | None = None) -> Order:
    """A seeded permutation of `n` samples, or its first `limit`.

    >>> stream_order(5, seed=1).tolist() == stream_order(5, seed=1).tolist()
    True
    """
    if n < 1:
        raise DataError("A stream needs one image at least.")
    if limit is not None and limit < 1:
        raise DataError(f"A stream of {limit} images is asked for: one at least is needed.")
    return np.random.default_rng(seed).permutation(n)[:limit].astype(np.int64)


def ordered_by_class(dataset: Dataset, seed: int) -> Order:
    """All images of one class, then all of the next: the hardest drift. Both orders are seeded."""
    return _in_groups(
        [-1 if s.label is None else s.label for s in dataset.samples], seed, shuffle_groups=True
    )


def domains_in_turn(dataset: Dataset, seed: int) -> Order:
    """One domain after the other in the order of their names, shuffled within each."""
    domains = [sample.domain for sample in dataset.samples]
    if len(set(domains)) < 2:
        raise DataError(f"{dataset.name} has no domains: a domain/class/image layout or a domain column has.")
    rank = {domain: place for place, domain in enumerate(sorted(set(domains)))}
    return _in_groups([rank[domain] for domain in domains], seed, shuffle_groups=False)


def subset_classes(dataset: Dataset, k: int, seed: int) -> Dataset:
    """The data set with `k` of its classes only, chosen with a seed; labels are counted anew."""
    if not 2 <= k <= len(dataset.classes):
        raise DataError(
            f"{k} classes of {dataset.name} are asked for: it has {len(dataset.classes)}, and two are needed."
        )
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
