"""Linear models that learn label by label in constant memory: ridge and logistic regression."""

from __future__ import annotations

import numpy as np

from taps.errors import SettingsError
from taps.head.arrays import softmax
from taps.saved import Shape
from taps.types import Array

Which = tuple[tuple[int, int], ...]  # penalty and offset of some fits
INTERCEPT = 0.1  # an input that is the same for all; the smaller, the dearer an intercept
STEPS = 2  # Newton steps for every label, each from where the last one ended
UNKNOWN = -1e9  # log-odds of a class that was not there when a label came


class Ridge:
    """W = (λI + Σ x xᵀ)⁻¹ Σ x rᵀ, kept by rank-one steps: O(d² + dK) a pair, however many there were.

    Args:
        dim: d, length of an input x.
        outputs: K, length of a target r.
        penalty: λ. With inputs of length 1, about how many pairs it takes to outweigh it.

    Example:
        >>> ridge = Ridge(dim=2, outputs=1, penalty=1.0)
        >>> ridge.add(np.array([1.0, 0.0]), np.array([1.0]))
        >>> ridge.scores(np.array([1.0, 0.0])).tolist(), ridge.scores(np.array([0.0, 1.0])).tolist()
        ([0.5], [0.0])
    """

    def __init__(self, dim: int, outputs: int, penalty: float) -> None:
        if not 0 < penalty < np.inf:
            raise SettingsError(f"A ridge penalty of {penalty} is not possible; use a finite number above 0.")
        self.penalty = float(penalty)
        self.inverse: Array = np.eye(dim) / self.penalty
        self.weights: Array = np.zeros((dim, outputs))

    def scores(self, x: Array) -> Array:
        """xW, of x [..., d]."""
        return x @ self.weights

    def leverage(self, x: Array) -> float:
        """xᵀ(λI + Σ x xᵀ)⁻¹x: how new the direction of x is; |x|²/λ before any pair, less after each."""
        return float(x @ self.inverse @ x)

    def add(self, x: Array, target: Array) -> None:
        """Learn one pair: Sherman–Morrison for A + x xᵀ, and the weights that follow from it."""
        direction = self.inverse @ x
        gain = direction / (1.0 + float(x @ direction))
        self.weights = self.weights + np.outer(gain, target - x @ self.weights)
        self.inverse = self.inverse - np.outer(gain, direction)

    def grow(self, outputs: int) -> None:
        """Make room for outputs added later."""
        self.weights = np.pad(self.weights, ((0, 0), (0, outputs - self.weights.shape[1])))

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning; neither array is ever changed in place."""
        return {"inverse": self.inverse, "weights": self.weights}

    def shapes(self) -> dict[str, Shape]:
        """Of `arrays`, saved with these classes (K) or fewer."""
        return {"inverse": self.inverse.shape, "weights": (len(self.weights), "K")}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where `arrays` was taken."""
        self.inverse, self.weights = arrays["inverse"], arrays["weights"]


class Logistic:
    """Logistic fits of p = softmax(b + zW), one for every penalty λ and every offset b of the labels.

    Each minimises Σ −ln p_i(y_i) + λ/2·‖W‖² over the labels (z_i, b_i, y_i), z with a constant last entry.
    At the minimum W = Σ z_i a_iᵀ with a_i = (one-hot(y_i) − p_i)/λ, so the coefficients a [n, K] are what is
    kept. With G the inner products of the z, Böhning's bound ½·I on the curvature of the log-likelihood makes

        a ← a + (½G + λI)⁻¹ (one-hot − p − λa)

    a step that never overshoots. Of the last `capacity` labels all coefficients are refitted with every new
    label; those of older ones stay as they were and are summed into weights; what they add to the log-odds
    of the labels that are refitted is added to these labels' offsets. So memory and time stay the same
    however many labels come, and nothing learned is lost.

    The likelihood of "not these classes" is 1 − p(these). Its target, instead of the one-hot row, is p
    without them, normalised, and made anew at each step: so every step still raises the likelihood (an EM
    step, whose curvature has the same bound).

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
        self._made: dict[Which, Array] = {}
        self.last_gone: tuple[Array, Array, Array, Array] | None = None  # weights before and after; z and a

    def scores(self, inputs: Array, which: Which) -> Array:
        """zW of some fits [m, c, K]: what the labels add to the log-odds, for z [m, d + 1]."""
        if len(inputs) > 1:
            return (inputs @ self._whole(which)).swapaxes(0, 1)
        to_labels, older = inputs @ self.inputs.T, inputs[:, : self.weights.shape[2]]
        added = [to_labels @ self.coefficients[fit] + older @ self.weights[fit] for fit in which]
        return np.stack(added, axis=1)

    def _older(self, inputs: Array) -> Array:
        """What the labels that are refitted no more add to the log-odds of some inputs [P, H, m, K]."""
        added: Array = inputs[:, : self.weights.shape[2]] @ self.weights
        return added

    def _whole(self, which: Which) -> Array:
        """W of some fits [c, d + 1, K]; made once a label, for it costs more than one image's scores."""
        if which not in self._made:
            made = np.empty((len(which), self.inputs.shape[1], self.targets.shape[1]))
            for weights, fit in zip(made, which, strict=True):
                np.matmul(self.inputs.T, self.coefficients[fit], out=weights)
                if self.weights.size:
                    weights += self.weights[fit]
            self._made = {which: made}
        return self._made[which]

    def add(self, feature: Array, offsets: Array, label: int, no: tuple[int, ...] = ()) -> None:
        """Learn a label, or instead of it the classes an image is not of, on top of log-odds [H, K]."""
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

    def shapes(self, classes: int | str = "K", labels: str = "n") -> dict[str, Shape]:
        """Of `arrays`, saved with so many classes and after so many labels."""
        fits, width = self.weights.shape[:2], self.inputs.shape[1]
        each = (*fits, labels, classes)
        older = (*fits, range(0, width + 1, width), classes)
        rows = {"inputs": (labels, width), "targets": (labels, classes)}
        return {**rows, "offsets": each, "coefficients": each, "weights": older}

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
