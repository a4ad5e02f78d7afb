"""Sentences for the user about the answers so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOISY = 0.2  # share of wrong answers from which they are spoken of
LEAST_ANSWERS = 10  # answers before a note is made about all of them
NAMED = 5  # classes or images that a sentence lists


def notes_on(summary: dict[str, Any], counts: NDArray[np.float64], classes: Sequence[str]) -> list[str]:
    """Sentences about answers that contradict the rest, teach nothing, or leave classes out.

    `summary` is that of the head, with "head_look_again", the images whose answers are doubted; `counts` are
    the answers of each class.

    >>> found = {"head_labels": 3, "head_noise": 0.1, "head_trust": 0.4, "head_fairness": 0.9}
    >>> notes_on(found | {"head_look_again": []}, np.array([3.0, 0.0]), ["cat", "dog"])
    ["All 3 answers are of the class 'cat'; nothing could be learned about the other classes."]
    """
    held = summary["head_labels"]
    notes: list[str] = []
    if not held:
        return notes
    if held >= LEAST_ANSWERS and summary["head_noise"] >= NOISY:
        again = summary["head_look_again"]
        look = f"; look again at the images {_some(again)}" if again else ""
        notes.append(f"About {summary['head_noise']:.0%} of the {held} answers seem to be wrong{look}.")
    if held >= LEAST_ANSWERS and summary["head_trust"] < 0.5:
        notes.append(
            f"The {held} answers have not made predictions better so far; they have little weight in them."
        )
    asked = np.flatnonzero(counts)
    if held >= LEAST_ANSWERS and summary["head_fairness"] < 0.5:
        notes.append("The answered images are less diverse than the others, so they are given less weight.")
    if len(asked) == 1:
        notes.append(
            f"All {held} answers are of the class {classes[int(asked[0])]!r}; nothing could be learned about "
            "the other classes."
        )
    elif len(asked) < len(classes):
        never = [repr(classes[int(place)]) for place in np.flatnonzero(counts == 0)]
        notes.append(f"No answer has named {len(never)} of the {len(classes)} classes: {_some(never)}.")
    return notes


def _some(things: Sequence[object]) -> str:
    """The first few, and how many more.

    >>> _some([1, 2, 3, 4, 5, 6, 7])
    '1, 2, 3, 4, 5 and 2 more'
    """
    rest = len(things) - NAMED
    return ", ".join(map(str, things[:NAMED])) + (f" and {rest} more" if rest > 0 else "")
