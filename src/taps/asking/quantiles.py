"""Quantiles of an endless stream in little memory: of all of it (a sketch), or of the last values (exact)."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from taps.saved import check_plain, real, whole


class QuantileSketch:
    """Greenwald and Khanna's sketch (2001) of all values: ranks are off by at most `error · count`.

    Exact for the first `1/error` values and, however many there are, for values of which few are distinct.
    After that neighbours are merged as far as `error` allows: of a million values about 3,000 are kept.
    """

    def __init__(self, error: float = 0.0005) -> None:
        self.error = error
        self.count = 0
        self._values: list[float] = []
        self._ties: list[int] = []  # values equal to this one
        self._merged: list[int] = []  # values below this one whose own place was given up
        self._doubts: list[int] = []  # values counted further right that might lie at or below this one
        self._until_merge = self._patience()

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """Add a value."""
        at = bisect_left(self._values, value)
        if at < len(self._values) and self._values[at] == value:
            self._ties[at] += 1
        else:
            doubt = self._merged[at] + self._doubts[at] if at < len(self._values) else 0
            self._values.insert(at, value)
            self._ties.insert(at, 1)
            self._merged.insert(at, 0)
            self._doubts.insert(at, doubt)
        self.count += 1
        self._until_merge -= 1
        if self._until_merge == 0:
            self._merge()

    def at_rank(self, rank: int) -> float:
        """The value of 1-based `rank` in ascending order."""
        # From the top down, because the quantiles asked for here are high ones.
        at, below = len(self._values) - 1, self.count
        while (below := below - self._ties[at] - self._merged[at]) >= rank:
            at -= 1
        return self._values[at]

    def _patience(self) -> int:
        return max(1, round(0.5 / self.error))

    def _merge(self) -> None:
        """Join each value into its right neighbour where `error` allows it."""
        self._until_merge = self._patience()
        allowed = math.floor(self.error * self.count)
        kept: list[list[float]] = []
        for value, ties, merged, doubt in reversed(self._rows()):
            if kept and ties + merged + kept[-1][2] + kept[-1][3] <= allowed:
                kept[-1][2] += ties + merged
            else:
                kept.append([value, ties, merged, doubt])
        self._take(kept[::-1])

    def _rows(self) -> list[tuple[float, int, int, int]]:
        return list(zip(self._values, self._ties, self._merged, self._doubts, strict=True))

    def _take(self, rows: Sequence[Sequence[float]]) -> None:
        self._values = [float(row[0]) for row in rows]
        self._ties, self._merged, self._doubts = ([int(row[i]) for row in rows] for i in (1, 2, 3))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, in plain numbers."""
        return {"rows": [list(row) for row in self._rows()], "until_merge": self._until_merge}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        row = (real(), whole(at_least=1), whole(), whole())
        check_plain(state, {"rows": [row], "until_merge": whole(at_least=1)}, "quantiles")
        self._take(state["rows"])
        self.count = sum(self._ties) + sum(self._merged)
        self._until_merge = int(state["until_merge"])


class SlidingWindow:
    """The last `size` values, exactly."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._fill(())

    @property
    def count(self) -> int:
        return len(self._recent)

    def add(self, value: float) -> None:
        """Add a value; a full window forgets the oldest."""
        if len(self._recent) == self.size:
            del self._ordered[bisect_left(self._ordered, self._recent.popleft())]
        self._recent.append(value)
        insort(self._ordered, value)

    def at_rank(self, rank: int) -> float:
        """The value of 1-based `rank` in ascending order."""
        return self._ordered[rank - 1]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, in plain numbers."""
        return {"recent": list(self._recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        check_plain(state, {"recent": [real()]}, "window")
        self._fill(float(value) for value in state["recent"])

    def _fill(self, values: Iterable[float]) -> None:
        self._recent = deque(values, maxlen=self.size)
        self._ordered = sorted(self._recent)
