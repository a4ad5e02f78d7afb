"""Two things at the same moment: each test puts the second where the first would be wrong about it."""

from __future__ import annotations

import asyncio
import queue
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text, update

from taps import files
from taps.errors import StateError
from taps.model.clip import Clip
from taps.serve import blobs, database, learner_log
from taps.serve import tables as t
from taps.serve.backup import backup
from taps.serve.blobs import Bin, Blobs
from taps.serve.doctor import examine
from taps.serve.errors import SignInError, StoreDownError
from taps.serve.routes.events import follow
from taps.serve.service import Service, hold
from taps.serve.snapshots import Snapshots
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from taps.serve.tokens import Tokens
from tests.serve.conftest import ASKING, beginning, once, png
from tests.serve.streams import Served, live_through
from tests.serve.test_routes import S, begin, send

LONG = 60.0
EVERY = {**ASKING, "policy": "fixed", "tau0": 0.0}


def meanwhile(act: Callable[[], Any]) -> None:
    """Something another thread does now; it may have to wait for this one."""
    other = Thread(target=act, daemon=True)
    other.start()
    other.join(1.0)


def test_a_message_sent_while_the_stream_ends_is_answered(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create(beginning(), "test")
    worker = service.worker("pets")

    def end() -> None:
        worker.stop()
        worker.join()

    put = once(queue.Queue.put_nowait, lambda: meanwhile(end), before=True)
    monkeypatch.setattr(queue.Queue, "put_nowait", put)
    future = worker.send(lambda session: session.summary())
    assert isinstance(future.exception(LONG), StoreDownError | None)


def test_a_question_put_while_the_stream_is_made_is_known(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadline would never come otherwise."""
    with ThreadPoolExecutor(1) as pool:
        asked: queue.Queue[Any] = queue.Queue()

        def ask() -> None:
            act = partial(StreamSession.predict, data=png(0), name="0", who="test")
            asked.put(pool.submit(lambda: service.send("pets", act).result(LONG)))
            meanwhile(asked.queue[0].result)

        monkeypatch.setattr(Store, "predictions", once(Store.predictions, ask))
        service.create(beginning(settings=EVERY), "test")
        assert asked.get(timeout=LONG).result(LONG).row.state == "open"
    assert service.worker("pets").session.learner_log.open == {0: None}


def test_a_stream_made_while_the_service_stops_is_stopped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "create_stream", once(Store.create_stream, service.close))
    service.create(beginning(), "test")
    with pytest.raises(StoreDownError, match="being closed"):
        service.send("pets", lambda session: session.summary())


def test_a_stream_that_could_not_be_deleted_goes_on(
    http: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(http)
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise StoreDownError("The database is gone.")

        patch.setattr(Store, "remove_stream", fail)
        assert http.delete(S).status_code == 503
    assert send(http, 0)["recorded"]
    assert http.delete(S).status_code == 204


def test_those_who_listen_to_a_stream_that_is_deleted_are_let_go(service: Service) -> None:
    async def listen() -> list[object]:
        stream = service.create(beginning(), "test").id
        with service.bus.subscribe(stream) as before:
            service.remove("pets", "test")
            with service.bus.subscribe(stream) as after:
                return [await asyncio.wait_for(each.news.get(), LONG) for each in (before, after)]

    assert asyncio.run(listen()) == [None, None]


def test_a_token_revoked_while_tokens_are_read_counts_no_more(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(service.store, fresh=3600.0)
    made, secret = tokens.create("camera", ("predict",))
    with ThreadPoolExecutor(1) as pool:
        revoked: list[Any] = []

        def revoke() -> None:
            revoked.append(pool.submit(tokens.revoke, made.id))
            meanwhile(revoked[0].result)

        monkeypatch.setattr(Tokens, "list", once(Tokens.list, revoke))
        assert tokens.check(secret).id == made.id
        revoked[0].result(LONG)
    with pytest.raises(SignInError):
        tokens.check(secret)


def test_a_session_opened_while_its_token_is_revoked_counts_for_nothing(service: Service) -> None:
    tokens = Tokens(service.store, fresh=3600.0)
    made, _ = tokens.create("annotator", ("label",))
    tokens.revoke(made.id)  # after it was checked, before the session is made
    _, session = tokens.create("annotator", ("label",), parent=made.id)
    with pytest.raises(SignInError):
        tokens.check(session)


def test_events_end_with_the_token(http: TestClient, service: Service) -> None:
    begin(http)
    state = http.app.state.taps  # type: ignore[attr-defined]
    token, secret = state.tokens.create("annotator", ("label", "predict"))
    mine = {"Authorization": f"Bearer {secret}"}

    async def listen() -> list[str]:
        events = follow(state, token, service.stream("pets").id, 0, False)
        send(http, 0, headers=mine)
        found = [await anext(events)]
        state.tokens.revoke(token.id)
        service.send("pets", lambda session: session.predict(png(1), "1", "test")).result(LONG)
        return found + [each async for each in events]

    assert len(asyncio.run(asyncio.wait_for(listen(), LONG))) == 1


def test_answers_that_add_up_may_be_sent_again(http: TestClient) -> None:
    begin(http, method="zero_shot+", settings={"policy": "fixed", "tau0": 0.0})
    send(http, 0)

    def say(key: str, no: str) -> tuple[int, Any]:
        key_of = {"Idempotency-Key": key}
        answer = http.post(f"{S}/queries/0/label", json={"no": [no]}, headers=key_of)
        return answer.status_code, answer.json().get("changed")

    assert [say("a", "cat"), say("b", "dog")] == [(200, True)] * 2
    assert [say("a", "cat"), say("b", "dog")] == [(200, False)] * 2
    assert [say("a", "ship"), say("b", "ship")] == [(409, None)] * 2


@pytest.fixture
def saving(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A running service that saves its learner twice more whenever this is called."""
    monkeypatch.setattr(learner_log, "EVERY", 10)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    service.create(beginning(), "test")
    live_through(Served(service), range(40))

    def save() -> None:
        for _ in range(2):
            Served(service).predict(0)
            service.send("pets", lambda session: session.learner_log.snapshot()).result(LONG)

    return save


def test_a_backup_while_snapshots_are_replaced(
    service: Service, saving: Callable[[], None], tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = shutil.copytree, [saving]

    def copytree(source: Path, target: Path, *given: Any, ignore: Any = None, **more: Any) -> Any:
        def seen(folder: str, names: list[str]) -> Any:  # the names are read, the files not yet
            if left and any(name.isdigit() and len(name) > 9 for name in names):
                left.pop()()
            return ignore(folder, names)

        return real(source, target, *given, **more, **({"ignore": seen} if ignore else {}))

    monkeypatch.setattr(shutil, "copytree", copytree)
    backup(service.store, tmp_path / "copy")
    assert not left
    with Service(Store(str(tmp_path / "copy")), tiny) as copy:
        assert Served(copy).digest() == Served(service).digest()


@pytest.mark.parametrize("place", [(Store, "last_seq"), (Snapshots, "check"), (Snapshots, "seqs")])
def test_the_doctor_beside_a_service_that_saves(
    service: Service, saving: Callable[[], None], place: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Store.existing(str(service.store.files))
    cls, name = place
    with monkeypatch.context() as patch, beside:
        patch.setattr(cls, name, once(getattr(cls, name), saving, before=name == "check"))
        assert [finding.sentence for finding in examine(beside) if finding.bad] == []


def test_the_doctor_beside_a_service_that_lets_images_go(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create(beginning(), "test")
    Served(service).predict(0)
    service.send("pets", lambda session: session.learner_log.snapshot()).result(LONG)
    store = service.store
    (name,) = store.blobs.names()

    def evict() -> None:
        with store.database.write() as connection:
            connection.execute(update(t.predictions).values(kept=False))
        store.blobs.path(name).unlink()

    monkeypatch.setattr(Blobs, "read", once(Blobs.read, evict, before=True))
    assert list(examine(store)) == []


def test_an_image_that_another_is_writing_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may not be, until the folder is written, too."""
    store, synced = Blobs(tmp_path, Bin(tmp_path / "bin")), []
    monkeypatch.setattr(blobs, "sync_folder", synced.append)

    def second(folder: Path) -> None:
        if folder.parent == tmp_path:  # the first has renamed its file, and not yet written the folder
            store.put(b"the same")
            assert synced == [folder]

    monkeypatch.setattr(files, "sync_folder", second)
    store.put(b"the same")
    assert synced


def test_a_database_is_not_shared_by_two_folders(
    postgres_server: Any, open_service: Any, tmp_path: Path
) -> None:
    url = postgres_server.url()
    open_service(url, tmp_path / "one").stop()
    with pytest.raises(StateError, match="not the folder this database began with"):
        open_service(url, tmp_path / "two")


@pytest.fixture
def claimed(
    postgres_server: Any, open_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Service:
    """A service on PostgreSQL that trusts its claim for no moment."""
    monkeypatch.setattr(database, "GONE", 0)
    monkeypatch.setattr(database, "SURE", 0.0)
    monkeypatch.setattr(learner_log, "RETRY", 0.0)
    service: Service = open_service(postgres_server.url(), tmp_path / "files")
    service.create(beginning(), "test")
    return service


def drop_claim(service: Service) -> None:
    """Let the connection be ended that holds the claim, as an administrator or a network may."""
    with service.store.database.engine.begin() as connection:
        held = (
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
        )
        ended = (
            f"SELECT pg_terminate_backend(pid, 60000) FROM ({held} WHERE datname = current_database())) held"
        )
        assert connection.scalars(text(ended)).all() == [True]


def second(service: Service, tmp_path: Path) -> Store:
    """The same database, from a copy of its folder on another machine."""
    shutil.copytree(service.store.files, tmp_path / "copy", dirs_exist_ok=True)
    url = service.store.database.url.render_as_string(hide_password=False)
    return Store(url.replace("+psycopg", ""), tmp_path / "copy")


def test_a_database_is_not_used_from_two_machines(claimed: Service, tiny: Clip, tmp_path: Path) -> None:
    with second(claimed, tmp_path) as other, pytest.raises(StoreDownError, match="Another service uses"):
        Service(other, tiny).__enter__()
    claimed.stop()
    with Service(second(claimed, tmp_path), tiny) as later:
        assert later.send("pets", lambda session: session.predict(png(0), "0", "test")).result(LONG).recorded


def test_a_claim_that_was_lost_is_made_anew(claimed: Service, tmp_path: Path) -> None:
    for number in range(2):
        drop_claim(claimed)
        assert (
            claimed.send("pets", lambda session, n=number: session.predict(png(n), "", "test"))
            .result(LONG)
            .recorded
        )
    with second(claimed, tmp_path) as other, pytest.raises(StoreDownError, match="Another"), hold(other):
        pass


def test_after_a_take_over_the_reason_is_told(claimed: Service, tiny: Clip, tmp_path: Path) -> None:
    """Another copy went on: this one has not its images, and must not be told to give them up."""

    def recorded(service: Service, number: int) -> bool:
        return (
            service.send("pets", lambda session: session.predict(png(number), "", "test"))
            .result(LONG)
            .recorded
        )

    assert recorded(claimed, 0)
    before = Served(claimed).digest()
    store = second(claimed, tmp_path)
    drop_claim(claimed)
    with Service(store, tiny) as other:
        assert recorded(other, 1)
        assert not recorded(claimed, 2)
        assert "Another service uses" in claimed.troubles()[0]

    def told_again() -> list[str]:
        claimed.worker("pets").log._tried = -10.0  # the store is tried again at once
        assert not recorded(claimed, 3)
        claimed._probed = (-10.0, [])
        return claimed.troubles()

    for _ in range(2):
        deadline = time.monotonic() + LONG
        while len(found := told_again()) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)  # a try that was under way has still the reason before
        (said,) = found
        assert "took the database" in said
        assert str(tmp_path / "copy") in said
        assert "recover" not in said
    assert Served(claimed).digest() == before
    with Service(Store(*executor_of(store)), tiny) as other:  # the first does not stand in its way
        assert recorded(other, 4)
    claimed.stop()
    with pytest.raises(StateError, match="is an old copy"):
        Service(Store(*executor_of(claimed.store)), tiny).__enter__()


def executor_of(store: Store) -> tuple[str, Path]:
    return store.database.url.render_as_string(hide_password=False).replace("+psycopg", ""), store.files


def test_the_reason_is_told_anew_when_the_database_is_back(
    service: Service, open_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that stands at a lost image says so again, and not that the database is gone."""
    monkeypatch.setattr(learner_log, "RETRY", 0.0)
    service.create(beginning(), "test")
    Served(service).predict(0)
    session = service.worker("pets").session
    with monkeypatch.context() as patch:
        patch.setattr(learner_log.LearnerLog, "unload", lambda self: None)
        service.stop()
    session.store.blobs.path(session.store.predictions(1)[0].image).write_bytes(b"damaged")
    again = open_service(str(session.store.files), session.store.files)
    Served(again).digest()
    found = again.worker("pets").session.learner_log

    def gone() -> None:
        raise StoreDownError("The database is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(again.store, "probe", gone)
        again.send("pets", lambda session: session.tick()).result()
        assert found.trouble == "The database is gone."
    again.send("pets", lambda session: session.tick()).result()
    assert "stands at event 0" in (found.trouble or "")


def test_while_another_has_the_claim_nothing_is_written(claimed: Service, tmp_path: Path) -> None:
    def predict(number: int) -> bool:
        return (
            claimed.send("pets", lambda session: session.predict(png(number), "", "test"))
            .result(LONG)
            .recorded
        )

    assert predict(0)
    drop_claim(claimed)
    with second(claimed, tmp_path) as other, hold(other):
        assert not predict(1)
        assert "Another service uses" in claimed.troubles()[0]
    assert predict(2)
    assert [row.name for row in claimed.store.predictions(claimed.stream("pets").id)] == ["", ""]
