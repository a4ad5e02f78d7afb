"""`taps label`: a folder through the page's service, stopped, taken up again, and written down."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from taps.asking.rules import RANDOM_SCORE
from taps.cli import label
from taps.data import load_dataset
from taps.data.load import check_readable
from taps.errors import DataError, SettingsError
from taps.learner import Learner
from taps.methods import features
from taps.model.clip import Clip
from taps.serve import folder, learner_log, stream_session
from taps.serve.folder import Folder
from taps.serve.records import StreamConfig
from taps.serve.review import calibrated
from taps.serve.service import Service
from taps.serve.store import Store
from taps.streams.log import ASKED, DRAWN
from taps.streams.options import SortOptions
from taps.streams.row import OPEN
from taps.streams.sequence import make_stream
from tests.serve.patient import LONG
from tests.serve.test_trouble import Break, commit_fails, database_gone, disk_full
from tests.walks import same_state

SETTINGS: dict[str, Any] = {"rate": 0.4, "acquisition": "margin"}
POOL = SETTINGS | folder.pool_settings(10, 24)


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
    beginning = StreamConfig("photos", names, "zero_shot+", settings, 0, None, 0.0)
    made.begin(beginning, given=classes is not None, questions=10)
    return made


def ending(place: Path, made: Folder) -> label.Ending:
    return label.Ending(place, made.dataset, SortOptions())


def answer(service: Service, dataset: Any, stop: threading.Event) -> None:
    """Somebody who knows the folders' names."""
    truth = {sample.path: dataset.classes[sample.label] for sample in dataset.samples}
    number = service.stream("photos").id
    while not stop.wait(0.02):
        for row in service.store.predictions(number, states=[OPEN]):
            service.send("photos", lambda live, row=row: live.label(row.id, truth[row.name], "test")).result()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Left(Exception):  # noqa: N818
    """Somebody goes home."""


def test_a_folder_is_labelled_left_and_taken_up_again(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    def leave(done: int) -> None:
        if done == 5:
            raise Left

    with Service(Store(str(tmp_path / "store")), tiny) as service, pytest.raises(Left):
        images(service, pictures).feed(leave)
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        with pytest.raises(SettingsError, match=r"other classes \(ant, bee.*\); give those to continue"):
            images(service, pictures, ["a", "b"])
        made, stop = images(service, pictures), threading.Event()
        annotator = threading.Thread(target=answer, args=(service, made.dataset, stop))
        annotator.start()
        try:
            label.stream_through(Console(file=io.StringIO()), made, ending(tmp_path / "store", made))
        finally:
            stop.set()
            annotator.join()
        check(service, made, tmp_path / "store", tiny)


class Person:
    """Somebody who answers while a block runs."""

    def __init__(self, service: Service, made: Folder) -> None:
        self.stop = threading.Event()
        self.thread = threading.Thread(target=answer, args=(service, made.dataset, self.stop))

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


def table(place: Path, name: str = "predictions.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((place / name).read_text().splitlines()))


def test_questions_are_chosen_among_all_images_and_all_are_predicted_again(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        with Person(service, made):
            label.stream_through(Console(file=io.StringIO()), made, ending(tmp_path / "store", made))
        rows, labels = table(tmp_path / "store"), table(tmp_path / "store", "labels.csv")
        assert [row["path"] for row in rows] == [made.name(t) for t in range(24)]
        assert len(labels) == sum(row["by"] == "person" for row in rows) == 10
        assert {row["who"] for row in labels} == {"test"}
        assert labels[0]["when"].startswith("20")
        asked = service.store.events(service.stream("photos").id, kind=ASKED)
        assert [event.value for event in asked] == 2 * [None, None, None, None, DRAWN]
        rows_of = {row.id: row for row in service.store.predictions(service.stream("photos").id)}
        assert [rows_of[event.prediction].score == RANDOM_SCORE for event in asked] == 2 * [
            *4 * [False],
            True,
        ]
        assert made.status().model_dump() | {"learner": ""} == {
            "phase": "done", "done": 24, "images": 24, "answered": 10, "wanted": 10,
            "files": str(tmp_path / "store"), "learner": "", "notes": [],
        }  # fmt: skip
        log = service.worker("photos").session.learner_log
        learner = Learner(tiny, made.dataset.classes, "zero_shot+", seed=0, **POOL)
        learner.load_state_dict(log.learner().state_dict())
        for t, row in enumerate(rows):  # ids are places here
            if row["by"] == "model":
                probs = learner.repredict_kept([t])[t]
                assert row["final"] == made.dataset.classes[probs.argmax()]
                assert float(row["final_probability"]) == pytest.approx(
                    calibrated(float(probs.max())), abs=1e-4
                )
        log.drop()
        log.snapshots.folder.rename(tmp_path / "lost")  # so that the whole log is replayed
        again = service.send("photos", lambda session: session.learner_log.learner().state_dict()).result()
        assert same_state(again, learner.state_dict())


def test_the_first_question_is_of_what_is_there_and_later_ones_wait_for_the_rest(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    """With nobody answering, images go on; with somebody quick, there are five images to a question."""
    put: list[int] = []
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        made.feed(lambda done: put.append(made.counts()["open"]))
    assert put == [0] + [1] * 4 + [2] * 3 + [3] * 17
    with Service(Store(str(tmp_path / "quick")), tiny) as service:
        made, truth = images(service, pictures, settings=POOL), {}
        truth = {sample.path: made.dataset.classes[sample.label or 0] for sample in made.dataset.samples}
        asked: list[int] = []

        def answer_all(done: int) -> None:
            for row in service.store.predictions(service.stream("photos").id, states=[OPEN]):
                act = lambda live, row=row: live.label(row.id, truth[row.name], "test")  # noqa: E731
                service.send("photos", act).result()
            asked.append(made.counts()["answered"])

        made.feed(answer_all)
    assert asked == [max(-(-seen // 5), 10 * seen // 24) for seen in range(25)]


def test_answers_and_questions_do_not_wait_for_the_image_that_is_encoded(
    pictures: Path, tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, go_on, views = threading.Event(), threading.Event(), Learner._views

    def slow(learner: Learner, image: Any) -> Any:
        if image.number == 12:
            busy.set()
            assert go_on.wait(LONG)
        return views(learner, image)

    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        monkeypatch.setattr(Learner, "_views", slow)
        feeding = threading.Thread(target=made.feed, args=(lambda done: None,))
        feeding.start()
        try:
            assert busy.wait(LONG)
            until(lambda: made.counts()["open"] == 3)
            number = service.stream("photos").id
            rows = service.store.predictions(number, states=[OPEN])
            for row in rows[:2]:
                service.send("photos", lambda live, row=row: live.label(row.id, 0, "test")).result(LONG)
            until(lambda: made.counts()["open"] == 3)
            assert made.counts()["seen"] == 12
        finally:
            go_on.set()
            feeding.join()


@pytest.mark.parametrize("place", [0, 12])
def test_images_after_a_broken_one_are_not_encoded_twice(
    pictures: Path, tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    encoded: list[Any] = []
    encode = features.frozen_features
    monkeypatch.setattr(features, "frozen_features", lambda *given: encoded.append(1) or encode(*given))
    copied = Path(shutil.copytree(pictures, tmp_path / "one broken"))
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, copied, settings=POOL)
        (copied / made.name(place)).write_bytes(b"no picture")
        encoded.clear()  # of the image it was tried with
        made.feed(lambda done: None)
        assert (made.counts()["seen"], list(made.broken)) == (23, [made.name(place)])
    assert len(encoded) == 23


def test_more_questions_are_asked_on_request_and_by_a_higher_rate(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        with Person(service, made):
            made.feed(lambda done: None)
            made.finish(lambda done: None)
            assert (made.counts()["answered"], made.ask()) == (10, False)
            assert made.more(2) == 12
            made.finish(lambda done: None)
        assert made.counts()["answered"] == 12
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        made.want(100)
        assert made.wanted == 24  # there are no more images
        seen = service.send("photos", lambda live: live.learner_log.learner().summary()["seen"]).result()
        made.feed(lambda done: None)
        now = service.send("photos", lambda live: live.learner_log.learner().summary()["seen"]).result()
        assert seen == now == 24  # nothing is encoded twice


def test_a_question_is_chosen_from_some_of_very_many_images(
    pictures: Path, tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    wanted = Learner.wanted_kept

    def noted(learner: Learner, ids: Any) -> Any:
        compared.append(len(ids))
        return wanted(learner, ids)

    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        monkeypatch.setattr(stream_session, "COMPARED", 5)
        monkeypatch.setattr(Learner, "wanted_kept", noted)
        made.feed(lambda done: None)
        with Person(service, made):
            made.finish(lambda done: None)
        assert made.counts()["answered"] == 10
    assert max(compared) == 5


def test_every_image_may_be_asked_about(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        made.feed(lambda done: None)
        known = made.beliefs()[-1].row  # is corrected, although nobody asked
        service.send("photos", lambda live: live.label(known.id, 0, "test", unasked=True)).result()
        made.want(24)
        with Person(service, made):
            made.finish(lambda done: None)
        assert (made.counts()["answered"], made.wanted) == (23, 23)


def test_skipped_images_are_not_asked_about_again_and_others_take_their_place(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        made.feed(lambda done: None)
        number, seen = service.stream("photos").id, set()
        while made.ask():
            for row in service.store.predictions(number, states=[OPEN]):
                assert row.id not in seen
                seen.add(row.id)
                service.send("photos", lambda live, row=row: live.skip(row.id, "test")).result()
    assert len(seen) == 24


def test_a_table_that_is_not_whole_says_what_it_lacks(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    def leave(done: int) -> None:
        if done == 5:
            raise Left

    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        with pytest.raises(Left):
            made.feed(leave)
        assert "Not whole: 19 images are not encoded yet; the same" in ending(tmp_path / "store", made).write(
            made
        )
    assert len(table(tmp_path / "store")) == 5


def test_images_are_sorted_by_what_is_believed_in_the_end(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, pictures, settings=POOL)
        with Person(service, made):
            made.feed(lambda done: None)
            made.finish(lambda done: None)
        sort = SortOptions(tmp_path / "sorted", sure=0.0)
        end = label.Ending(tmp_path / "store", made.dataset, sort, long=True)
        assert f"Sorted: {tmp_path / 'sorted'}" in end.write(made)
        wrong, *_ = (belief for belief in made.beliefs() if belief.by == "model")
        others = [name for name in made.dataset.classes if name != wrong.label]
        service.send("photos", lambda live: live.label(wrong.row.id, others[0], "me", unasked=True)).result()
        end.write(made)  # the image lies in its new folder alone
    files = [str(file.relative_to(tmp_path / "sorted")) for file in (tmp_path / "sorted").glob("*/*")]
    assert sorted(files) == sorted(
        f"{r['final']}/{r['path'].replace('/', '__')}" for r in table(tmp_path / "store")
    )
    assert "ended_by" in table(tmp_path / "store", "labels.csv")[0]


CLOSE = 0.02  # of two probabilities


def check(service: Service, made: Folder, folder: Path, clip: Clip) -> None:
    rows = list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))
    assert [row["path"] for row in rows] == [made.name(t) for t in range(len(made.order))]
    labels = {
        row["path"]: row["label"] for row in csv.DictReader((folder / "labels.csv").read_text().splitlines())
    }
    assert labels
    assert {row["path"]: row["final"] for row in rows if row["by"] == "person"} == labels
    assert made.status().learner == f"taps predict NEW_IMAGES --learner {service.store.files}"
    plain = Learner(clip, made.dataset.classes, "zero_shot+", seed=0, recent=100, **SETTINGS)
    plain.load_state_dict(service.worker("photos").session.learner_log.learner().state_dict())
    for t, row in enumerate(rows):
        if row["by"] == "model":
            said = plain.repredict(t, made.dataset.read(made.order[t]))
            # Neighbours when the image came have a share in it: of two close classes, either is first.
            assert said.probs[plain.class_index(row["final"])] > said.probability - CLOSE
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
        made.repredict_all(lambda done: None)
        made.write(tmp_path / "store")
    rows = {
        row["path"]: row
        for row in csv.DictReader((tmp_path / "store/predictions.csv").read_text().splitlines())
    }
    assert len(rows) == 26
    assert (rows["bee/half.png"]["by"], rows["bee/half.png"]["final"]) == ("nobody", "")
    assert rows[first]["final"] == rows[first]["predicted"]


@pytest.mark.parametrize("broken", [disk_full, database_gone, commit_fails])
def test_images_that_come_while_the_store_fails_are_put_on_record_later(
    pictures: Path, tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Break
) -> None:
    monkeypatch.setattr(learner_log, "RETRY", 0.0)
    monkeypatch.setattr(folder, "RETRY_SECONDS", 0.01)
    with Service(Store(str(tmp_path / "store")), tiny) as service, monkeypatch.context() as patch:
        made = images(service, pictures, settings={"rate": 0.01})
        healed = threading.Timer(1.0, patch.undo)

        def fail(done: int) -> None:
            if done == 5:
                broken(patch)
                healed.start()

        made.feed(fail)
        healed.join()
        made.write(tmp_path / "store")
    rows = list(csv.DictReader((tmp_path / "store/predictions.csv").read_text().splitlines()))
    assert [row["path"] for row in rows] == [made.name(t) for t in range(24)]
    assert not made.broken


@pytest.mark.parametrize("same", ["ant/0", "ant/1"], ids=["one content", "two contents"])
def test_every_path_has_its_row_however_long_and_alike_they_are(
    pictures: Path, tiny: Clip, tmp_path: Path, same: str
) -> None:
    deep = f"{'d' * 150}/{'e' * 100}"
    for name, source in ((f"ant/{deep}/a", "ant/0"), (f"ant/{deep}/b", same), ("bee/c", "bee/0")):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pictures / f"{source}.png", tmp_path / "photos" / f"{name}.png")
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, tmp_path / "photos", settings={"rate": 0.01})
        made.feed(lambda done: None)
        made.write(tmp_path / "store")
    rows = list(csv.DictReader((tmp_path / "store/predictions.csv").read_text().splitlines()))
    assert [row["path"] for row in rows] == [made.name(t) for t in range(3)]


def test_a_method_that_never_asks_is_refused() -> None:
    with pytest.raises(SettingsError, match="never asks"):
        label.asking_settings("zero_shot", 4, 3, 30)
    assert label.asking_settings("taps", 4, 3, 30) == {"rate": 0.1, "expected": 30, "views": 4}
    found = label.asking_settings("zero_shot+", 4, 3, 30)
    assert found == {"rate": 0.1, "expected": 30, **folder.pool_settings(3, 30)}


def test_what_was_begun_and_what_is_left_out_is_said(
    pictures: Path, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(place: Path, clip: Clip, begin: Any, *_: object, **more: object) -> None:
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
    assert "begun" not in here(*command, "--rate", "0.5")[1]  # more questions are no other beginning
    said = here(*command[:-1], "view_ensemble+")[1]
    assert "Goes on as it was begun: zero_shot+ with" in said


def test_a_number_of_questions_is_enough(pictures: Path, tmp_path: Path, here: Any) -> None:
    assert [label.LabelOptions("photos", budget=9).questions(images) for images in (6, 30)] == [6, 9]
    with pytest.raises(SettingsError, match="--budget is 0; it must be 1 or more"):
        label.LabelOptions("photos", budget=0)
    with pytest.raises(SettingsError, match="give one of them"):
        label.LabelOptions("photos", budget=3, rate=0.1)
    out = tmp_path / "run"
    command = ("run", pictures, "--model", "tiny", "--method", "zero_shot+", "--budget", "6", "--out", out)
    code, said, err = here(*command)
    assert code == 0, err
    summary = json.loads((out / "summary.json").read_text())
    assert 4 <= summary["asked"] <= 6  # of 24: at the usual rate it would be one
    assert summary["learner"]["accuracy"]["said"] in " ".join(said.split())


def test_quick_and_views_contradict_each_other() -> None:
    assert label.LabelOptions("photos", quick=True).quick
    with pytest.raises(SettingsError, match="--quick and --views"):
        label.LabelOptions("photos", quick=True, views=8)


def test_known_answers_of_what_is_not_there_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "gold.csv"
    given = (file, ["a/1.png", "b/2.png"], ["a", "b"])
    for text, problem in (
        ("path\na/1.png\n", "needs the columns path and label"),
        ("path,label\na/9.png,a\n", "unknown images: a/9.png"),
        ("path,label\na/1.png,c\n", "unknown classes: c"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsError, match=problem):
            label.read_known(*given)
    file.write_text("path,label\na/1.png,a\n")
    assert label.read_known(*given) == {"a/1.png": "a"}
    with pytest.raises(SettingsError, match="cannot be read"):
        label.read_known(tmp_path / "other.csv", *given[1:])


def begun(pictures: Path, tiny: Clip, tmp_path: Path) -> Path:
    """A copy of the pictures that was labelled to the end, ten questions answered."""
    copy = shutil.copytree(pictures, tmp_path / "photos")
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, copy, settings=POOL)
        with Person(service, made):
            label.stream_through(Console(file=io.StringIO()), made, ending(tmp_path / "store", made))
    return copy


def through(service: Service, made: Folder, place: Path, sort: SortOptions = SortOptions()) -> str:
    """Go on with it; what is printed."""
    said = io.StringIO()
    with Person(service, made):
        label.stream_through(Console(file=said), made, label.Ending(place, made.dataset, sort))
    return said.getvalue()


def test_an_answer_to_a_picture_that_was_replaced_is_no_answer_to_the_new_one(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    copy = begun(pictures, tiny, tmp_path)
    old = {row["path"]: row["label"] for row in table(tmp_path / "store", "labels.csv")}
    name = next(iter(old))
    other = next(each for each in ("ant/7.png", "bee/7.png", "cat/7.png") if each != name)
    before, now = (copy / name).read_bytes(), (copy / other).read_bytes()
    assert before != now
    (copy / name).write_bytes(now)
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        said = through(service, made := images(service, copy, settings=POOL), tmp_path / "store")
        assert "same name since the last time: 1." in said
        rows = [row for row in service.store.predictions(service.stream("photos").id) if row.name == name]
        assert [row.image for row in rows] == [hashlib.sha256(data).hexdigest() for data in (before, now)]
        assert [row.state for row in rows] == ["answered", "answered"]  # it was asked about again
        assert [belief.row.id for belief in made.beliefs() if belief.row.name == name] == [rows[1].id]
        assert made.counts()["answered"] == len(table(tmp_path / "store", "labels.csv")) == 10
        assert "since the last time" not in through(service, made, tmp_path / "store")  # said once
    (copy / name).write_bytes(before)  # the old picture is back, and so is its answer
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, copy, settings=POOL)
        assert "since the last time" not in through(service, made, tmp_path / "store")
        assert [belief.row.id for belief in made.beliefs() if belief.row.name == name] == [rows[0].id]


def test_nobody_is_asked_about_a_picture_that_was_replaced(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    copy = shutil.copytree(pictures, tmp_path / "photos")
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, copy, settings=POOL)
        made.feed(lambda done: None)
        made.ask()
        for name in map(made.name, range(24)):
            (copy / name).write_bytes((copy / name).read_bytes() + b"more")  # still an image, another file
        made.feed(lambda done: None)
        ids = {row.id for row in service.store.predictions(service.stream("photos").id)[24:]}
        made.more(24)
        asked = set()
        while made.ask():
            for row in service.store.predictions(service.stream("photos").id, states=[OPEN]):
                asked.add(row.id)
                service.send("photos", lambda live, row=row: live.skip(row.id, "test")).result()
    assert asked == ids


def test_images_that_are_gone_are_told_of_and_lack_nothing(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    copy = begun(pictures, tiny, tmp_path)
    answered = {row["path"] for row in table(tmp_path / "store", "labels.csv")}
    lost = [path for path in (row["path"] for row in table(tmp_path / "store")) if path not in answered][:6]
    lost += sorted(answered)[:1]
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, copy, settings=POOL)
        made.feed(lambda done: None)
        made.final.clear()
        for path in lost[:3]:  # while it is labelled
            (copy / path).unlink()
        said = through(service, made, tmp_path / "store", SortOptions(tmp_path / "sorted"))
        assert "3 images are gone" in said
        assert "Not whole" not in said
    for path in lost[3:]:
        (copy / path).unlink()
    shutil.rmtree(tmp_path / "sorted")
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        # As if the learner kept none of their features any more.
        made = images(service, copy, settings=POOL)
        said = through(service, made, tmp_path / "store", SortOptions(tmp_path / "sorted"))
        assert "7 images are gone" in said
        assert made.status().notes == [made.gone()]
        assert "Not whole" not in said
    assert len(table(tmp_path / "store")) == len(list((tmp_path / "sorted").rglob("*.png"))) == 17
    assert {row["path"] for row in table(tmp_path / "store", "labels.csv")} >= answered


def test_gone_images_that_the_learner_forgot_are_not_waited_for(
    pictures: Path, tiny: Clip, tmp_path: Path
) -> None:
    copy = shutil.copytree(pictures, tmp_path / "photos")
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = images(service, copy, settings=POOL | {"recent": 4})
        made.feed(lambda done: None)
        shutil.rmtree(copy / "ant")
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        assert "Not whole" not in through(service, images(service, copy), tmp_path / "store")


def test_images_of_which_none_can_be_read_are_refused(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.jpg"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text("no image")
    with pytest.raises(DataError, match="None of the 2 images"):
        check_readable(load_dataset(str(tmp_path / "in")))
