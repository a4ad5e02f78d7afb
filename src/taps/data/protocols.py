"""Streams as papers draw them: StatA's, the correlated ones of NOTE, RoTTA and ROID, and long tails.

Each function is given the class of every image in file order, the text behind the colon of the order's name,
and a generator. It gives places in that list, in the order in which they come, and the slot of each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from taps.errors import DataError, SettingsError

Order = NDArray[np.int64]
Drawn = tuple[Order, Order]
BATCH = 128  # images of a batch of StatA's, which says how many slots there are
LEAST = 10  # images that every slot of a correlated stream has
DRAWS = 1000  # tries at that


def number_of(order: str, text: str, least: float = 0.0) -> float:
    """The number behind the colon of an order's name."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not least < value < np.inf:
        example = {"longtail": 100}.get(order, 0.1)
        raise SettingsError(
            f"{order}:{text} is not an order; give a number above {least:g}, such as {order}:{example}."
        )
    return value


def stata_online(labels: Order, text: str, rng: np.random.Generator) -> Drawn:
    """StatA's online stream: min(⌊N/128⌋, K) slots, over which a Dirichlet spreads each class in file order.

    Images are shuffled inside a slot. "separate": one class after the other, in random order. StatA predicts
    batches of 128 and drops the last one where it is not full; here every image comes, one at a time.
    """
    classes = np.unique(labels)
    if text == "separate":
        return _by_slot(rng.permutation(classes.max() + 1)[labels], rng)
    concentration = number_of("statA", text)
    slots = max(1, min(len(labels) // BATCH, len(classes)))
    slot = np.zeros(len(labels), np.int64)
    for label in classes:
        places = np.flatnonzero(labels == label)
        slot[places] = _split(rng.dirichlet(np.full(slots, concentration)), len(places))
    return _by_slot(slot, rng)


def stata_batch(labels: Order, text: str, rng: np.random.Generator) -> Drawn:
    """One task of StatA's batches: "64:1-4" is 64 images of one to four classes, all of those drawn alike.

    A run is a task, independent of all others: as many seeds as tasks. Where the classes have fewer images,
    all of them come.
    """
    try:
        size, least, most = (int(each) for each in text.replace("-", ":").split(":"))
    except ValueError:
        size = least = most = 0
    if size < 1 or not 1 <= least <= most:
        raise SettingsError(
            f"statA_batch:{text} is not an order; give images and classes: statA_batch:64:1-4."
        )
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
    concentration = number_of("correlated", text)
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
    imbalance = number_of("longtail", text, least=1.0)
    classes = np.unique(labels)
    shares = imbalance ** -(rng.permutation(len(classes)) / max(1, len(classes) - 1))
    kept = []
    for label, share in zip(classes, shares, strict=True):
        places = rng.permutation(np.flatnonzero(labels == label))
        kept.append(places[: max(1, round(share * len(places)))])
    order = rng.permutation(np.concatenate(kept))
    return order, np.zeros(len(order), np.int64)


def _split(shares: NDArray[np.float64], count: int) -> Order:
    """The slot of each of so many images in a row, by the cumulated shares, rounded to whole images."""
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
"""By name: how a stream is drawn, and what stands behind the colon unless given."""
