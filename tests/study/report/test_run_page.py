"""The page of a run shows what its files say."""

from __future__ import annotations

from taps.study.report.run_page import by_class

ROW = {"predicted": "cat", "correct": "", "probability": "0.5", "asked": "0"}


def test_the_table_by_class_counts_what_is_known() -> None:
    rows = [
        ROW | {"correct": "1", "asked": "1"},
        ROW | {"correct": "0", "probability": "0.7"},
        ROW,
        ROW | {"predicted": "dog"},
    ]
    assert by_class(rows).rows == (("cat", "3", "57%", "1", "1 of 2"), ("dog", "1", "50%", "0", ""))
