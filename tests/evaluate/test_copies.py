"""Evaluations at addresses of fsspec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Timer
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

from taps.cli.main import app
from taps.errors import DataError, SettingsError
from taps.evaluate import copies
from taps.evaluate.copies import Copies, attempt_there, working_folder
from taps.evaluate.evaluate import evaluate
from taps.evaluate.jobs import Job, run_job
from taps.evaluate.options import Execution
from taps.session.record import Pace
from tests.evaluate.buckets import Buckets

URL = "memory://bucket/field"
STORE = "bucket://mine/field"


@pytest.fixture
def bucket() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/bucket", recursive=True)


@pytest.fixture
def store() -> Iterator[type[Buckets]]:
    """An object store with one bucket, `mine`."""
    fsspec.register_implementation("bucket", Buckets, clobber=True)
    Buckets.buckets.add("mine")
    yield Buckets
    Buckets.kept.clear()
    Buckets.buckets.clear()
    Buckets.meet = lambda name: None
    Buckets.clear_instance_cache()


def names_in(files: Any) -> set[str]:
    return {name.removeprefix("/bucket/field/") for name in files.find("/bucket/field")}


def test_an_evaluation_at_an_address_has_the_files_of_one_here_and_goes_on(
    bucket: Any, tmp_path: Path, make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taps.evaluate.pool.run_job", partial(run_job, pace=Pace(pause=0, worth=0)))
    jobs = [make_job("zero_shot", limit=5), make_job("coop")]  # the second has no prompts: it fails
    with working_folder(URL) as (folder, there):
        evaluate(jobs, folder, copies=there)
        done = names_in(bucket)  # before the end
    assert "runs/pictures/zero_shot/1/row.json" in done
    assert not folder.exists()
    evaluate(jobs, tmp_path)
    here = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    found = names_in(bucket)
    assert {name.rpartition("-")[0] or name for name in found} == {
        name.rpartition("-")[0] or name for name in here if ".lock" not in name
    }
    with pytest.raises(DataError, match=f"^{URL} holds an evaluation"), working_folder(URL) as (folder, _):
        evaluate(jobs, folder)
    with working_folder(URL) as (folder, there):
        rows = evaluate([make_job("zero_shot")], folder, Execution(resume=True), copies=there).rows
    assert rows[0]["n"] == 24
    assert (
        rows[0]["top1"] == evaluate([make_job("zero_shot")], tmp_path, Execution(resume=True)).rows[0]["top1"]
    )
    gone = found - names_in(bucket)
    assert gone  # the state of the shorter run
    assert all("/state/" in name for name in gone)


def test_a_run_on_another_machine_goes_on_from_the_address_when_its_machine_is_lost(
    store: type[Buckets],
    tmp_path: Path,
    make_job: Callable[..., Job],
    often: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, told = make_job(), list[int]()

    def lose(position: int) -> None:
        told.append(position)
        store.meet = unreachable if position == 6 else reachable  # what fails is copied the next time
        if position == 12:
            monkeypatch.setattr(Copies, "put", lambda *_: None)  # nothing more comes from that machine
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt_there(job, STORE, "cpu", lambda: False, lose)
    monkeypatch.undo()
    what, row = attempt_there(job, STORE, "cpu", lambda: False, told.append)
    assert what == "done"
    assert told[:12] == list(range(1, 13))
    assert 12 <= told[12] <= 13  # from what was copied, not from the beginning
    assert row["top1"] == run_job(job, tmp_path, device="cpu")["top1"]


def reachable(name: str) -> None:
    """The store answers."""


def unreachable(name: str) -> None:
    raise OSError("no answer")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are saved, told of and copied after every image."""
    monkeypatch.setattr(copies, "EVERY", 0.0)
    monkeypatch.setattr("taps.evaluate.pool.TELL", 0.0)
    monkeypatch.setattr("taps.evaluate.pool.run_job", partial(run_job, pace=Pace(pause=0, worth=0)))


def test_a_run_here_is_copied_while_it_is_under_way(
    store: type[Buckets], make_job: Callable[..., Job], often: None
) -> None:
    copied = set[int]()

    def watch(what: str, index: int, value: Any) -> None:
        rows = store.kept.get("mine/field/runs/pictures/zero_shot/1/predictions.csv", b"")
        copied.add(rows.count(b"\n"))

    with working_folder(STORE) as (folder, files):
        evaluate([make_job("zero_shot")], folder, watcher=lambda left: watch, copies=files)
    assert len(copied) > 12


def test_what_other_machines_wrote_is_seen_though_listings_are_remembered(
    store: type[Buckets], tmp_path: Path
) -> None:
    files = Copies(STORE)
    store.kept["mine/field/runs/set/taps/1/row.json"] = b"1"
    files.fetch(tmp_path, tmp_path)
    store.kept["mine/field/runs/set/taps/2/row.json"] = b"2"  # a run that began and ended elsewhere
    files.fetch(tmp_path, tmp_path / "runs/set/taps/2")
    assert (tmp_path / "runs/set/taps/2/row.json").read_text() == "2"


def test_a_state_that_is_saved_while_files_are_copied_is_copied_whole_the_next_time(
    store: type[Buckets], tmp_path: Path
) -> None:
    def save(number: int) -> None:
        (tmp_path / f"state-{number}").touch()
        (tmp_path / "learner.json").write_text(f"state-{number}")
        (tmp_path / f"state-{number - 1}").unlink(missing_ok=True)

    def meanwhile(name: str) -> None:
        if name.endswith("state-1"):
            save(2)
            save(3)

    def there() -> dict[str, bytes]:
        return {name.removeprefix("mine/field/"): value for name, value in store.kept.items()}

    files = Copies(STORE)
    save(0)
    files.put(tmp_path, tmp_path)
    save(1)
    store.meet = meanwhile
    files.put(tmp_path, tmp_path)
    assert there() == {"state-0": b"", "learner.json": b"state-0", "state-1": b""}
    files.put(tmp_path, tmp_path)
    assert there()["learner.json"] == b"state-3"
    assert "state-3" in there()


def test_a_copy_that_was_cut_short_is_finished_the_next_time(store: type[Buckets], tmp_path: Path) -> None:
    files, names = Copies(STORE), ("one", "two")
    for name in names:
        (tmp_path / name).touch()
    files.put(tmp_path, tmp_path)
    for name in names:
        (tmp_path / name).unlink()
    del store.kept["mine/field/one"]  # removed there already when the line broke
    files.put(tmp_path, tmp_path)
    assert not store.kept


def test_files_that_were_not_fetched_whole_do_not_go_back(
    store: type[Buckets], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.kept["mine/field/row.json"] = b"whole"

    def half(self: Any, rpath: str, lpath: str, **_: Any) -> None:
        Path(lpath).write_bytes(b"who")
        raise OSError("the line broke")

    monkeypatch.setattr(Buckets, "get_file", half)
    with pytest.raises(DataError, match="cannot be read"), working_folder(STORE):
        pass
    assert store.kept == {"mine/field/row.json": b"whole"}


def test_buckets_are_not_made_and_a_missing_one_is_said_before_any_work(
    store: type[Buckets], make_job: Callable[..., Job]
) -> None:
    def run() -> None:
        with working_folder("bucket://mien/field") as (folder, files):
            evaluate([make_job("zero_shot")], folder, copies=files, run=lambda *_: pytest.fail("it ran"))

    with pytest.raises(DataError, match="bucket://mien/field cannot be written to"):
        run()
    assert store.buckets == {"mine"}


def test_what_cannot_be_copied_is_said_and_stays(
    tmp_path: Path, make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    there, done = tmp_path / "there", []

    def run() -> None:
        with working_folder(f"file://{there}") as (folder, files):
            done.append(folder)
            there.mkdir()
            (there / "runs").touch()  # no folder can be made here
            assert len(evaluate([make_job("zero_shot")], folder, copies=files).rows) == 1

    with pytest.raises(DataError, match="What is missing there is in ") as said:
        run()
    assert str(done[0]) in str(said.value)
    assert (done[0] / "results.json").is_file()


def test_addresses_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nothing://x cannot be written to"):
        Copies("nothing://x")


def test_commands_take_addresses(bucket: Any, tmp_path: Path, pictures: Path) -> None:
    """`taps eval`, `taps compare` and `taps report` at one address."""
    command = ["eval", "--dataset", str(pictures), "--model", "tiny", "--method", "zero_shot"]
    command += ["--no-baselines", "--seeds", "1", "--limit", "4", "--out", URL]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    assert f"taps report {URL}" in said.output
    for command in ("report", "compare"):
        said = CliRunner().invoke(app, [command, URL])
        assert said.exit_code == 0, said.output
        assert f"{URL}/" in said.output
    assert {"results.json", "report.html", "leaderboard.html"} <= names_in(bucket)


def test_an_address_that_takes_its_time_to_answer_is_mentioned_meanwhile(
    store: type[Buckets], monkeypatch: pytest.MonkeyPatch
) -> None:
    mentioned = Event()
    monkeypatch.setattr(copies, "PATIENCE", 0.01)
    monkeypatch.setattr(copies.log, "warning", lambda *words: mentioned.set())
    monkeypatch.setattr(store, "exists", lambda self, path: not mentioned.wait(60))
    with working_folder(STORE):
        assert mentioned.is_set()


def test_an_address_that_answers_is_not_mentioned(
    store: type[Buckets], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Timer] = []
    monkeypatch.setattr(copies, "Timer", lambda *given: made.append(Timer(*given)) or made[0])
    with working_folder(STORE):
        made[0].join(60)  # called off
    assert not caplog.messages
