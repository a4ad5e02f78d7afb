"""Services on the tiny model, on SQLite and on PostgreSQL."""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from taps.model.clip import Clip
from taps.serve.app import make_app
from taps.serve.dependencies import State
from taps.serve.options import Limits
from taps.serve.records import StreamConfig
from taps.serve.run import make_server
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve import patient, postgres  # noqa: F401
from tests.serve.zygote import Zygote

CLASSES = ["cat", "dog", "ship"]
ASKING = {"views": 2, "policy": "random", "rate": 0.5, "buffer": 6, "recent": 8}


def png(number: int, size: tuple[int, int] = (24, 20)) -> bytes:
    """A small picture for each number."""
    rng = np.random.default_rng(number)
    data = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(data, "PNG")
    return data.getvalue()


def beginning(name: str = "pets", **changes: Any) -> StreamConfig:
    values: dict[str, Any] = {
        "name": name, "classes": CLASSES, "method": "taps", "settings": ASKING, "seed": 1, "deadline": None,
        "hold": 0.0,
    }  # fmt: skip
    return StreamConfig(**values | changes)


def once(real: Callable[..., Any], act: Callable[[], Any], *, before: bool = False) -> Callable[..., Any]:
    """The same function; something happens right after (or before) it has run for the first time."""
    left = [act]

    def run(*given: Any, **named: Any) -> Any:
        if before and left:
            left.pop()()
        found = real(*given, **named)
        if left:
            left.pop()()
        return found

    return run


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Starts services in processes of their own."""
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with postgres.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A store that does not exist yet: where its tables are to be, and its files."""
    if request.param == "sqlite":
        return str(tmp_path / "store"), tmp_path / "store"
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return server.url(), tmp_path / "files"


@pytest.fixture
def open_service(tiny: Clip) -> Iterator[Callable[..., Service]]:
    """Opens services, and closes them when the test is over."""
    with ExitStack() as stack:

        def make(place: str, files: Path, **options: Any) -> Service:
            return stack.enter_context(Service(Store(place, files), tiny, **options))

        yield make


@pytest.fixture
def service(open_service: Callable[..., Service], tmp_path: Path) -> Service:
    """A service on SQLite."""
    return open_service(str(tmp_path / "store"), tmp_path / "store")


@pytest.fixture
def http(service: Service) -> Iterator[TestClient]:
    """Its HTTP side, without a token."""
    yield from client_of(service)


def client_of(service: Service, limits: Limits | None = None, **options: Any) -> Iterator[TestClient]:
    state = State(service, Tokens(service.store, fresh=0.0), limits or Limits(), **options)
    with TestClient(make_app(state), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    """The service on a real port of loopback."""
    found: queue.Queue[str] = queue.Queue()
    server = make_server(service, port=0, ready=found.put)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield found.get()
    server.should_exit = True
    thread.join()


@pytest.fixture
def filled(open_service: Callable[..., Service], tmp_path: Path) -> Path:
    """A store at rest: ten images and a snapshot."""
    from tests.serve.streams import Served  # which imports from here

    service = open_service(str(tmp_path / "store"), tmp_path / "store")
    service.create(beginning(), "test")
    for number in range(10):
        Served(service).predict(number)
    service.stop()
    return tmp_path / "store"
