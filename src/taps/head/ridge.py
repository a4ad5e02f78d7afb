"""A linear map learned in closed form, one pair at a time, that can forget any pair again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.errors import QueryError, SettingsError, StateError

Array = NDArray[np.float64]


class Ridge:
    """W = (λI + Σ x xᵀ)⁻¹ Σ x rᵀ, kept by rank-one steps: O(d² + dK) a pair, however many there were.

    Everything is in double precision, so that adding and removing thousands of pairs leaves next to no trace.

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
            raise SettingsError(f"A ridge penalty of {penalty} cannot be; use a finite number above 0.")
        self.penalty = float(penalty)
        self.inverse: Array = np.eye(dim) / self.penalty
        self.weights: Array = np.zeros((dim, outputs))
        self.count = 0

    def scores(self, x: Array) -> Array:
        """xW: what the pairs say about x; 0 where they say nothing."""
        return x @ self.weights

    def leverage(self, x: Array) -> float:
        """xᵀ(λI + Σ x xᵀ)⁻¹x: how new the direction of x is; |x|²/λ before any pair, less after each."""
        return float(x @ self.inverse @ x)

    def add(self, x: Array, target: Array) -> None:
        """Learn one pair."""
        self._rank_one(x, target, sign=1.0)
        self.count += 1

    def remove(self, x: Array, target: Array) -> None:
        """Forget a pair that was added before, as if it had never been.

        Raises:
            QueryError: Such a pair cannot be among those added.
        """
        # Of an input that was added, xᵀA⁻¹x is below 1; at 1 what remains would have no inverse.
        if self.count == 0 or self.leverage(x) >= 1.0:
            raise QueryError("This pair was never learned; only what was added can be removed.")
        self._rank_one(x, target, sign=-1.0)
        self.count -= 1

    def grow(self, outputs: int) -> None:
        """Make room for outputs added later; what was learned says nothing about them."""
        missing = outputs - self.weights.shape[1]
        if missing < 0:
            raise SettingsError(
                f"There are {self.weights.shape[1]} outputs already; {outputs} would be fewer."
            )
        self.weights = np.pad(self.weights, ((0, 0), (0, missing)))

    def _rank_one(self, x: Array, target: Array, sign: float) -> None:
        """Sherman–Morrison for A ± x xᵀ, and the weights that follow from it."""
        direction = self.inverse @ x
        gain = direction / (1.0 + sign * float(x @ direction))
        self.weights += sign * np.outer(gain, target - x @ self.weights)
        self.inverse -= sign * np.outer(gain, direction)

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning, but for the count."""
        return {"inverse": self.inverse, "weights": self.weights}

    def restore(self, arrays: dict[str, Array], count: int) -> None:
        """Go on from where `arrays` was taken."""
        for name, mine in self.arrays().items():
            if arrays[name].shape != mine.shape:
                raise StateError(
                    f"The saved head has {name} of shape {arrays[name].shape}, this one {mine.shape}; "
                    "use the saved model and classes."
                )
        self.inverse, self.weights = arrays["inverse"].copy(), arrays["weights"].copy()
        self.count = int(count)
