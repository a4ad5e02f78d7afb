"""Who has no token takes nothing from those who have: no memory, no connections, no time."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from taps.serve import connections, middleware
from taps.serve.errors import TooManyError
from taps.serve.limits import Shares
from taps.serve.options import Limits
from taps.serve.run import Server, make_server
from taps.serve.service import Service
from tests.serve.conftest import beginning, client_of
from tests.serve.patient import LONG
from tests.serve.strangers import besiege
from tests.serve.zygote import Zygote


@pytest.fixture
def server(service: Service) -> Iterator[Server]:
    """A service that needs tokens, on a real port; `url` is where."""
    service.create(beginning(), "test")
    found: queue.Queue[str] = queue.Queue()
    made = make_server(service, port=0, ready=found.put, limits=Limits(json=2000))
    made.config.app.state.taps.tokens.create("first", ("admin",))
    thread = threading.Thread(target=made.run)
    thread.start()
    made.url = found.get()
    yield made
    made.should_exit = True
    thread.join()


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LONG)


def alive(server: Server) -> bool:
    return httpx.get(f"{server.url}/healthz", timeout=LONG, trust_env=False).status_code == 200


def ended(connection: socket.socket) -> bool:
    """Whether the service ends a connection; waits until it does."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("path", ["/v1/streams", "/v1/streams/pets/predict", "/v1/tokens", "/nowhere"])
def test_no_byte_of_a_body_is_read_before_the_token_counts(service: Service, path: str) -> None:
    """Read bodies are what memory is filled with: the service must answer without asking for one."""
    service.create(beginning(), "test")
    sent: list[Any] = []
    scope = {
        "type": "http", "method": "POST", "path": path, "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    async def send(message: Any) -> None:
        sent.append(message)

    for http in client_of(service):
        http.app.state.taps.tokens.create("first", ("admin",))
        asyncio.run(http.app(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 401
    assert (b"connection", b"close") in sent[0]["headers"]


def test_json_has_a_limit_of_its_own(service: Service) -> None:
    """Announced or not, the body is refused while it comes in."""
    service.create(beginning(), "test")
    large = b'{"names": ["' + b"x" * 2000 + b'"]}'
    kind = {"Content-Type": "application/json"}
    for http in client_of(service, Limits(json=2000)):
        for body in (large, iter([large[:1000], large[1000:]])):
            refused = http.post("/v1/streams/pets/classes", content=body, headers=kind)
            assert refused.status_code == 413
            assert refused.json()["detail"] == "The body is over 2,000 bytes; send less."
        assert http.post("/v1/streams/pets/predict", content=b"x" * 2001).status_code == 415


def test_a_json_body_that_never_ends_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LONG) as connection:
        head = f"POST /v1/streams HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n" + '{"name'
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127", b"\r\n"])
def test_a_head_that_never_ends_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    with connect(server) as connection:
        connection.sendall(sent)
        assert ended(connection)


def test_half_sent_heads_leave_room_for_others(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 3)
    held = [connect(server) for _ in range(10)]
    for each in held:
        each.sendall(b"GET / HTTP/1.1\r\nX: ")
    assert alive(server)
    assert sum(ended(each) for each in held[:7]) == 7  # the oldest
    for each in held:
        each.close()


@pytest.mark.parametrize(
    ("others", "cut"),
    [
        ([("stranger", "busy"), ("stranger", "busy")], 0),  # strangers keep no newcomer out
        ([("known", "idle"), ("stranger", "busy")], 1),
        ([("known", "busy"), ("known", "idle")], 2),  # the newcomer, who has not shown a token
    ],
)
def test_a_strangers_connection_is_cut_before_others(others: list[tuple[str, str]], cut: int) -> None:
    gone: list[int] = []
    made = []
    for number, (who, does) in enumerate([*others, ("stranger", "idle")]):
        transport = SimpleNamespace(is_closing=bool, abort=partial(gone.append, number))
        made.append(
            SimpleNamespace(
                stranger=who == "stranger", idle=does == "idle", since=number, transport=transport
            )
        )
    connections._make_room(made)
    assert gone == [cut]


def test_a_known_connection_is_not_cut_while_its_next_token_is_looked_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is older than those of strangers who have just come."""
    tokens, looking, go_on = server.config.app.state.taps.tokens, threading.Event(), threading.Event()
    headers = {"Authorization": f"Bearer {tokens.create('second', ('admin',))[1]}"}
    monkeypatch.setattr(connections, "MOST", 3)

    def refresh() -> None:
        looking.set()
        go_on.wait(LONG)

    with httpx.Client(base_url=server.url, headers=headers, timeout=LONG, trust_env=False) as http:
        assert http.get("/v1/streams").status_code == 200
        monkeypatch.setattr(tokens, "refresh", refresh)
        monkeypatch.setattr(tokens, "_read_at", -float("inf"))
        said: list[int] = []
        asking = threading.Thread(target=lambda: said.append(http.get("/v1/streams").status_code))
        asking.start()
        assert looking.wait(LONG)
        held = [connect(server) for _ in range(6)]
        assert sum(ended(each) for each in held[:3]) == 3
        go_on.set()
        asking.join()
    assert said == [200]
    for each in held:
        each.close()


def test_one_address_has_a_share_of_the_connections(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SHARE", 2)
    held = [connect(server) for _ in range(3)]
    assert alive(server)  # on this machine there is no share: a proxy has all connections
    assert len(server.server_state.connections) >= 3
    monkeypatch.setattr(connections, "is_loopback", lambda address: False)
    assert alive(server)
    assert ended(held[0])
    for each in held:
        each.close()


def test_a_client_that_reads_nothing_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.05)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.url.removeprefix("http://").split(":")
        connection.connect((host, int(port)))
        assert alive(server)
        while server.server_state.connections:  # until it is cut off
            try:
                connection.setblocking(False)
                connection.send(b"GET /v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            except (BlockingIOError, ConnectionError):
                time.sleep(0.001)


def test_whatever_one_caller_takes_the_next_finds_some() -> None:
    shares = Shares(100)
    for who, half in (("a", 50), ("b", 25), ("c", 13)):  # of what is free, rounded up
        for _ in range(half):
            shares.take(who)
        with pytest.raises(TooManyError, match="under way"):
            shares.take(who)
    for _ in range(50):
        shares.give_back("a")
    shares.take("c")
    with shares.of("d"):
        pass


def test_a_token_has_a_share_of_the_requests_under_way(service: Service) -> None:
    service.create(beginning(), "test")
    for http in client_of(service):
        state = http.app.state.taps
        one, secret = state.tokens.create("one", ("label",))
        _, other = state.tokens.create("two", ("label",))
        state.requests = Shares(2)
        state.requests.take(one.id)  # a stream of events, say
        refused, fine = (
            http.get("/v1/streams", headers={"Authorization": f"Bearer {each}"}) for each in (secret, other)
        )
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert fine.status_code == 200
        assert http.get("/v1/streams", headers={"Authorization": f"Bearer {other}"}).status_code == 200


def test_strangers_fill_no_memory(zygote: Zygote, tmp_path: Path) -> None:
    found = besiege(zygote, tmp_path, connections=40, rounds=2)
    assert found["grown_mb"] <= 50, found
    assert found["answered"] == found["asked"]
