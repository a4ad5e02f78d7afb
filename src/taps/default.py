"""Defaults of `Learner`, `taps run`, `taps label`, `taps serve` and the adapters.

The choice is measured in docs/results/results.md ("By asking rule"). Research commands name their methods.
"""

from __future__ import annotations

METHOD = "view_ensemble+"
ACQUISITION = "margin"
VIEWS = 16
"""Views of each image. The head gains little from more, and time grows with them."""
FRACTION = 0.25
"""Share of the views that is kept: more than the paper's tenth, as there are few."""

QUICK: dict[str, float] = {"views": 4, "fraction": 0.5}
"""Settings of --quick: a quarter of the work on each image, at slightly lower accuracy."""
