"""The last lessons as arrays, so that an answer can be taken back even after the stream was resumed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taps.head.head import Lesson

Array = NDArray[np.float64]


def lesson_arrays(lessons: Mapping[int, Lesson]) -> dict[str, Array]:
    """Lessons by the id of their image, as arrays by name; nothing where there are none."""
    if not lessons:
        return {}
    kept = lessons.values()
    plain = [(id, one.label, one.told[0], one.gain, one.doubted) for id, one in lessons.items()]
    return {
        "lessons.features": np.stack([one.feature for one in kept]),
        "lessons.residuals": np.stack([one.residual for one in kept]),
        "lessons.losses": np.stack([one.told[1] for one in kept]),
        "lessons.plain": np.array(plain, dtype=np.float64),
    }


def lessons_from(arrays: Mapping[str, Array]) -> OrderedDict[int, Lesson]:
    """The inverse of `lesson_arrays`."""
    lessons: OrderedDict[int, Lesson] = OrderedDict()
    if "lessons.plain" not in arrays:
        return lessons
    names = ("features", "residuals", "losses", "plain")
    rows = zip(*(arrays[f"lessons.{name}"] for name in names), strict=True)
    for feature, residual, losses, (id, label, place, gain, doubted) in rows:
        lessons[int(id)] = Lesson(
            feature.copy(),
            residual.copy(),
            int(label),
            (int(place), losses.copy()),
            float(gain),
            bool(doubted),
        )
    return lessons
