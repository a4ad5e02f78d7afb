"""The tables of `recipes/theory/simulate.py`."""

import pytest
from simulate import main, simulate

from taps.files import read_json

SMALL = {"streams": 20, "length": 300, "seed": 1, "rate": 0.05}


@pytest.fixture(scope="module")
def tables():
    return simulate(**SMALL)


def test_the_command_writes_the_tables_of_its_seed(tables, tmp_path):
    main(
        [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
        + ["--out", str(tmp_path)]
    )
    written = read_json(tmp_path / "simulate.json")
    assert (written["settings"], written["tables"]) == (SMALL, tables)


def test_another_seed_gives_other_numbers(tables):
    assert simulate(**{**SMALL, "seed": 2})["shapes"] != tables["shapes"]


def test_balance_rows_say_where_f_rises(tables):
    for row in tables["balance"]:
        if row["buffer"] % row["classes"] == 0:
            assert row["rises_per_1000"] == 0
        elif row["buffer"] % row["classes"] > 1:
            assert row["rises_per_1000"] > 0
            assert row["f_lowest"] > 2
            assert row["share_reaching_2"] == 0


def test_sets_with_fewer_labels_than_the_buffer_holds_never_evict(tables):
    rows = {row["dataset"]: row for row in tables["datasets"]}
    never = {name for name, row in rows.items() if row["f_at_end"] is None}
    assert never == {"Caltech101", "Flowers102", "DTD"}
