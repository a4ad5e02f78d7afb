"""The collapse guard: prompts that carry over may collapse to few classes, and nothing repairs that.

Entropy falls as they collapse, so Algorithm 1 stops asking and no label comes. The guard compares the classes
predicted over the last images with those the loaded prompts θ0 predict for the same images: where the stream
itself shows few classes, both predict few.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from taps.saved import check_plain, whole

# Classes in use, as a share of θ0's, below which prompts have collapsed: while labels arrive that may repair
# them, and where none has arrived for a whole window, or ever will.
SHARE_LABELLED, SHARE_SILENT = 0.5, 0.7


class CollapseGuard:
    """Watches the last `window` images of one stream, and counts collapses.

    >>> guard = CollapseGuard(window=4)
    >>> [guard.collapsed(predicted=0, anchored=image) for image in range(4)]
    [False, False, False, True]
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.collapses = 0
        self.since_label = 0  # images
        self._pairs: deque[tuple[int, int]] = deque(maxlen=window)

    def labelled(self) -> None:
        """A label has arrived."""
        self.since_label = 0

    def collapsed(self, predicted: int, anchored: int) -> bool:
        """Add one image's class by the current prompts and by θ0; whether to restore θ0 now."""
        self._pairs.append((predicted, anchored))
        self.since_label += 1
        if len(self._pairs) < self.window:
            return False
        silent = self.since_label >= self.window  # a collapsed stream stops asking
        own, anchor = (effective_classes(side) for side in zip(*self._pairs, strict=True))
        # One class is as few as there can be: a stream of one class is no collapse.
        if own >= (SHARE_SILENT if silent else SHARE_LABELLED) * anchor:
            return False
        self.collapses += 1
        self._pairs.clear()
        return True

    def state_dict(self) -> dict[str, Any]:
        return {
            "collapses": self.collapses,
            "since_label": self.since_label,
            "pairs": [list(p) for p in self._pairs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pairs = [(whole(), whole())]
        check_plain(state, {"collapses": whole(), "since_label": whole(), "pairs": pairs}, "guard")
        self.collapses, self.since_label = state["collapses"], state["since_label"]
        self._pairs = deque(((own, anchor) for own, anchor in state["pairs"]), maxlen=self.window)


def effective_classes(predicted: Iterable[int]) -> float:
    """exp of the entropy of the predicted classes' distribution: how many classes are really in use.

    >>> effective_classes([0, 1, 2, 3]), effective_classes([5, 5, 5])
    (4.0, 1.0)
    """
    counts = Counter(predicted).values()
    total = sum(counts)
    return math.exp(-sum(count / total * math.log(count / total) for count in counts))
