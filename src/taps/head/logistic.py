"""Logistic regression on top of given log-odds, refitted a little with every label, in constant memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
INTERCEPT = 0.1  # an input that is the same for all; the smaller, the dearer an intercept
STEPS = 2  # Newton steps for every label, each from where the last one ended
UNKNOWN = -1e9  # log-odds of a class that was not there when a label came


def softmax(logits: Array) -> Array:
    """Probabilities over the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs: Array = raised / raised.sum(axis=-1, keepdims=True)
    return probs


class Logistic:
    """Fits of p = softmax(b + zW), one for every penalty λ and every offset b of the labels.

    Each minimises Σ −ln p_i(y_i) + λ/2·‖W‖² over the labels (z_i, b_i, y_i), z with a constant last entry.
    At the minimum W = Σ z_i a_iᵀ with a_i = (one-hot(y_i) − p_i)/λ, so the coefficients a [n, K] are what is
    kept. With G the inner products of the z, Böhning's bound ½·I on the curvature of the log-likelihood makes

        a ← a + (½G + λI)⁻¹ (one-hot − p − λa)

    a step that never overshoots. Of the last `capacity` labels all coefficients are refitted with every new
    label; those of older ones stay as they were and are summed into weights; what they add to the log-odds
    of the labels that are refitted is added to these labels' offsets. So memory and time stay the same
    however many labels come, and nothing learned is lost.

    Of an image that is known not to be of some classes the likelihood is 1 − p(these). Its target, instead of
    the one-hot row, is p without them, normalised, and made anew at each step: so every step still raises
    the likelihood (an EM step, whose curvature has the same bound).

    Args:
        dim: d, length of a feature.
        classes: K.
        offsets: H, how many offsets come with each label.
        penalties: λ of the fits.
        capacity: How many labels are refitted.
        steps: How many steps are made for every label.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        offsets: int,
        penalties: tuple[float, ...],
        capacity: int,
        steps: int = STEPS,
    ) -> None:
        self.penalties: Array = np.array(penalties)[:, None, None]
        self.capacity, self.steps = capacity, steps
        self.inputs: Array = np.zeros((0, dim + 1))
        self.offsets: Array = np.zeros((len(penalties), offsets, 0, classes))
        self.targets: Array = np.zeros((0, classes))
        self.coefficients: Array = np.zeros((len(penalties), offsets, 0, classes))
        self.weights: Array = np.zeros((len(penalties), offsets, 0, classes))  # d + 1 rows from the first on
        self._made: dict[tuple[int, int], Array] = {}
        self.last_gone: tuple[Array, Array, Array, Array] | None = None  # weights before and after; z and a

    def likeness(self, features: Array) -> tuple[Array, Array | None]:
        """What `scores` needs of some features [m, d], for all penalties and offsets."""
        inputs = with_constant(features)
        return inputs, inputs @ self.inputs.T if len(inputs) == 1 else None

    def scores(self, likeness: tuple[Array, Array | None], penalty: int, offset: int) -> Array:
        """zW of one fit [m, K]: what the labels add to the log-odds."""
        inputs, to_labels = likeness
        if to_labels is None:
            return inputs @ self._whole(penalty, offset)
        older = inputs[:, : self.weights.shape[2]] @ self.weights[penalty, offset]
        added: Array = to_labels @ self.coefficients[penalty, offset] + older
        return added

    def _older(self, inputs: Array) -> Array:
        """What the labels that are refitted no more add to the log-odds of some inputs [P, H, m, K]."""
        added: Array = inputs[:, : self.weights.shape[2]] @ self.weights
        return added

    def _whole(self, penalty: int, offset: int) -> Array:
        """W of one fit [d + 1, K]; made once for every label, for it costs more than one image's scores."""
        if (penalty, offset) not in self._made:
            made = self.inputs.T @ self.coefficients[penalty, offset]
            older = self.weights[penalty, offset]
            self._made[penalty, offset] = made + older if older.size else made
        return self._made[penalty, offset]

    def add(self, feature: Array, offsets: Array, label: int, no: tuple[int, ...] = ()) -> None:
        """Learn one label.

        Args:
            feature: Of its image [d].
            offsets: Log-odds it is learned on top of [H, K].
            label: Its class; counts for nothing where `no` is given.
            no: Classes it is not of.
        """
        if len(self.inputs) == self.capacity:
            self._evict()
        classes, new = self.targets.shape[1], with_constant(feature[None])
        start = offsets[:, None] + self._older(new)
        self.inputs = np.concatenate([self.inputs, new])
        self.offsets = np.concatenate([self.offsets, start], axis=2)
        self.targets = np.concatenate([self.targets, possible(label, no, classes)[None]])
        self.coefficients = np.pad(self.coefficients, ((0, 0), (0, 0), (0, 1), (0, 0)))
        self._refit()

    def _refit(self) -> None:
        gram = self.inputs @ self.inputs.T
        inverse = np.linalg.inv(0.5 * gram + self.penalties * np.eye(len(gram)))[:, None]
        found = self.coefficients
        several = bool((self.targets.sum(axis=1) > 1).any())
        for _ in range(self.steps):
            logits = self.offsets + gram @ found
            wanted = softmax(np.where(self.targets > 0, logits, -np.inf)) if several else self.targets
            found = found + inverse @ (wanted - softmax(logits) - self.penalties[:, None] * found)
        self.coefficients, self._made = found, {}

    def _evict(self) -> None:
        """Sum what the oldest label taught into the weights; it is refitted no more."""
        before, gone, taught = self.weights, self.inputs[0], self.coefficients[:, :, :1]
        self.weights = gone[:, None] * taught
        if before.size:
            self.weights += before
        self.last_gone = before, self.weights, gone, taught
        self.inputs, self.targets = self.inputs[1:], self.targets[1:]
        self.offsets = self.offsets[:, :, 1:] + (self.inputs @ gone)[:, None] * taught
        self.coefficients = self.coefficients[:, :, 1:]

    def grow(self, classes: int) -> None:
        """Make room for classes added later; labels so far say nothing about them."""
        new = classes - self.targets.shape[1]
        self.offsets = np.pad(self.offsets, ((0, 0), (0, 0), (0, 0), (0, new)), constant_values=UNKNOWN)
        self.targets = np.pad(self.targets, ((0, 0), (0, new)))
        self.coefficients = np.pad(self.coefficients, ((0, 0), (0, 0), (0, 0), (0, new)))
        self.weights = np.pad(self.weights, ((0, 0), (0, 0), (0, 0), (0, new)))
        self._made = {}

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning; none of these arrays is ever changed in place."""
        names = ("inputs", "offsets", "targets", "coefficients", "weights")
        return {name: getattr(self, name) for name in names}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where `arrays` was taken."""
        for name in self.arrays():
            setattr(self, name, arrays[name])
        if self.offsets.ndim == 3:  # saved when offsets did not hold what older labels add
            self.offsets = self.offsets + self._older(self.inputs)
        self._made = {}


def possible(label: int, no: tuple[int, ...], classes: int) -> Array:
    """1 for the classes an image may be of after an answer, 0 for the others [K]."""
    if not no:
        return np.asarray(np.eye(classes)[label])
    left = np.ones(classes)
    left[list(no)] = 0.0
    return left


def with_constant(features: Array) -> Array:
    """Features with one more entry, for the intercept [m, d + 1]."""
    return np.concatenate([features, np.full((len(features), 1), INTERCEPT)], axis=1)
