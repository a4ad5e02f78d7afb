"""`taps label`: a folder through the page's service, stopped, taken up again, and written down."""

from __future__ import annotations

import csv
import io
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from taps.cli import label
from taps.clip import Clip
from taps.data import load_dataset
from taps.errors import SettingsError
from taps.learner import Learner
from taps.serve.folder import Folder
from taps.serve.records import OPEN
from taps.serve.service import Beginning, Service
from taps.serve.store import Store
from taps.stream.stream import make_stream

SETTINGS: dict[str, Any] = {"rate": 0.4, "ask_by": "margin"}


def images(
    service: Service,
    pictures: Path,
    classes: list[str] | None = None,
    settings: dict[str, Any] = SETTINGS,
) -> Folder:
    dataset = load_dataset(str(pictures))
    stream = make_stream(dataset, 0)
    made = Folder(service, "photos", dataset, stream.order, stream.path)
    names = classes or list(dataset.classes)
    beginning = Beginning("photos", names, "zero_shot+", settings, 0, None, 0.0)
    made.begin(beginning, given=classes is not None)
    return made


def answer(service: Service, dataset: Any, stop: threading.Event) -> None:
    """Somebody who knows the folders' names."""
    truth = {sample.key: dataset.classes[sample.label] for sample in dataset.samples}
    number = service.stream("photos").id
    while not stop.wait(0.02):
        for row in service.store.predictions(number, states=[OPEN]):
            service.send("photos", lambda live, row=row: live.label(row.id, truth[row.name], "test")).result()


class Left(Exception):  # noqa: N818
    """Somebody goes home."""


def test_a_folder_is_labelled_left_and_taken_up_again(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    def leave(done: int) -> None:
        if done == 5:
            raise Left

    with Service(Store(str(tmp_path / "store")), tiny) as service, pytest.raises(Left):
        images(service, pictures).feed(leave)
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        with pytest.raises(SettingsError, match=r"other classes \(ant, bee.*\); give those to go on"):
            images(service, pictures, ["a", "b"])
        made, stop = images(service, pictures), threading.Event()
        expert = threading.Thread(target=answer, args=(service, made.dataset, stop))
        expert.start()
        try:
            label.stream_through(Console(file=io.StringIO()), made, tmp_path)
        finally:
            stop.set()
            expert.join()
        check(service, made, tmp_path, tiny)


def check(service: Service, made: Folder, folder: Path, clip: Clip) -> None:
    rows = list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))
    assert [row["path"] for row in rows] == [made.name(t) for t in range(len(made.order))]
    labels = {
        row["name"]: row["answer"] for row in csv.DictReader((folder / "labels.csv").read_text().splitlines())
    }
    assert labels
    assert {row["path"]: row["label"] for row in rows if row["by"] == "person"} == labels
    assert "images are through" in service.notices["photos"]
    plain = Learner(clip, made.dataset.classes, "zero_shot+", seed=0, recent=100, **SETTINGS)
    plain.load_state_dict(service.owner("photos").live.keeper.learner().state_dict())
    for t, row in enumerate(rows):
        if row["by"] == "model":
            assert row["label"] == plain.predict_again(t, made.dataset.read(made.order[t])).label
    before = (folder / "predictions.csv").read_text()
    made.write(folder)  # what was said in the end stays
    assert (folder / "predictions.csv").read_text() == before


def test_files_that_cannot_be_read_do_not_stop_the_others(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "photos")
    (tmp_path / "photos/ant/gone.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "photos/bee/half.png").write_bytes((pictures / "bee/0.png").read_bytes()[:40])
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, tmp_path / "photos", settings={"rate": 0.01})
        made.feed(lambda done: None)
        assert sorted(made.broken) == ["ant/gone.png", "bee/half.png"]
        first = made.name(0)
        (tmp_path / "photos" / first).unlink()  # since then
        made.write(tmp_path, lambda done: None)
    rows = {
        row["path"]: row for row in csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines())
    }
    assert len(rows) == 26
    assert (rows["bee/half.png"]["by"], rows["bee/half.png"]["label"]) == ("nobody", "")
    assert rows[first]["label"] == rows[first]["predicted_first"]


def test_a_method_that_never_asks_is_refused() -> None:
    with pytest.raises(SettingsError, match="never asks"):
        label.asking_settings("zero_shot", 0.1, 4)
    assert label.asking_settings("zero_shot+", 0.1, 4) == {"rate": 0.1, "ask_by": "margin"}


def test_what_was_begun_and_what_is_left_out_is_said(
    pictures: Path, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(place: Path, clip: Clip, begin: Any, **_: object) -> None:
        with Service(Store(str(place)), clip) as service:
            begin(service)

    monkeypatch.setattr(label, "go", go)
    photos = shutil.copytree(pictures, tmp_path / "photos")
    (photos / "ant" / "film.mp4").touch()
    command = ("label", photos, "--model", "tiny", "--method", "zero_shot+")
    monkeypatch.chdir(photos)
    code, said, err = here("label", ".", *command[2:], "--rate", "0.3")  # kept beside the folder, not in it
    assert (code, said) == (0, "left out: 1 .mp4\n"), err
    assert (tmp_path / "photos.taps").is_dir()
    assert "begun" not in here(*command, "--rate", "0.3")[1]
    said = here(*command, "--rate", "0.5")[1]
    assert "Goes on as it was begun: zero_shot+ with" in said
    assert "rate=0.3" in said
