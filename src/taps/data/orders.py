"""Orders of a stream: shuffled, by class, by domain, in changing shares, or as papers draw it; and subsets.

Functions give indices into a data set; `dataset.take(indices)` makes a data set of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from taps.data.dataset import Dataset
from taps.data.names import shown
from taps.errors import DataError, SettingsError
from taps.registry import nearest
from taps.types import OUTSIDE

Order = NDArray[np.int64]
Drawn = tuple[Order, Order]
"""Places in the order in which they come, and the slot of each."""
PHASES = 10  # times of other shares under "dirichlet"
BATCH = 128  # images of a batch of StatA's, which gives the number of slots
LEAST = 10  # images in every slot of a correlated stream
DRAWS = 1000  # attempts at that


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


def subset_classes(dataset: Dataset, k: int, seed: int) -> Dataset:
    """The data set with `k` of its classes only, chosen with a seed; labels are counted anew."""
    if not 2 <= k <= len(dataset.classes):
        raise DataError(f"{k} classes of {dataset.name} are not possible: use 2 to {len(dataset.classes)}.")
    kept = sorted(np.random.default_rng(seed).choice(len(dataset.classes), size=k, replace=False).tolist())
    new_label = {old: new for new, old in enumerate(kept)}
    part = dataset.take([i for i, sample in enumerate(dataset.samples) if sample.label in new_label])
    return part.relabelled(tuple(dataset.classes[old] for old in kept), new_label)


def few_shot(dataset: Dataset, shots: int, seed: int) -> list[int]:
    """Indices of `shots` images of every class, class by class."""
    if shots < 1:
        raise DataError(f"{shots} shots are not possible; give at least one.")
    if not dataset.classes:
        raise DataError(f"{dataset.name} has no classes to take shots of: give class names.")
    of_class: list[list[int]] = [[] for _ in dataset.classes]
    for index, sample in enumerate(dataset.samples):
        if sample.label is not None:
            of_class[sample.label].append(index)
    counts = zip(dataset.classes, map(len, of_class), strict=True)
    short = [f"{name} ({count})" for name, count in counts if count < shots]
    if short:
        raise DataError(
            f"{dataset.name} has classes with fewer than {shots} images: {shown(short)}; "
            "take fewer of each, or add images."
        )
    rng = np.random.default_rng(seed)
    return [int(i) for own in of_class for i in rng.choice(own, size=shots, replace=False)]


def ordered(dataset: Dataset, kind: str, seed: int, limit: int | None = None) -> tuple[Order, Order]:
    """An order by its name, and for each place how often the stream has changed by then.

    Args:
        dataset: The images.
        kind: "shuffled", "by_class", "by_domain", "dirichlet:0.1" (ten phases in which classes have other
            shares; the smaller the concentration, the more they differ), or one of `PROTOCOLS`: "statA:0.1",
            "statA:separate", "statA_batch:64:1-4", "correlated:0.1", "longtail:100".
        seed: Of every random choice.
        limit: Number of images. A drifting order is made of those that the shuffled one begins with, so that
            a part of it has the same changes.

    >>> from taps.data import demo_dataset
    >>> order, phase = ordered(demo_dataset(), "by_class", seed=1)
    >>> len(order), int(phase[-1])
    (360, 47)
    """
    name, _, text = kind.partition(":")
    if name not in ORDERS or (text and name not in ("dirichlet", *PROTOCOLS)):
        every, meant = ", ".join(ORDERS), nearest(name, ORDERS)
        raise SettingsError(f"Unknown order {kind!r}: use one of {every}, or dirichlet:0.1.{meant}")
    chosen = stream_order(len(dataset), seed, limit)
    if name == "shuffled":
        return chosen, np.zeros(len(chosen), np.int64)
    if name != "by_domain" and all(sample.label in (None, OUTSIDE) for sample in dataset.samples):
        raise DataError(f"The order {kind} is made by the labels, and {dataset.name} has none; leave it out.")
    part = dataset.take(chosen.tolist())
    groups = np.array(_domains(part) if name == "by_domain" else _labels(part))
    # Images of no class come at any time.
    outside = np.array([sample.label == OUTSIDE for sample in part.samples])
    spread = np.random.default_rng([seed, 2]).choice(groups[~outside], len(groups))
    groups = np.where(outside, spread, groups)
    if name in PROTOCOLS:
        draw, usual = PROTOCOLS[name]
        in_file_order = np.argsort(chosen)
        places, slot = draw(groups[in_file_order], text or usual, np.random.default_rng([seed, 3]))
        return chosen[in_file_order[places]], _changes(slot)
    if name == "dirichlet":
        groups = _in_shares(groups, _number("dirichlet", text or "0.1"), seed)
    order = _in_groups(groups.tolist(), seed, shuffle_groups=name == "by_class")
    return chosen[order], _changes(groups[order])


def _changes(groups: Order) -> Order:
    return np.cumsum(np.diff(groups, prepend=groups[:1]) != 0)


def _labels(dataset: Dataset) -> list[int]:
    return [-1 if sample.label is None else sample.label for sample in dataset.samples]


def _domains(dataset: Dataset) -> list[int]:
    """The place of each sample's domain among all by name."""
    names = sorted({sample.domain for sample in dataset.samples if sample.label != OUTSIDE})
    if len(names) < 2:
        raise DataError(f"{dataset.name} has no domains: use folders domain/class/image or a column domain.")
    return [names.index(sample.domain) if sample.domain in names else 0 for sample in dataset.samples]


def _in_groups(groups: list[int], seed: int, *, shuffle_groups: bool) -> Order:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(groups))
    names = np.unique(groups)
    ranks = rng.permutation(len(names)) if shuffle_groups else range(len(names))
    rank_of = dict(zip(names.tolist(), ranks, strict=True))
    rank = np.array([rank_of[groups[i]] for i in order])
    # Stable, so that the shuffled order lasts within a group.
    return order[np.argsort(rank, kind="stable")].astype(np.int64)


def _in_shares(labels: Order, concentration: float, seed: int) -> Order:
    """The phase of each image: of each class, shares drawn from a Dirichlet."""
    rng = np.random.default_rng([seed, 1])
    phase = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(rng.dirichlet(np.full(PHASES, concentration))) * len(places)
        phase[places] = np.minimum(np.searchsorted(ends, np.arange(len(places)), side="right"), PHASES - 1)
    return phase


def _number(order: str, text: str, least: float = 0.0) -> float:
    """The number behind the colon of an order's name."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not least < value < np.inf:
        example = {"longtail": 100}.get(order, 0.1)
        raise SettingsError(f"{order}:{text} needs a number above {least:g}, such as {order}:{example}.")
    return value


# Streams as papers draw them. Each function is given the class of every image in file order, the text behind
# the colon of the order's name, and a generator.


def stata_online(labels: Order, text: str, rng: np.random.Generator) -> Drawn:
    """StatA's online stream: min(⌊N/128⌋, K) slots, over which a Dirichlet spreads each class in file order.

    Images are shuffled inside a slot. "separate": one class after the other, in random order. StatA predicts
    batches of 128 and drops the last one where it is not full; here every image comes, one at a time.
    """
    classes = np.unique(labels)
    if text == "separate":
        return _by_slot(rng.permutation(classes.max() + 1)[labels], rng)
    concentration = _number("statA", text)
    slots = max(1, min(len(labels) // BATCH, len(classes)))
    slot = np.zeros(len(labels), np.int64)
    for label in classes:
        places = np.flatnonzero(labels == label)
        slot[places] = _split(rng.dirichlet(np.full(slots, concentration)), len(places))
    return _by_slot(slot, rng)


def stata_batch(labels: Order, text: str, rng: np.random.Generator) -> Drawn:
    """One task of StatA's batches: "64:1-4" is 64 images of one to four classes, all of those drawn alike.

    A run is one task, independent of all others. Where the classes have fewer images, all of them come.
    """
    try:
        size, least, most = (int(each) for each in text.replace("-", ":").split(":"))
    except ValueError:
        size = least = most = 0
    if size < 1 or not 1 <= least <= most:
        raise SettingsError(f"statA_batch:{text} needs images and classes, such as statA_batch:64:1-4.")
    classes = np.unique(labels)
    wanted = min(int(rng.integers(least, most + 1)), len(classes))
    kept = rng.choice(classes, wanted, replace=False)
    drawn = rng.permutation(np.flatnonzero(np.isin(labels, kept)))[:size]
    return drawn, np.zeros(len(drawn), np.int64)


def correlated(labels: Order, text: str, rng: np.random.Generator) -> Drawn:
    """The stream of NOTE, RoTTA and ROID: K slots; in a slot, the images of a class come together.

    A Dirichlet spreads each class over the slots that have fewer than N/K images by then. It is drawn anew
    until every slot has ten.
    """
    concentration = _number("correlated", text)
    classes = np.unique(labels)
    for _ in range(DRAWS):
        slot = _balanced(labels, classes, concentration, rng)
        if slot is not None and np.bincount(slot, minlength=len(classes)).min() >= LEAST:
            break
    else:
        raise DataError(
            f"correlated:{text} needs {LEAST} images in each of {len(classes)} slots; {DRAWS:,} draws of "
            f"{len(labels):,} images have not given them. Use a larger number, or a set with more images."
        )
    rank = rng.random((len(classes), classes.max() + 1))[slot, labels]  # of a class within its slot
    order = np.lexsort((rng.random(len(labels)), rank, slot))
    return order, slot[order]


def _balanced(labels: Order, classes: Order, concentration: float, rng: np.random.Generator) -> Order | None:
    """The slot of each image; None where no slot with room was given any share."""
    slot, held = np.zeros(len(labels), np.int64), np.zeros(len(classes))
    for label in classes:
        places = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(len(classes), concentration)) * (held < len(labels) / len(classes))
        if not shares.sum() > 0:
            return None
        slot[places] = _split(shares / shares.sum(), len(places))
        held += np.bincount(slot[places], minlength=len(classes))
    return slot


def long_tail(labels: Order, text: str, rng: np.random.Generator) -> Drawn:
    """A long tail: of the class of rank r, the share ρ^(−r/(K−1)) of its images comes, one at least.

    ρ is the imbalance, the largest share over the smallest. Ranks and images are drawn.
    """
    imbalance = _number("longtail", text, least=1.0)
    classes = np.unique(labels)
    shares = imbalance ** -(rng.permutation(len(classes)) / max(1, len(classes) - 1))
    kept = []
    for label, share in zip(classes, shares, strict=True):
        places = rng.permutation(np.flatnonzero(labels == label))
        kept.append(places[: max(1, round(share * len(places)))])
    order = rng.permutation(np.concatenate(kept))
    return order, np.zeros(len(order), np.int64)


def _split(shares: NDArray[np.float64], count: int) -> Order:
    """The slot of each of `count` images in a row, by the cumulated shares, rounded to whole images."""
    ends = np.round(np.cumsum(shares)[:-1] * count)
    return np.searchsorted(ends, np.arange(count), side="right").astype(np.int64)


def _by_slot(slot: Order, rng: np.random.Generator) -> Drawn:
    """Slot after slot, shuffled inside each."""
    order = np.lexsort((rng.random(len(slot)), slot))
    return order, slot[order]


PROTOCOLS: dict[str, tuple[Callable[[Order, str, np.random.Generator], Drawn], str]] = {
    "statA": (stata_online, "0.1"),
    "statA_batch": (stata_batch, "64:1-4"),
    "correlated": (correlated, "0.1"),
    "longtail": (long_tail, "100"),
}
"""By name: how a stream is drawn, and the default of the text behind the colon."""
ORDERS = ("shuffled", "by_class", "by_domain", "dirichlet", *PROTOCOLS)
