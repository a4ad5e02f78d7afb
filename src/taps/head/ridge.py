"""A linear map learned in closed form, one pair at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.errors import SettingsError

Array = NDArray[np.float64]


class Ridge:
    """W = (λI + Σ x xᵀ)⁻¹ Σ x rᵀ, kept by rank-one steps: O(d² + dK) a pair, however many there were.

    Args:
        dim: d, length of an input x.
        outputs: K, length of a target r.
        penalty: λ. With inputs of length 1, about how many pairs it takes to be believed.

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
        """xW: what the pairs say about x [..., d]; 0 where they say nothing."""
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
        """Make room for outputs added later; what was learned says nothing about them."""
        self.weights = np.pad(self.weights, ((0, 0), (0, outputs - self.weights.shape[1])))

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning; neither array is ever changed in place."""
        return {"inverse": self.inverse, "weights": self.weights}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where `arrays` was taken."""
        self.inverse, self.weights = arrays["inverse"], arrays["weights"]
