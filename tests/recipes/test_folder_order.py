"""recipes/folder_order.py on made-up features: both ways are run, and the page has a line for the set."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import folder_order
import numpy as np
import pytest

from taps.model.clip import Clip


def test_both_ways_ask_as_often_and_the_page_compares_them(
    tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 3
    centres = rng.normal(size=(3, tiny.config.embed_dim))
    views = centres[labels][:, None] + 0.1 * rng.normal(size=(30, folder_order.VIEWS, centres.shape[1]))
    file = tmp_path / f"sketch-{folder_order.VIEWS}.npz"
    np.savez(file, features=views.astype(np.float16), labels=labels, classes=["cat", "dog", "owl"])
    monkeypatch.setattr(folder_order, "load_once", lambda model, device: tiny)
    monkeypatch.setattr(folder_order, "IMAGES", 30)
    monkeypatch.setattr(folder_order, "CHOSEN_ON", ("sketch",))
    given = Namespace(features=tmp_path, rows=tmp_path / "rows.jsonl", orders=1, sets="")
    one, other = folder_order.run_all(given)
    assert (one["pool"], other["pool"]) == (False, True)
    assert one["answers"] == other["answers"] > 0
    assert folder_order.run_all(given) == [one, other]  # nothing is run twice
    rows = [row | {"set": name} for row in (one, other) for name in ("sketch", "photo")]
    assert "| photo | 3 |" in folder_order.page(rows)
