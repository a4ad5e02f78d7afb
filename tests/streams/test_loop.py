"""No label is read before its prediction is on record; broken images count; accuracy is the plain one."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from taps import Learner
from taps.data import load_dataset, stream_order
from taps.errors import DataError
from taps.learner.prepared import DrawnImage
from taps.model.clip import Clip
from taps.streams.loop import Session, follow
from taps.streams.record import EVENTS, PREDICTIONS, Record
from taps.streams.score import RunningScore
from taps.streams.sequence import Stream
from taps.study.evaluate.jobs import Job, run_job


class Spy(Stream):
    """A stream that looks, whenever a label is read, at what is on the disk at that moment."""

    folder: Path
    reads: list[int]

    def label(self, t: int) -> int | None:
        events = [json.loads(line) for line in (self.folder / EVENTS).read_text().splitlines()]
        committed = [event["t"] for event in events if event["event"] == "predicted"]
        assert t in committed, f"label {t} was read before its prediction was committed"
        self.reads.append(t)
        return super().label(t)


def watched(folder: Path, pictures: Path, clip: Clip, **settings: object) -> Session:
    dataset = load_dataset(pictures)
    stream = Spy(dataset, stream_order(len(dataset), 3).tolist())
    object.__setattr__(stream, "folder", folder)
    object.__setattr__(stream, "reads", [])
    learner = Learner(clip, dataset.classes, "taps", seed=3, views=4, policy="fixed", **settings)
    return Session(learner, stream, Record(folder), RunningScore())


def test_no_label_is_read_before_its_prediction_is_committed(
    tmp_path: Path, pictures: Path, tiny: Clip
) -> None:
    session = watched(tmp_path, pictures, tiny, tau0=0.0)
    with closing(session.record):
        assert follow(session)
    assert session.running.answered == 24  # the annotator was asked every time, under the spy's eyes
    assert len(session.stream.reads) == 48  # type: ignore[attr-defined]  # once by the annotator, once to score


def test_an_unasked_label_reaches_only_the_score(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    session = watched(tmp_path, pictures, tiny, tau0=99.0)
    with closing(session.record):
        follow(session)
    assert session.running.answered == 0
    assert session.stream.reads == list(range(24))  # type: ignore[attr-defined]


def test_the_spy_catches_a_protocol_that_peeks(tmp_path: Path, pictures: Path, tiny: Clip) -> None:
    session = watched(tmp_path, pictures, tiny)
    session.record.files[EVENTS].flush()
    with closing(session.record), pytest.raises(AssertionError, match="before its prediction"):
        session.stream.label(0)


def test_committed_and_scored_predictions_are_the_same(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    run_job(make_job(), tmp_path)
    folder = make_job().folder(tmp_path)
    events = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    committed = [event["index"] for event in events if event["event"] == "predicted"]
    rows = list(csv.DictReader((folder / PREDICTIONS).read_text().splitlines()))
    assert [("ant", "bee", "cat")[i] for i in committed] == [row["predicted"] for row in rows]
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["predicted", "answered"]


@pytest.mark.parametrize("method", ["zero_shot", "taps"])
def test_accuracy_is_that_of_a_plain_loop(
    tmp_path: Path, make_job: Callable[..., Job], tiny: Clip, pictures: Path, method: str
) -> None:
    job = make_job(method, seed=2)
    row = run_job(job, tmp_path)
    assert row is not None
    dataset = load_dataset(pictures)
    learner = Learner(tiny, dataset.classes, method, seed=2, **job.settings)
    right = asked = 0
    for index in stream_order(len(dataset), 2).tolist():
        prediction = learner.predict_one(DrawnImage(dataset.image(index), 0, index))
        right += prediction.index == dataset.samples[index].label
        if prediction.ask:
            asked += 1
            learner.learn_one(prediction.id, dataset.samples[index].label)  # type: ignore[arg-type]
    assert (row["top1"], row["asked"], row["n"]) == (right / 24, asked, 24)
    assert (asked > 0) == (method == "taps")


def test_broken_images_are_counted_and_skipped(
    tmp_path: Path, make_job: Callable[..., Job], pictures: Path
) -> None:
    import shutil

    root = tmp_path / "data"
    shutil.copytree(pictures, root)
    (root / "ant" / "3.png").write_bytes(b"not a picture")
    (root / "cat" / "0.png").write_bytes((root / "cat" / "0.png").read_bytes()[:60])
    (root / "bee" / "lost.png").symlink_to(root / "nowhere.png")
    row = run_job(make_job("taps", root=root), tmp_path / "out")
    assert row is not None
    assert (row["n"], row["broken"]) == (22, 3)
    rows = list(csv.DictReader((make_job().folder(tmp_path / "out") / PREDICTIONS).read_text().splitlines()))
    assert len(rows) == 22
    assert len({row["t"] for row in rows}) == 22


def test_only_broken_images_are_an_error(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "x.png").write_bytes(b"no")
    with pytest.raises(DataError, match="No image of this stream can be read"):
        run_job(make_job("zero_shot", root=tmp_path / "data"), tmp_path / "out")


def test_late_and_wrong_answers_arrive(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    late = run_job(make_job(delay=4), tmp_path / "late")
    wrong = run_job(make_job(noise=1.0), tmp_path / "wrong")
    assert late is not None
    assert wrong is not None
    assert late["answered"] == late["asked"] - 4  # those asked last have no answer at the end
    events = [
        json.loads(line) for line in (make_job().folder(tmp_path / "wrong") / EVENTS).read_text().splitlines()
    ]
    rows = list(
        csv.DictReader((make_job().folder(tmp_path / "wrong") / PREDICTIONS).read_text().splitlines())
    )
    given = {event["t"]: event["label"] for event in events if event["event"] == "answered"}
    assert given
    assert all(given[int(row["t"])] != row["truth"] for row in rows if int(row["t"]) in given)
