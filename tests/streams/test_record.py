"""What a run writes down, cell by cell; when it saves; what a second opening finds."""

from __future__ import annotations

import errno
import json
import math
import os
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from taps import Learner
from taps.errors import StateError
from taps.model.clip import Clip
from taps.streams.record import COLUMNS, EVENTS, PREDICTIONS, Pace, Record, read_events, read_predictions
from taps.streams.score import ImageScore, RunningScore
from taps.types import OUTSIDE, PixelArray, Prediction
from tests.walks import same_state

CLASSES = ("ant", "bee", "cat")
BEE = ImageScore(1)


def prediction(ask: bool = True) -> Prediction:
    probs = np.array([0.125, 0.6251234567, 0.25], np.float32)
    return Prediction(
        41, 1, "bee", probs, 1.23456789, 0.987654321, ask, 0.0123456789, 0.75, why="score" if ask else ""
    )


def test_every_cell_of_a_row(tmp_path: Path) -> None:
    with closing(Record(tmp_path)) as record:
        record.row(7, "a/b.png", prediction(), ImageScore(0, 2, hit=True), CLASSES, 3)
        record.row(8, 'c,"d".png', prediction(False), ImageScore(3, 3, hit=False), (*CLASSES, "dog"))
        record.row(9, "e.png", prediction(False), BEE, CLASSES)
        rejected = replace(prediction(False), reject=0.25)
        record.row(10, "f.png", rejected, ImageScore(1, OUTSIDE), CLASSES)
        record.row(11, "g.png", prediction(), ImageScore(1, denied=True), CLASSES)
    assert (tmp_path / PREDICTIONS).read_text().splitlines() == [
        "path,predicted,probability,final,final_probability,final_correct,final_answered,truth,correct,"
        "asked,why,t,score,threshold,view_entropy,reject,seconds,top5,of_truth,squares,outside,phase,truth_index",
        "a/b.png,ant,0.625123,,,,,cat,0,1,score,7,0.75,0.987654,1.23457,0,0.012346,1,0.25,0.468904,0,3,2",
        '"c,""d"".png",dog,0.625123,,,,,dog,1,0,,8,0.75,0.987654,1.23457,0,0.012346,0,0,0.468904,0,0,3',
        "e.png,bee,0.625123,,,,,,,0,,9,0.75,0.987654,1.23457,0,0.012346,,,0.468904,0,0,",
        "f.png,bee,0.625123,,,,,,,0,,10,0.75,0.987654,1.23457,0.25,0.012346,,,0.468904,1,0,",
        "g.png,bee,0.625123,,,,,,0,1,score,11,0.75,0.987654,1.23457,0,0.012346,,,0.468904,0,0,",
    ]
    assert ",".join(COLUMNS) == (tmp_path / PREDICTIONS).read_text().splitlines()[0]


@pytest.mark.parametrize("name", ["a\rb.png", "a\nb.png", "ä\udcff.png", " x ,.png"])
def test_any_name_comes_back_from_its_row(tmp_path: Path, name: str) -> None:
    with closing(Record(tmp_path)) as record:
        record.row(0, name, prediction(), BEE, CLASSES)
        record.row(1, "plain.png", prediction(), BEE, CLASSES)
    rows = read_predictions(tmp_path)
    assert [row["path"] for row in rows] == [name, "plain.png"]
    assert all(tuple(row) == COLUMNS for row in rows)
    data = (tmp_path / PREDICTIONS).read_bytes()
    assert b"\r\n" not in data  # each line ends as text files here do
    assert (
        data.splitlines()[-1]
        == b"plain.png,bee,0.625123,,,,,,,1,score,1,0.75,0.987654,1.23457,0,0.012346,,,0.468904,0,0,"
    )
    assert data.count(b"\n") == 3 + name.count("\n")
    (tmp_path / PREDICTIONS).write_bytes(data[:-9])  # cut off by a kill
    assert [row["path"] for row in read_predictions(tmp_path)] == [name]


def test_a_committed_prediction_is_told_whole_and_at_once(tmp_path: Path) -> None:
    with closing(Record(tmp_path)) as record:
        record.commit(5, "ä.png", prediction(), CLASSES)
        record.event("unreadable", t=6, error="no image")
        events = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert events == [
        {
            "event": "predicted",
            "t": 5,
            "path": "ä.png",
            "id": 41,
            "index": 1,
            "label": "bee",
            "top": [["bee", float(np.float32(0.6251234567))], ["cat", 0.25], ["ant", 0.125]],
            "entropy": 1.23456789,
            "threshold": 0.987654321,
            "score": 0.75,
            "reject": 0.0,
            "asked": True,
            "question": "class",
            "why": "score",
            "seconds": 0.0123456789,
        },
        {"event": "unreadable", "t": 6, "error": "no image"},
    ]
    assert list(read_events(tmp_path)) == events


@pytest.mark.parametrize(("threshold", "ask"), [(math.inf, False), (-math.inf, True)])
def test_a_threshold_without_end_is_null_in_the_file_and_comes_back(
    tmp_path: Path, threshold: float, ask: bool
) -> None:
    said = replace(prediction(ask), threshold=threshold, score=math.nan)
    with closing(Record(tmp_path)) as record:
        record.commit(5, "5.png", said, CLASSES)
        record.row(5, "5.png", said, BEE, CLASSES)
    line = json.loads((tmp_path / EVENTS).read_text(), parse_constant=pytest.fail)
    assert (line["threshold"], line["score"]) == (None, None)
    (row,) = read_predictions(tmp_path)
    assert (row["threshold"], row["score"], row["view_entropy"]) == ("", "", "1.23457")
    (event,) = read_events(tmp_path)
    assert event["threshold"] == threshold


def test_an_older_file_has_infinity_itself(tmp_path: Path) -> None:
    (tmp_path / EVENTS).write_text('{"event": "predicted", "threshold": Infinity, "asked": false}\n')
    (event,) = read_events(tmp_path)
    assert event["threshold"] == math.inf


def test_a_line_that_was_cut_off_is_no_event(tmp_path: Path) -> None:
    assert list(read_events(tmp_path)) == []
    (tmp_path / EVENTS).write_text('{"t": 1}\n{"t": "ä\\u2028"}\n{"t": 3', encoding="utf-8")
    assert list(read_events(tmp_path)) == [{"t": 1}, {"t": "ä\u2028"}]
    (tmp_path / EVENTS).write_text('{"t": 1}\n')
    assert list(read_events(tmp_path)) == [{"t": 1}]


class Clock:
    """Seconds that pass when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A learner that takes its time to be saved."""

    def __init__(self, inner: Learner, clock: Clock, seconds: float) -> None:
        self.inner, self.clock, self.seconds, self.clip, self.saves = inner, clock, seconds, inner.clip, 0

    def save(self, *given: Any) -> None:
        self.inner.save(*given)
        self.clock.now += self.seconds
        self.saves += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("taps.streams.record.time.perf_counter", clock)
    return clock


def saved_after(record: Record, learner: Any, steps: list[tuple[int, float]], clock: Clock) -> list[int]:
    """Positions at which the record saved, of images that come so many seconds apart."""
    saved, running = [], RunningScore()
    for images, seconds in steps:
        running.position += images
        clock.now += seconds
        before = learner.saves
        record.checkpoint_if_due(learner, running)
        if learner.saves > before:
            saved.append(running.position)
    return saved


@pytest.mark.parametrize(
    ("pace", "cost", "steps", "saved"),
    [
        (Pace(every=3, pause=0.0), 9.0, [(1, 0.0)] * 9, [3, 6, 9]),  # images alone, whatever it costs
        (Pace(every=1, pause=2.0), 0.0, [(1, 1.0)] * 6, [2, 4, 6]),  # two seconds apart
        (Pace(), 0.0, [(1, 1.0)] * 6, [2, 4, 6]),
        (Pace(every=1, pause=2.0, worth=10.0), 1.0, [(1, 2.0)] * 12, [1, 6, 11]),  # ten times its own time
        (Pace(), 0.25, [(1, 2.5)] * 12, [1, 6, 11]),  # fifty times
        (Pace(every=4, pause=2.0), 0.0, [(1, 1.0)] * 9, [4, 8]),
        (Pace(every=0), 0.0, [(1, 9.0)] * 4, []),
    ],
)
def test_checkpoints_are_as_far_apart_as_the_pace_says(
    tmp_path: Path,
    tiny: Clip,
    clock: Clock,
    pace: Pace,
    cost: float,
    steps: list[tuple[int, float]],
    saved: list[int],
) -> None:
    learner = Slow(Learner(tiny, CLASSES, "zero_shot"), clock, cost)
    with closing(Record(tmp_path, pace)) as record:
        assert saved_after(record, learner, steps, clock) == saved
        assert record.position == (saved[-1] if saved else 0)


def test_the_highest_memory_is_kept(tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([5.0, 9.0, 7.0])
    asked: list[Any] = []

    def peak(device: Any) -> float:
        asked.append(device)
        return next(peaks)

    begun: list[Any] = []
    monkeypatch.setattr("taps.streams.record.run_memory_mb", peak)
    monkeypatch.setattr("taps.streams.record.first_image_done", begun.append)
    learner, running, seen = Learner(tiny, CLASSES, "zero_shot"), RunningScore(), []
    with closing(Record(tmp_path)) as record:
        for _ in range(3):
            record.checkpoint_if_due(learner, running)
            record.checkpoint(learner, running)
            seen.append((running.peak_mem_mb, record.running().peak_mem_mb))
    assert seen == [(5.0, 5.0), (9.0, 9.0), (9.0, 9.0)]
    assert asked == [tiny.device] * 3
    assert begun == [tiny.device]  # once, after the first image


def test_what_a_second_opening_finds(
    tmp_path: Path, tiny: Clip, picture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(tiny, CLASSES, "taps", views=4, policy="fixed", tau0=0.0, buffer=3)
    image: PixelArray = picture(0)
    learner.learn_one(learner.predict_one(image).id, 1)
    running = RunningScore(
        position=3, broken=1, known=2, correct=1, hits=2, asked=1, answered=1, decode_s=0.5
    )
    with closing(Record(tmp_path)) as record:
        assert record.learner(tiny) is None
        assert record.saved is None
        assert record.running() == RunningScore()
        assert record.position == 0
        record.row(0, "0.png", prediction(), BEE, CLASSES)
        record.event("answered", id=0)
        record.checkpoint(learner, running)
        record.row(1, "1.png", prediction(), BEE, CLASSES)  # after the checkpoint: done again
        record.event("predicted", id=1)
    with closing(Record(tmp_path)) as again:
        assert again.position == 3
        assert asdict(again.running()) == asdict(running)
        found = again.learner(tiny)
        assert found is not None
        assert same_state(found.state_dict(), learner.state_dict())
        assert found.clip is tiny
        assert [event["event"] for event in read_events(tmp_path)] == ["answered"]
        assert len((tmp_path / PREDICTIONS).read_text().splitlines()) == 2
        again.row(1, "1.png", prediction(), BEE, CLASSES)
        again.forget()
    lines = (tmp_path / PREDICTIONS).read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["path", "0.png", "1.png"]
    assert {path.name for path in tmp_path.glob("[!.]*")} == {PREDICTIONS, EVENTS}
    with closing(Record(tmp_path)) as fresh:  # no checkpoint: begun anew
        assert fresh.position == 0
        assert list(read_events(tmp_path)) == []


@pytest.mark.parametrize("stopped", ["before the checkpoint", "after it", "not at all"])
def test_a_replaced_row_and_its_checkpoint_come_together(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    learner, running = Learner(tiny, CLASSES, "zero_shot"), RunningScore(position=2)
    record = Record(tmp_path)
    record.row(0, "a\rb.png", prediction(), ImageScore(1, 2, hit=True), CLASSES)
    record.row(1, "c\udcff\rd.png", prediction(), BEE, CLASSES)  # bytes that are no text, a lone return
    record.checkpoint(learner, running)
    before = (tmp_path / PREDICTIONS).read_bytes()
    record.replace_row(0, "a\rb.png", prediction(), ImageScore(1, 1, hit=True), CLASSES)
    kill = {"before the checkpoint": "Learner.save", "after it": "Record._take_the_place"}
    if stopped in kill:
        with monkeypatch.context() as patch:
            patch.setattr(f"taps.streams.record.{kill[stopped]}", Mock(side_effect=InterruptedError))
            with pytest.raises(InterruptedError):
                record.checkpoint(learner, running)
    else:
        record.checkpoint(learner, running)
        record.row(2, "d.png", prediction(), BEE, CLASSES)
    record.close()
    with closing(Record(tmp_path)) as again:
        assert again.position == 2
    after = (tmp_path / PREDICTIONS).read_bytes()
    assert (after == before) == (stopped == "before the checkpoint")
    if after != before:
        cells = {  # truth and correct; of_truth; truth_index
            b'"","cat","0"': b'"","bee","1"',
            b'"0.25","0.468904","0","0","2"': b'"0.625123","0.468904","0","0","1"',
        }
        for old, new in cells.items():
            before = before.replace(old, new)
        assert after == before
    assert {path.name for path in tmp_path.glob("[!.]*")} == {PREDICTIONS, EVENTS, "state"}


def test_files_are_on_the_disk_when_a_checkpoint_speaks_of_them(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[int, int] = {}
    fsync = os.fsync

    def spy(file: int) -> None:
        fsync(file)
        sizes[os.fstat(file).st_ino] = os.fstat(file).st_size

    monkeypatch.setattr(os, "fsync", spy)
    with closing(Record(tmp_path)) as record:
        record.row(0, "0.png", prediction(), BEE, CLASSES)
        record.event("answered", id=0)
        for _ in range(2):
            record.checkpoint(Learner(tiny, CLASSES, "zero_shot"), RunningScore(position=1))
            for name in (PREDICTIONS, EVENTS):
                status = (tmp_path / name).stat()
                assert sizes[status.st_ino] == status.st_size > 0, name
            record.replace_row(0, "0.png", prediction(), ImageScore(1, 2), CLASSES)
            sizes.clear()


@pytest.mark.parametrize("name", [PREDICTIONS, EVENTS])
def test_damage_is_told_with_what_to_do(tmp_path: Path, tiny: Clip, name: str) -> None:
    with closing(Record(tmp_path)) as record:
        record.event("answered", id=0)
        record.checkpoint(Learner(tiny, CLASSES, "zero_shot"), RunningScore(position=1))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-2])
    with pytest.raises(StateError) as caught:
        Record(tmp_path)
    told = str(caught.value)
    assert f"{name} is damaged (its checksum does not match)" in told
    assert told.endswith(f"); remove {tmp_path} to do this run again.")


def test_a_run_that_was_never_saved_has_nothing_to_forget(tmp_path: Path) -> None:
    with closing(Record(tmp_path)) as record:
        record.forget()
        record.forget()


@pytest.mark.parametrize("fails", ["write", "truncate"])
def test_files_are_closed_where_they_cannot_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    opened = []

    class Full:
        """A file on a full disk, of which one operation fails."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __getattr__(self, name: str) -> Any:
            if name == fails:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return getattr(self.file, name)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

    original = Path.open

    def spy(path: Path, mode: str = "r", **given: Any) -> Any:
        file = original(path, mode, **given)
        if mode != "ab+":
            return file
        opened.append(file)
        return Full(file)

    monkeypatch.setattr(Path, "open", spy)
    with pytest.raises(StateError, match=r"predictions\.csv cannot be written .*make room"):
        Record(tmp_path)
    assert opened
    assert all(file.closed for file in opened)


def test_a_table_of_before_goes_on_in_its_own_columns(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "t,path,predicted,label,correct,probability,entropy,asked,of_label,truth,final"
    given = (prediction(), ImageScore(0, 2, hit=True), CLASSES)
    with monkeypatch.context() as patch, closing(Record(tmp_path)) as record:
        patch.setattr("taps.streams.record.HEADER", f"{old}\n".encode())
        record.files[PREDICTIONS].close()
        (tmp_path / PREDICTIONS).unlink()
        with closing(Record(tmp_path)) as before:
            before.row(0, "a.png", *given)
            before.checkpoint(Learner(tiny, CLASSES, "zero_shot"), RunningScore(position=1))
    with closing(Record(tmp_path)) as after:
        after.row(1, "b.png", *given)
    lines = (tmp_path / PREDICTIONS).read_text().splitlines()
    assert lines == [old, *(f"{t},{n}.png,ant,cat,0,0.625123,1.23457,1,0.25,2," for t, n in enumerate("ab"))]
    for row in read_predictions(tmp_path):
        found = [row[name] for name in ("truth", "truth_index", "of_truth", "view_entropy")]
        assert found == ["cat", "2", "0.25", "1.23457"]
