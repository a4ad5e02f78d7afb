"""`taps predict` and `taps watch` as a user meets them."""

from __future__ import annotations

import csv
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import taps
from taps import Learner
from taps.cli import main
from taps.data import load_dataset
from taps.model.clip import Clip
from taps.serve.replay import learner_of
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.test_saved import beginning, teach

CLASSES = "ant,bee,cat"
# Methods that carry something from image to image, with settings that make it count.
LIVELY: dict[str, dict[str, Any]] = {
    "neighbours": {"views": 4},
    "tda": {},
    "dpe": {"views": 4},
    "taps": {"views": 4, "reset": "never", "lr": 0.1, "rate": 0.5},
    "view_ensemble+": {"views": 4, "rate": 0.5},
}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> int:
        monkeypatch.setattr(sys, "argv", ["taps", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main.run()
        return int(ended.value.code or 0)

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_precision_of_the_model_can_be_chosen(
    pictures: Path, tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run keeps it; its learner predicts in it later."""
    options = ("--model", "tiny", "--limit", 2, "--dtype", "bf16", "--no-repredict")
    assert call("run", pictures, *options, "--out", tmp_path / "run") == 0
    assert Learner.load(tmp_path / "run" / "state").clip.dtype == torch.bfloat16
    assert call("predict", pictures, "--learner", tmp_path / "run") == 0
    assert call("predict", pictures, "--model", "tiny", "--dtype", "fp7") == 2
    assert "use fp32, bf16" in capsys.readouterr().err


def test_predictions_are_those_of_zero_shot_one_by_one(
    pictures: Path, tmp_path: Path, call: Callable[..., int]
) -> None:
    folder = shutil.copytree(pictures, tmp_path / "mine")
    (folder / "ant" / "broken.png").write_bytes(b"no image")
    assert call("predict", folder, "--model", "tiny", "--batch", 5, "--top", 2) == 0
    found = rows(tmp_path / "predictions.csv")
    dataset = load_dataset(str(folder))
    learner = Learner(taps.load_clip("tiny"), dataset.classes, "zero_shot")
    for index, (row, sample) in enumerate(zip(found, dataset.samples, strict=True)):
        assert row["path"] == str(folder / sample.path)
        if "broken" in sample.path:
            assert row["predicted"] == ""
            assert "not an image" in row["error"]
            continue
        wanted = learner.predict_one(dataset.image(index))
        second = np.argsort(-wanted.probs)[1]
        assert (row["predicted"], row["class_2"]) == (wanted.label, learner.classes[second])
        assert abs(float(row["probability"]) - wanted.probs.max()) < 1e-4
        assert abs(float(row["probability_2"]) - wanted.probs[second]) < 1e-4


@pytest.mark.parametrize("link", [[], ["--link"]])
def test_images_are_sorted_and_the_unsure_ones_apart(
    pictures: Path, tmp_path: Path, call: Callable[..., int], link: list[str]
) -> None:
    sorted_to = tmp_path / "sorted"
    options = ["--model", "tiny", "--sort-into", sorted_to, *link]
    assert call("predict", pictures, *options, "--sure", 0) == 0
    found = rows(tmp_path / "predictions.csv")
    for row in found:
        name = "__".join(Path(row["path"]).relative_to(pictures).parts)
        target = sorted_to / row["predicted"] / name
        assert target.read_bytes() == Path(row["path"]).read_bytes()
        assert target.is_symlink() == bool(link)
    shutil.rmtree(sorted_to)
    assert call("predict", pictures, *options, "--sure", 1) == 0
    assert {path.name for path in sorted_to.iterdir()} == {"not-sure", "sorted.csv"}


@pytest.mark.parametrize("command", ["predict", "watch", "run", "label"])
@pytest.mark.parametrize("into", ["", "sorted", ".."])
def test_nothing_is_sorted_into_the_folder_of_the_images(
    pictures: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str], command: str, into: str
) -> None:
    assert call(command, pictures, "--model", "tiny", "--sort-into", pictures / into) == 2
    assert "choose one outside" in capsys.readouterr().err
    assert not (pictures / "sorted").exists()


def test_a_file_of_classes_may_have_a_comma_in_its_name(
    pictures: Path, tmp_path: Path, call: Callable[..., int]
) -> None:
    (tmp_path / "mine, all.txt").write_text("wasp\nhoney bee, queen\n")
    assert call("predict", pictures / "bee", "--model", "tiny", "--classes", "mine, all.txt") == 0
    assert {row["class_2"] for row in rows(tmp_path / "predictions.csv")} <= {"wasp", "honey bee, queen", ""}


@pytest.mark.parametrize("command", ["predict", "watch"])
def test_no_file_but_a_table_of_predictions_is_written_over(
    pictures: Path, tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    given = ["--model", "tiny", "--classes", CLASSES]
    shutil.copytree(pictures, tmp_path / "in")
    (tmp_path / "my.csv").write_text("path,predicted,probability,mine\n")
    for mine in ("in/ant/0.png", "my.csv"):
        before = (tmp_path / mine).read_bytes()
        assert call(command, "in", *given, "--out", mine) == 2
        assert "other columns" in capsys.readouterr().err
        assert (tmp_path / mine).read_bytes() == before
    for top in (2, 1):
        assert call("predict", "in", *given, "--out", "ours.csv", "--top", top) == 0
    assert rows(tmp_path / "ours.csv")[0].keys() == {"path", "predicted", "probability", "error"}


def test_a_list_of_images_is_not_written_over(
    pictures: Path, tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"path,label\n{pictures}/ant/0.png,ant\n{pictures}/bee/0.png,bee\n"
    (tmp_path / "list.csv").write_text(text)
    assert call("predict", "list.csv", "--model", "tiny", "--out", "list.csv") == 2
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "list.csv").read_text() == text


def test_a_saved_learner_predicts_what_it_has_learned(
    pictures: Path, tmp_path: Path, call: Callable[..., int]
) -> None:
    run = ["--model", "tiny", "--method", "zero_shot+", "--rate", "0.5", "--out", "r"]
    assert call("run", pictures, *run) == 0
    assert call("predict", pictures, "--learner", "r", "--top", 1) == 0
    learner = Learner.load(tmp_path / "r" / "state")
    dataset = load_dataset(str(pictures))
    for index, row in enumerate(rows(tmp_path / "predictions.csv")):
        wanted = learner.predict_one(dataset.image(index), update=False)
        assert row["predicted"] == wanted.label
        assert abs(float(row["probability"]) - wanted.probs.max()) < 1e-4


@pytest.mark.parametrize("method", ["neighbours", "tda", "dpe", "taps", "view_ensemble+"])
def test_what_a_saved_learner_says_of_an_image_does_not_depend_on_the_others(
    pictures: Path, tmp_path: Path, call: Callable[..., int], method: str
) -> None:
    learner = Learner(taps.load_clip("tiny"), CLASSES.split(","), method, **LIVELY[method])
    dataset = load_dataset(str(pictures))
    for index in range(20):
        if learner.predict_one(dataset.image(index % len(dataset))).ask:
            learner.learn_one(index, dataset.samples[index % len(dataset)].label)
    learner.save(tmp_path / "saved")
    paths = [str(path) for path in sorted(pictures.rglob("*.png"))]
    found = []
    for order in (paths, paths[::-1], paths[3:5]):
        (tmp_path / "list.csv").write_text("path\n" + "\n".join(order))
        assert call("predict", "list.csv", "--learner", "saved", "--top", 1, "--batch", 4) == 0
        found.append({row["path"]: row for row in rows(tmp_path / "predictions.csv")})
    assert len(found[0]) == len(paths)
    for said in found[1:]:
        for path, row in said.items():
            assert row["predicted"] == found[0][path]["predicted"]
            assert abs(float(row["probability"]) - float(found[0][path]["probability"])) < 1e-5


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["predict", "PICTURES", "--model", "tiny", "--top", "0"], "--top"),
        (["predict", "PICTURES", "--model", "tiny", "--out", "/proc/no/x.csv"], "cannot be written"),
        (["predict", "PICTURES", "--learner", "nothing-here"], "nothing-here"),
        (["predict", "PICTURES", "--learner", "x", "--classes", "a,b"], "leave --classes"),
        (["watch", "nowhere", "--classes", CLASSES], "not a folder"),
        (["watch", "PICTURES"], "No classes given"),
    ],
)
def test_bad_input_is_a_sentence(
    pictures: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str], args: list[str], word: str
) -> None:
    assert call(*[str(pictures) if each == "PICTURES" else each for each in args]) == 2
    assert word in capsys.readouterr().err


def test_watch_takes_new_files_as_they_come(
    pictures: Path, tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "inbox"
    folder.mkdir()
    shutil.copy(pictures / "ant" / "0.png", folder / "first.png")
    later = threading.Timer(0.3, lambda: shutil.copy(pictures / "bee" / "0.png", folder / "second.png"))
    later.start()
    options = ["--model", "tiny", "--classes", CLASSES, "--every", 0.05, "--limit", 2]
    assert call("watch", folder, *options) == 0
    later.join()
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["first.png", "second.png"]
    assert [Path(row["path"]).name for row in rows(tmp_path / "predictions.csv")] == printed


def test_watch_goes_on_with_its_rows(
    pictures: Path, tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "inbox"
    folder.mkdir()
    options = ["--model", "tiny", "--classes", CLASSES, "--every", 0.05, "--limit", 1]
    for name in ("first", "second", "third"):
        shutil.copy(pictures / "ant" / "0.png", folder / f"{name}.png")
        assert call("watch", folder, *options) == 0
        if name == "first":
            (folder / "first.png").unlink()  # somebody dealt with it
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["first.png", "second.png", "third.png"]
    assert [Path(row["path"]).name for row in rows(tmp_path / "predictions.csv")] == printed
    before = (tmp_path / "predictions.csv").read_bytes()
    assert call("watch", folder, *options, "--top", 2) == 2
    assert "has other columns; choose another --out" in capsys.readouterr().err
    assert (tmp_path / "predictions.csv").read_bytes() == before


def test_files_that_were_left_out_are_said_by_kind(
    pictures: Path, tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(pictures, tmp_path / "mine")
    for name in ("a.svg", "b.svg", "ant/notes"):
        (folder / name).write_text("no image")
    assert call("predict", folder, "--model", "tiny") == 0
    assert "left out: 2 .svg, 1 without extension\n" in capsys.readouterr().out
    words = ("run", folder, "--model", "tiny", "--method", "zero_shot", "--limit", 2)
    assert call(*words) == 0
    assert "left out: 2 .svg, 1 without extension\n" in capsys.readouterr().out


def test_taps_predict_takes_a_store(pictures: Path, tiny: Clip, tmp_path: Path, here: Any) -> None:
    with Service(Store(str(tmp_path / "photos.taps")), tiny) as service:
        service.create(beginning("photos"), "test")
        teach(service, "photos", pictures, 12)
    code, _, err = here("predict", pictures, "--learner", "photos.taps", "--stream", "photos")
    assert code == 0, err
    found = rows(tmp_path / "predictions.csv")
    learner = learner_of(tmp_path / "photos.taps")
    assert len(found) == 24
    for row in found:
        assert row["predicted"] == learner.predict_one(Path(row["path"]), update=False).label
    assert "it has no streams" in here("predict", pictures, "--learner", pictures, "--stream", "x")[2]
    assert "give that, too" in here("predict", pictures, "--stream", "x")[2]
