"""The labelled memory: Algorithm 2 of the paper and its rivals. Each way of evicting is a pure function."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.errors import QueryError, SettingsError, StateError


def choose_victim(labels: Sequence[int], losses: Sequence[float], ages: Sequence[float]) -> int:
    """Algorithm 2: the sample to evict from a full buffer.

    Of the classes with most samples the one with the lowest mean loss, of that class the sample with the
    lowest loss, of several such the oldest. Where the means of two classes are equal too, their samples are
    compared together.

    Args:
        labels: Class of each sample.
        losses: Cross-entropy of each sample. NaN ranks lowest, as 0.
        ages: Age of each sample, larger = older.

    Example:
        >>> choose_victim(labels=[0, 0, 1, 1, 2], losses=[0.1, 0.9, 0.3, 0.5, 0.0], ages=[5, 4, 3, 2, 1])
        2
    """
    members = _members_of_largest(labels, losses, ages)
    candidates = [i for indices in members.values() for i in indices]
    known = [_known(loss) for loss in losses]
    means = {label: _mean([known[i] for i in indices]) for label, indices in members.items()}
    return min(candidates, key=lambda i: (means[labels[i]], known[i], -ages[i], i))


def choose_age_uncertainty(labels: Sequence[int], losses: Sequence[float], ages: Sequence[float]) -> int:
    """Of the classes with most samples, the sample that is most stale: old, and learned well.

    Staleness is age / (samples held) + exp(−loss), the latter being the probability given to the right class:
    a sample known for certain is as stale as one a whole buffer's length older that is not known at all.
    """
    members = _members_of_largest(labels, losses, ages)
    candidates = [i for indices in members.values() for i in indices]

    def staleness(i: int) -> float:
        return ages[i] / len(labels) + math.exp(-max(_known(losses[i]), 0.0))

    return max(candidates, key=lambda i: (staleness(i), ages[i], -i))


def choose_random_victim(labels: Sequence[int], rng: np.random.Generator) -> int:
    """The paper's ablation: a class that has samples, at random, then one of its samples, at random."""
    _check_lengths(labels)
    classes = sorted(set(labels))
    label = classes[int(rng.integers(len(classes)))]
    members = [i for i, other in enumerate(labels) if other == label]
    return members[int(rng.integers(len(members)))]


def choose_oldest(ages: Sequence[float]) -> int:
    """First in, first out."""
    _check_lengths(ages)
    return max(range(len(ages)), key=lambda i: (ages[i], -i))


EVICTIONS: dict[str, Callable[..., int]] = {
    "balanced": lambda labels, losses, ages, rng: choose_victim(labels, losses, ages),
    "random": lambda labels, losses, ages, rng: choose_random_victim(labels, rng),
    "oldest": lambda labels, losses, ages, rng: choose_oldest(ages),
    "age_uncertainty": lambda labels, losses, ages, rng: choose_age_uncertainty(labels, losses, ages),
}


@dataclass(slots=True)
class Entry:
    """One labelled sample. `order` counts insertions: the smaller, the older."""

    id: int
    label: int
    loss: float
    order: int
    payload: Any


class Buffer:
    """Labelled samples, at most `capacity` of them, each with a payload of any kind.

    Args:
        capacity: L. 0 holds nothing.
        eviction: "balanced" (Algorithm 2), "random", "oldest" or "age_uncertainty".
        seed: For "random".

    Attributes:
        ever_full: Whether it was full once. Before that no way of evicting can differ from another.

    Example:
        >>> buffer = Buffer(capacity=2)
        >>> for id, label, loss in ((1, 0, 0.5), (2, 0, 0.2), (3, 1, 0.9)):
        ...     evicted = buffer.add(id, label, loss, payload=None)
        >>> evicted.id, dict(buffer.counts())
        (2, {0: 1, 1: 1})
    """

    def __init__(
        self, capacity: int, eviction: str = "balanced", seed: int | np.random.Generator = 0
    ) -> None:
        if capacity < 0 or capacity != int(capacity):
            raise SettingsError(
                f"A buffer of {capacity} samples is not possible; use a whole number, 0 or more."
            )
        if eviction not in EVICTIONS:
            raise SettingsError(f"eviction={eviction!r} is unknown; choose one of {', '.join(EVICTIONS)}.")
        self.capacity = int(capacity)
        self.eviction = eviction
        self.ever_full = self.capacity == 0
        self._rng = np.random.default_rng(seed)
        self._next_order = 0
        self._entries: dict[int, Entry] = {}  # by id, the oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    @property
    def full(self) -> bool:
        """Whether the next sample will evict one."""
        return len(self._entries) >= self.capacity

    def entries(self) -> list[Entry]:
        """All samples, the oldest first."""
        return list(self._entries.values())

    def counts(self) -> Counter[int]:
        """Samples held of each class that has any."""
        return Counter(entry.label for entry in self._entries.values())

    def add(self, id: int, label: int, loss: float, payload: Any) -> Entry | None:
        """Add a sample; a full buffer first evicts one, which is returned.

        Raises:
            QueryError: A sample of this id is held already.
        """
        id, label = int(id), int(label)
        if id in self._entries:
            raise QueryError(f"Sample {id} is in the buffer already; each sample is added once.")
        if self.capacity == 0:
            return None
        evicted = self._evict() if self.full else None
        entry = Entry(id, label, float(loss), self._next_order, payload)
        self._next_order += 1
        self._entries[id] = entry
        self.ever_full = self.ever_full or self.full
        return evicted

    def remove(self, id: int) -> Entry:
        """Take one sample out, for a label that is withdrawn.

        Raises:
            QueryError: No sample of this id is held.
        """
        if id not in self._entries:
            raise QueryError(f"Sample {id} is not in the buffer; it was never labelled or has been evicted.")
        return self._entries.pop(id)

    def set_losses(self, losses: Sequence[float]) -> None:
        """Replace the losses, in the order of `entries`; for prompts that have moved since."""
        if len(losses) != len(self):
            raise SettingsError(
                f"{len(losses)} losses were given for {len(self)} samples; give one for each."
            )
        for entry, loss in zip(self._entries.values(), losses, strict=True):
            entry.loss = float(loss)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the payloads, in plain numbers; these are in the order of `entries`."""
        entries = self.entries()
        return {
            "capacity": self.capacity,
            "eviction": self.eviction,
            "ids": [entry.id for entry in entries],
            "labels": [entry.label for entry in entries],
            "losses": [entry.loss for entry in entries],
            "orders": [entry.order for entry in entries],
            "next_order": self._next_order,
            "ever_full": self.ever_full,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any], payloads: Sequence[Any]) -> None:
        """Go on from where `state_dict` was taken, with the payloads that belong to its samples.

        Raises:
            StateError: The state is of another kind of buffer, or the payloads do not fit it.
        """
        if (state["capacity"], state["eviction"]) != (self.capacity, self.eviction):
            raise StateError(
                f"The saved buffer holds {state['capacity']} samples with eviction {state['eviction']!r}, "
                f"this one {self.capacity} with {self.eviction!r}; make it with the saved settings."
            )
        if len(payloads) != len(state["ids"]):
            raise StateError(f"{len(payloads)} payloads were given for {len(state['ids'])} saved samples.")
        columns = (state["ids"], state["labels"], state["losses"], state["orders"], payloads)
        entries = (Entry(*row) for row in zip(*columns, strict=True))
        self._entries = {entry.id: entry for entry in entries}
        self._next_order = int(state["next_order"])
        self.ever_full = bool(state["ever_full"])
        self._rng.bit_generator.state = state["rng"]

    def _evict(self) -> Entry:
        entries = self.entries()
        labels, losses = [entry.label for entry in entries], [entry.loss for entry in entries]
        ages = [self._next_order - entry.order for entry in entries]
        victim = EVICTIONS[self.eviction](labels, losses, ages, self._rng)
        return self._entries.pop(entries[victim].id)


def _known(loss: float) -> float:
    """The loss to compare by: NaN (and −∞, which no cross-entropy can be) counts as 0."""
    return float(loss) if loss > -math.inf else 0.0


def _mean(losses: Sequence[float]) -> float:
    """Mean whose sum is rounded once, so that the order of the terms does not matter."""
    try:
        return math.fsum(losses) / len(losses)
    except OverflowError:
        return math.inf


def _members_of_largest(labels: Sequence[int], *others: Sequence[float]) -> dict[int, list[int]]:
    """Indices of the samples of each class of the largest size."""
    _check_lengths(labels, *others)
    members: dict[int, list[int]] = {}
    for i, label in enumerate(labels):
        members.setdefault(label, []).append(i)
    largest = max(len(indices) for indices in members.values())
    return {label: indices for label, indices in members.items() if len(indices) == largest}


def _check_lengths(first: Sequence[Any], *others: Sequence[Any]) -> None:
    if len(first) == 0:
        raise SettingsError("The buffer is empty; ask for a victim only when it holds a sample.")
    if any(len(other) != len(first) for other in others):
        raise SettingsError("Labels, losses and ages differ in length; give one of each for every sample.")
