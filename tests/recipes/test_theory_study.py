"""The study: the same numbers from the same seed, in tables that say what they measured."""

import json

import pytest
import study as studies
from study_balance import SETTINGS

from taps.errors import SettingsError


@pytest.fixture(scope="module")
def study():
    return studies.study_all(streams=20, length=300, seed=1, rate=0.05)


def test_each_proposition_alone_gives_the_numbers_of_both(study):
    assert studies.study_balance(20, 300, 1, 0.05).tables.items() <= study.tables.items()
    assert studies.study_rate(20, 300, 1, 0.05).tables.items() <= study.tables.items()


def test_another_seed_gives_other_numbers(study):
    assert studies.study_rate(20, 300, 2, 0.05).tables["shapes"] != study.tables["shapes"]


def test_tables_are_plain_and_complete(study):
    json.dumps(study.tables, allow_nan=False)
    assert len(study.tables["balance"]) == len(SETTINGS)
    for rows in study.tables.values():
        assert all(row.keys() == rows[0].keys() for row in rows)


def test_balance_rows_say_where_f_rises(study):
    for row in study.tables["balance"]:
        if row["buffer"] % row["classes"] == 0:
            assert row["rises_per_1000"] == 0
        elif row["buffer"] % row["classes"] > 1:
            assert row["rises_per_1000"] > 0
            assert row["f_lowest"] > 2
            assert row["share_reaching_2"] == 0


def test_sets_with_fewer_labels_than_the_buffer_holds_never_evict(study):
    rows = {row["dataset"]: row for row in study.tables["datasets"]}
    assert len(rows) == 14
    assert {name for name, row in rows.items() if row["f_at_end"] is None} == {
        "Caltech101",
        "Flowers102",
        "DTD",
    }


@pytest.mark.parametrize(
    "settings",
    [(0, 300, 0, 0.05), (10, 50, 0, 0.05), (10, 300, -1, 0.05), (10, 300, 0, 0.0), (10, 300, 0, 1.0)],
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(SettingsError):
        studies.study_rate(*settings)
