"""The demo reaches what the README's picture says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from taps.cli.demo import IMAGES, RATE, VIEWS, compare
from taps.model.clip import load_clip
from taps.streams.record import read_predictions

MEASURED = Path(__file__).resolve().parents[2] / "docs" / "figures" / "demo.json"


@pytest.mark.slow
def test_the_demo_is_within_two_points_of_its_picture(tmp_path: Path) -> None:
    """Another processor rounds otherwise."""
    said = json.loads(MEASURED.read_text())
    compare(
        load_clip("pocket"), tuple(said["accuracy"]), tmp_path, limit=IMAGES, views=VIEWS, rate=RATE, seed=0
    )
    for method, accuracy in said["accuracy"].items():
        rows = read_predictions(tmp_path / method)
        assert 100 * np.mean([row["correct"] == "1" for row in rows]) == pytest.approx(accuracy, abs=2)
        assert sum(row["asked"] == "1" for row in rows) == (said["asked"] if method.endswith("+") else 0)
