"""Learners, runs and stores of commit b4347e8 open and go on; what is older is refused with a sentence.

The archive was made by that commit with the tiny model: two learners, a run stopped half-way, a store of
`taps serve` and one of `taps label` with answers, corrections, an answer taken back and a question left open.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from taps.errors import StateError
from taps.learner import Learner
from taps.model.clip import Clip
from taps.serve.backup import backup
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from tests.serve.streams import Served

ASSET = Path(__file__).parent / "assets" / "b4347e8.zip"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with zipfile.ZipFile(ASSET) as file:
        file.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["taps", "view_ensemble-plus"])
def test_a_saved_learner_goes_on_with_the_same_numbers(old: Path, tiny: Clip, name: str) -> None:
    learner = Learner.load(old / name, tiny)
    assert (learner.seen, learner.answered) == (12, 6)
    pictures = [
        np.random.default_rng(100 + k).integers(0, 255, (40, 30, 3), dtype=np.uint8) for k in range(3)
    ]
    said = np.stack([learner.predict_one(picture).probs for picture in pictures])
    np.testing.assert_allclose(said, np.load(old / "probs.npz")[name], atol=1e-6)


def test_a_run_is_continued_and_read_for_other_tools(old: Path) -> None:
    from taps.adapters import read_run
    from taps.cli.main import app
    from taps.streams.record import read_predictions

    words = ["run", str(old / "images"), "--resume", "--out", str(old / "run"), "--limit", "12"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert len((old / "run" / "predictions.csv").read_text().splitlines()) == 13
    assert len(read_run(old / "run")) == 12
    rows = read_predictions(old / "run")  # under the names of today
    assert [int(row["t"]) for row in rows] == list(range(12))
    assert all(row["truth"] in (row["path"].split("/")[0], "") for row in rows)
    assert all(0 <= float(row["probability"]) <= 1 and row["view_entropy"] for row in rows)


@pytest.mark.parametrize("replayed", [False, True])
def test_a_store_is_opened_and_answered(old: Path, tiny: Clip, replayed: bool) -> None:
    """From its snapshot, or from its log alone."""
    if replayed:
        shutil.rmtree(old / "store" / "snapshots" / "1")
    with Service(Store(str(old / "store")), tiny) as service:
        rows = service.store.predictions(service.stream("pets").id)
        assert {row.state for row in rows} == {"unqueried", "open", "answered", "skipped"}
        id = next(row.id for row in rows if row.state == "open")
        act = partial(StreamSession.label, id=id, label="bird", who="test")  # a class added on the way
        assert service.send("pets", act).result().row.answer == "bird"
        assert Served(service).predict(28) in (True, False)


def test_a_labelled_folder_keeps_its_answers(old: Path, tiny: Clip, tmp_path: Path) -> None:
    store = Store(str(old / "label"))
    backup(store, tmp_path / "copy")
    store.close()
    with Service(Store(str(tmp_path / "copy")), tiny) as service:
        rows = service.store.predictions(service.stream("pets").id)
    assert sorted(row.answer for row in rows if row.state == "answered" and row.answer) == ["cat", "owl"]
    assert sum(row.none for row in rows) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE alembic_version SET version_num = '0004'", "form '0004'"),
        ("UPDATE events SET kind = 'label' WHERE kind = 'answered'", "older version"),
    ],
)
def test_an_older_store_is_refused_and_left_as_it_is(old: Path, tiny: Clip, change: str, told: str) -> None:
    store = Store(str(old / "store"))
    with store.database.write() as connection:
        connection.execute(text(change))
    store.close()
    with pytest.raises(StateError, match=told), Service(Store(str(old / "store")), tiny):
        pass


def test_an_older_learner_is_refused(old: Path, tiny: Clip) -> None:
    for file in (old / "taps").glob("learner*.json"):
        index = json.loads(file.read_text())
        del index["checksum"]
        file.write_text(json.dumps(index | {"format": 1}))
    with pytest.raises(StateError, match="format 1"):
        Learner.load(old / "taps", tiny)
