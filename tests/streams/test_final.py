"""The end of a run: what is believed of every image by then, and what it is counted as."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps import Learner
from taps.asking.base import Decision
from taps.asking.rules import RANDOM_SCORE
from taps.data import load_dataset
from taps.learner import checkpoint
from taps.model.clip import Clip
from taps.streams.final import final_accuracy, forget_final, repredict_all
from taps.streams.loop import Session, follow
from taps.streams.record import ROWS, Pace, Record, read_events, read_predictions, read_rows
from taps.streams.score import row_of
from taps.streams.sequence import make_stream
from taps.study.evaluate.jobs import Job, run_job
from taps.types import PixelArray

HEAD: dict[str, Any] = {"rate": 0.4}


def session_in(
    folder: Path, clip: Clip, images: Path, method: str, limit: int | None = None, **settings: Any
) -> Session:
    """Of a run over a folder, from its last checkpoint where there is one."""
    folder.mkdir(exist_ok=True)
    record = Record(folder, Pace(every=6, pause=0))
    dataset = load_dataset(str(images))
    learner = record.learner(clip) or Learner(clip, dataset.classes, method, **settings)
    return Session(learner, make_stream(dataset, 0, limit=limit), record, record.running())


@pytest.mark.parametrize("method", ["zero_shot+", "tip_adapter", "taps"])
def test_the_rows_hold_what_the_learner_says_in_the_end(
    tiny: Clip, pictures: Path, tmp_path: Path, method: str
) -> None:
    settings = dict(HEAD)
    if method == "taps":
        settings |= {"views": 2, "policy": "random"}
    session = session_in(tmp_path, tiny, pictures, method, limit=24, **settings)
    with closing(session.record):
        follow(session)
        first = [row["predicted"] for row in read_predictions(tmp_path)]
        assert repredict_all(session)
    answered = {row.seq: row.answer for row in read_rows(tmp_path) if row.answer is not None}
    rows = read_predictions(tmp_path)
    assert 0 < len(answered) < len(rows)
    assert [row["predicted"] for row in rows] == first
    for id, row in enumerate(rows):
        t, label = int(row["t"]), session.stream.dataset.classes[int(row["truth_index"])]
        if t in answered:
            assert (row["final"], row["final_probability"]) == (answered[t], "1")
        elif method != "zero_shot+":  # no neighbour has a vote: to look at the image again says the same
            said = session.learner.repredict(id, session.stream.image(t))
            assert row["final"] == said.label
            assert float(row["final_probability"]) == pytest.approx(said.probability, abs=5e-3)
        assert row["final_correct"] == str(int(row["final"] == label))
        assert row["final_answered"] == str(int(t in answered))
    right = [row["final_correct"] == "1" for row in rows]
    assert final_accuracy(rows, answered=True) == pytest.approx(np.mean(right))
    left = [right for row, right in zip(rows, right, strict=True) if int(row["t"]) not in answered]
    assert final_accuracy(rows) == pytest.approx(np.mean(left))
    assert np.mean(left) < np.mean(right)  # the answers are all right


def test_a_head_predicts_from_what_is_kept_as_if_it_kept_all(
    tiny: Clip, picture: Callable[[int], PixelArray]
) -> None:
    """With all images among the recent ones, and neighbours as they are now, nothing else is known."""
    learner = Learner(
        tiny, ["cat", "dog", "owl"], "view_ensemble+", recent=60, neighbourhood="now", views=2, rate=0.2
    )
    rows = []
    for number in range(40):
        said = learner.predict_one(picture(number))
        row = row_of(learner, said.id)
        assert row is not None
        rows.append(row)
        if said.ask:
            learner.learn_one(said.id, number % 3)
    before = learner.state_dict()["tensors"]
    told = list(learner.method.predict_rows(rows))
    kept = learner.repredict_kept(range(40))
    assert len(kept) >= 25
    for id, probs in kept.items():
        np.testing.assert_allclose(told[id], probs, atol=1e-6)
    after = learner.state_dict()["tensors"]
    assert all((after[name] == value).all() for name, value in before.items())


def test_classes_added_later_are_predicted_too(tiny: Clip, picture: Callable[[int], PixelArray]) -> None:
    learner = Learner(tiny, ["cat", "dog"], "zero_shot+", rate=1.0)
    rows = []
    for number in range(6):
        said = learner.predict_one(picture(number))
        row = row_of(learner, said.id)
        assert row is not None
        rows.append(row)
        if number == 2:
            learner.add_class("owl")
        learner.learn_one(said.id, 0)
    told = np.stack(list(learner.method.predict_rows(rows)))
    assert told.shape == (6, 3)
    np.testing.assert_allclose(told.sum(axis=1), 1, atol=1e-5)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tiny: Clip, pictures: Path, tmp_path: Path) -> None:
    whole = session_in(tmp_path / "whole", tiny, pictures, "zero_shot+", limit=20, **HEAD)
    with closing(whole.record):
        follow(whole)
        repredict_all(whole)
    for stop_at in (7, 20):
        part = session_in(tmp_path / "part", tiny, pictures, "zero_shot+", limit=20, **HEAD)
        with closing(part.record):
            follow(part, stop=lambda at=stop_at, part=part: part.running.position >= at)  # type: ignore[misc]
            if stop_at == 20:
                repredict_all(part)
    timeless = [
        [{name: cell for name, cell in row.items() if name != "seconds"} for row in read_predictions(folder)]
        for folder in (tmp_path / "whole", tmp_path / "part")
    ]
    assert timeless[0] == timeless[1]
    longer = session_in(tmp_path / "part", tiny, pictures, "zero_shot+", limit=24, **HEAD)
    with closing(longer.record):
        follow(longer)
        held = [row["final"] != "" for row in read_predictions(tmp_path / "part")]
        assert held == [True] * 20 + [False] * 4
        forget_final(longer)
        assert not any(row["final"] for row in read_predictions(tmp_path / "part"))
        repredict_all(longer)
    assert all(row["final"] for row in read_predictions(tmp_path / "part"))


def test_the_checkpoint_before_knows_of_the_new_file(tiny: Clip, pictures: Path, tmp_path: Path) -> None:
    session = session_in(tmp_path, tiny, pictures, "zero_shot+", limit=12, **HEAD)
    with closing(session.record):
        follow(session)
        repredict_all(session)
    (tmp_path / "state" / checkpoint.INDEX).write_text("damaged")
    with closing(session_in(tmp_path, tiny, pictures, "zero_shot+", limit=12).record) as record:
        assert record.position == 12


def test_nothing_is_predicted_again_where_nobody_answered(tiny: Clip, pictures: Path, tmp_path: Path) -> None:
    session = session_in(tmp_path, tiny, pictures, "zero_shot", limit=4)
    with closing(session.record):
        follow(session)
        assert not repredict_all(session)
    assert not (tmp_path / ROWS).exists()
    assert final_accuracy(read_predictions(tmp_path)) is None


def test_an_evaluation_says_both_where_nothing_is_looked_at_again(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    row = run_job(make_job("zero_shot+", settings={"rate": 0.4}), tmp_path, pace=Pace(every=6, pause=0))
    assert row is not None
    folder = next(tmp_path.glob("runs/*/*/*"))
    rows = read_predictions(folder)
    assert row["measures"]["top1"] == pytest.approx(np.mean([row["correct"] == "1" for row in rows]))
    right = [row["final_correct"] == "1" for row in rows]
    answered = {event["t"] for event in read_events(folder) if event["event"] == "answered"}
    assert 0 < len(answered) < len(rows)
    assert row["measures"]["delivered"] == pytest.approx(np.mean(right))
    left = [right[t] for t in range(len(rows)) if t not in answered]
    assert row["measures"]["final"] == pytest.approx(np.mean(left))
    assert not (folder / ROWS).exists()
    tuned = run_job(make_job("taps", settings={"views": 2, "rate": 0.4, "policy": "random"}), tmp_path)
    assert tuned is not None
    assert "final" not in tuned["measures"]


def test_a_row_says_why_its_image_was_asked_about(tiny: Clip, pictures: Path, tmp_path: Path) -> None:
    session = session_in(tmp_path, tiny, pictures, "zero_shot+", rate=0.5, explore=0.5, acquisition="margin")
    with closing(session.record):
        follow(session)
    rows = read_predictions(tmp_path)
    asked = [row["why"] for row in rows if row["asked"] == "1"]
    assert {row["why"] for row in rows if row["asked"] == "0"} == {""}
    assert {"random"} < set(asked) <= {"random", "score", "owed"}
    assert max(float(row["score"]) for row in rows) <= 1.0  # a margin, whoever drew the image
    # The service's record has a mark of its own instead.
    drawn = {row.seq for row in read_rows(tmp_path) if row.score == RANDOM_SCORE}
    assert drawn == {int(row["t"]) for row in rows if row["why"] == "random"}
    whys = [Decision(True, limit, random=drawn).why for limit, drawn in ((-np.inf, False), (0.1, False))]
    assert whys == ["owed", "score"]


def test_a_run_of_fewer_columns_is_finished_by_their_names(
    tiny: Clip, pictures: Path, tmp_path: Path
) -> None:
    """As an earlier version wrote it: neither `why` nor `final_answered`."""
    session = session_in(tmp_path, tiny, pictures, "zero_shot+", **HEAD)
    with closing(session.record):
        follow(session)
        held = session.record._written
        late = ("why", "final_answered")
        session.record._written = lambda: [  # type: ignore[method-assign]
            {name: cell for name, cell in row.items() if name not in late} for row in held()
        ]
        repredict_all(session)
    rows = read_predictions(tmp_path)
    assert all(row["final"] and row["final_answered"] for row in rows)
    assert {row["why"] for row in rows} == {""}
