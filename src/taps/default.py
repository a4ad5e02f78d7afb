"""The one default: what `Learner`, `taps run`, `taps label`, `taps serve` and the adapters take unless told.

The choice is measured in docs/results/results.md ("By asking rule"). Research commands name their methods
themselves.
"""

from __future__ import annotations

METHOD = "view_ensemble+"
ACQUISITION = "margin"
VIEWS = 16
"""Of each image. The head gains little beyond them, and time grows with them."""
FRACTION = 0.25
"""Share of the views that is kept: of so few, more than a tenth."""

QUICK: dict[str, float] = {"views": 4, "fraction": 0.5}
"""What --quick takes: a quarter of the work on each image, for a little accuracy."""

BEFORE = {"acquisition": "density"}
"""Defaults of version 0.2. Streams that it began without a word on them go on with these."""
