"""While the store cannot be written predictions go on unrecorded, labels are refused; it heals by itself."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taps.model.clip import Clip
from taps.serve import blobs, learner_log
from taps.serve.blobs import Bin, Blobs
from taps.serve.database import Database
from taps.serve.errors import StoreDownError
from taps.serve.service import Service
from tests.serve.conftest import beginning, client_of, png
from tests.serve.postgres import Server
from tests.serve.streams import Bare, Served, digest, live_through

Break = Callable[[pytest.MonkeyPatch], None]


def disk_full(patch: pytest.MonkeyPatch) -> None:
    """Every write to a file fails; SQLite writes by itself and is stopped elsewhere."""

    def fail(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(os, "write", fail)
    patch.setattr(blobs, "write_durably", fail)


def database_gone(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def fail(self: Database, **_: bool) -> Iterator[Any]:
        raise StoreDownError("The database is gone.", retry_after=1)
        yield

    patch.setattr(Database, "write", fail)
    patch.setattr(Database, "read", fail)


def commit_fails(patch: pytest.MonkeyPatch) -> None:
    """The worst moment: everything was computed, and only the commit fails."""

    @contextmanager
    def fail(self: Database) -> Iterator[Any]:
        with self.engine.connect() as connection:
            yield connection
            connection.rollback()
        raise StoreDownError("The database is gone.", retry_after=1)

    patch.setattr(Database, "write", fail)


@pytest.mark.parametrize("broken", [disk_full, database_gone, commit_fails])
def test_predictions_go_on_and_leave_no_trace(
    service: Service, tiny: Clip, monkeypatch: pytest.MonkeyPatch, broken: Break
) -> None:
    monkeypatch.setattr(learner_log, "RETRY", 0.0)
    bare = Bare(tiny, beginning())
    waiting = live_through(bare, range(12))
    service.create(beginning(), "test")
    live_through(Served(service), range(12))
    http = next(client_of(service))
    assert http.get("/readyz").status_code == 200
    assert http.get("/v1/streams").status_code == 200
    service._probed = (-10.0, [])
    with monkeypatch.context() as patch:
        broken(patch)
        for number in (50, 51, 52):
            key = {"Idempotency-Key": str(number)} if number != 51 else {}
            said = http.post("/v1/streams/pets/predict", content=png(number), headers=key).json()
            assert (said["recorded"], said["id"], said["query_id"]) == (False, None, None)
        refused = http.post(f"/v1/streams/pets/queries/{waiting[0]}/label", json={"label": "cat"})
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert "Nothing was changed." in refused.json()["detail"]
        ready = http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["troubles"]
        assert http.get("/healthz").status_code == 200
    service._probed = (-10.0, [])
    live_through(bare, range(12, 24), list(waiting))
    live_through(Served(service), range(12, 24), list(waiting))
    assert Served(service).digest() == digest(bare.learner)
    assert http.get("/readyz").status_code == 200
    assert http.get("/v1/streams/pets/stats").json()["seen"] == 24


def test_a_commit_that_came_through_after_all_counts(
    service: Service, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_log, "RETRY", 0.0)
    service.create(beginning(), "test")
    served = Served(service)
    served.predict(0)
    real = Database.write

    @contextmanager
    def lost_answer(self: Database) -> Iterator[Any]:
        with real(self) as connection:
            yield connection
        raise StoreDownError("The connection broke after the commit.", retry_after=1)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", lost_answer)
        outcome = service.send("pets", lambda session: session.predict(png(1), "1", "test")).result()
        assert not outcome.recorded
    served.predict(2)
    bare = Bare(tiny, beginning())
    for number in range(3):
        bare.predict(number)
    assert served.digest() == digest(bare.learner)


def test_postgresql_gone_and_back(
    postgres_server: Server, tmp_path: Path, open_service: Any, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_log, "RETRY", 0.05)
    service = open_service(postgres_server.url(), tmp_path / "files")
    service.create(beginning(), "test")
    bare, served = Bare(tiny, beginning()), Served(service)
    waiting = live_through(bare, range(8))
    live_through(served, range(8))
    postgres_server.stop()
    try:
        outcome = service.send("pets", lambda session: session.predict(png(9), "9", "test")).result()
        assert not outcome.recorded
        with pytest.raises(StoreDownError, match="Nothing was changed"):
            service.send("pets", lambda session: session.label(waiting[0], "cat", "test")).result()
        assert service.troubles()
    finally:
        postgres_server.start()
    while service.worker("pets").session.learner_log.trouble:  # its own clock tries again
        time.sleep(0.05)
    live_through(bare, range(8, 16), list(waiting))
    live_through(served, range(8, 16), list(waiting))
    assert served.digest() == digest(bare.learner)


def test_an_archive_that_cannot_be_written(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create(beginning(), "test")
    http = next(client_of(service))
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr("taps.serve.export.as_zip", fail)
        refused = http.get("/v1/streams/pets/export?format=zip")
    assert refused.status_code == 503
    assert "No space left on device" in refused.json()["detail"]
    assert not list(service.store.files.glob("export-*"))


def test_tokens_count_while_the_database_is_gone(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create(beginning(), "test")
    http = next(client_of(service))
    _, secret = http.app.state.taps.tokens.create("camera", ("predict",))
    headers = {"Authorization": f"Bearer {secret}"}
    assert http.post("/v1/streams/pets/predict", content=png(0), headers=headers).json()["recorded"]
    with monkeypatch.context() as patch:
        database_gone(patch)
        said = http.post("/v1/streams/pets/predict", content=png(1), headers=headers)
        assert said.status_code == 200
        assert not said.json()["recorded"]
        assert http.post("/v1/streams/pets/predict", content=png(1)).status_code == 401


def test_one_image_sent_to_several_streams_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writer has its own half-written file, so that none takes it from under another."""
    both, real = threading.Barrier(2), os.replace

    def together(*paths: Any) -> None:
        both.wait()
        real(*paths)

    blobs = Blobs(tmp_path, Bin(tmp_path / "bin"))
    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(os, "replace", together)
        names = list(pool.map(blobs.put, [b"the same"] * 2))
    assert blobs.read(names[0]) == blobs.read(names[1]) == b"the same"
    assert list(blobs.names()) == [names[0]]
