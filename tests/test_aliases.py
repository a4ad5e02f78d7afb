"""What 0.2 wrote is read under the names of today: a learner, a run stopped half-way, a store."""

from __future__ import annotations

import csv
import json
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from taps.aliases import NAMES, VALUES, current, current_settings
from taps.clip import Clip
from taps.errors import SettingsError
from taps.learner import Learner

ASSET = Path(__file__).parent / "assets" / "version-0.2.zip"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with zipfile.ZipFile(ASSET) as file:
        file.extractall(tmp_path)
    return tmp_path


def picture(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, (40, 30, 3), dtype=np.uint8)


def test_a_saved_learner_goes_on_with_the_same_bits(old: Path, tiny: Clip) -> None:
    learner = Learner.load(old / "learner", tiny)
    assert learner.settings.acquisition == "margin"
    assert learner.summary()["questions"] == {"class": 0, "yes_no": 10}
    said = np.stack([learner.predict_one(picture(100 + i)).probs for i in range(3)])
    assert said.tobytes() == np.load(old / "learner-probs.npy").tobytes()


def test_a_run_is_continued(old: Path) -> None:
    from taps.cli.main import app

    words = ["run", str(old / "images"), "--resume", "--out", str(old / "run"), "--limit", "12"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    rows = (old / "run" / "predictions.csv").read_text().splitlines()
    assert len(rows) == 13
    assert (
        json.loads((old / "run" / "run.json").read_text())["options"]["settings"]["acquisition"] == "margin"
    )


def test_a_run_is_read_for_other_tools(old: Path) -> None:
    from taps.adapters import read_run

    rows, folder = read_run(old / "run"), old / "run"
    cells = list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))
    assert [(row.label, row.probability, row.asked) for row in rows] == [
        (cell["predicted"], float(cell["probability"]), cell["asked"] == "1") for cell in cells
    ]
    assert all(row.name.endswith(cell["path"]) for row, cell in zip(rows, cells, strict=True))
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    told = {line["t"]: line.get("label") for line in lines if line["event"] == "answered"}
    assert {row.seq: row.answer for row in rows if row.state == "answered"} == told


def test_a_store_is_opened_and_answered(old: Path, tiny: Clip) -> None:
    from taps.serve.service import Service
    from taps.serve.store import Store
    from taps.serve.stream_session import StreamSession

    with Service(Store(str(old / "store")), tiny) as service:
        assert service.troubles() == []
        rows = service.store.predictions(service.stream("photos").id)
        assert {row.state for row in rows} == {"unqueried", "open", "answered", "skipped"}
        assert {row.question for row in rows} == {"yes_no"}
        open_ones = [row.id for row in rows if row.state == "open"]
        act = partial(StreamSession.label, id=open_ones[0], label="owl", who="test")
        assert service.send("photos", act).result().row.answer == "owl"


def test_settings_of_before_are_taken(tiny: Clip) -> None:
    learner = Learner(tiny, ["cat", "dog"], "view_ensemble+", ask_by="margin", questions="is_it")  # type: ignore[call-arg]
    assert (learner.settings.acquisition, learner.settings.questions) == ("margin", "yes_no")


def test_an_old_and_a_new_name_for_one_setting_are_refused() -> None:
    with pytest.raises(SettingsError, match="'ask_by' is the old name of 'acquisition'"):
        current_settings({"ask_by": "margin", "acquisition": "density"})


@pytest.mark.parametrize("old_name", NAMES)
def test_every_name_is_read_however_deep(old_name: str) -> None:
    assert current({"a": [{old_name: 1}]}) == {"a": [{NAMES[old_name]: 1}]}


def test_words_are_translated_in_their_fields_alone() -> None:
    for field, words in VALUES.items():
        for old_word, new in words.items():
            assert current({field: old_word, "label": old_word}) == {field: new, "label": old_word}
