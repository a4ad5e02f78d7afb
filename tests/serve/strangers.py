"""Everything somebody without a token can send, from many connections at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.conftest import CLASSES
from tests.serve.patient import LONG
from tests.serve.processes import memory_mb
from tests.serve.zygote import Zygote

MB = 1 << 20
HOST = b"Host: 127.0.0.1\r\n"


def _post(path: bytes, kind: bytes, more: bytes = b"") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Type: " + kind + b"\r\n" + more + b"\r\n"


WAYS: dict[str, bytes] = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 16_000,
    "an endless head": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (MB // 6),
    "JSON that stalls": _post(b"/v1/streams", b"application/json", b"Content-Length: 10000000\r\n")
    + b"[" * 9_000_000,
    "JSON in chunks": _post(b"/v1/streams", b"application/json", b"Transfer-Encoding: chunked\r\n")
    + b"F4240\r\n" + b"[" * 1_000_000 + b"\r\n",
    "an image that stalls": _post(b"/v1/streams/pets/predict", b"image/png", b"Content-Length: 10000000\r\n")
    + b"x" * 9_000_000,
    "a body nobody wants": b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length: 10000000\r\n\r\n"
    + b"x" * 9_000_000,
    "requests without end": (b"GET /v1/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n") * 20_000,
    "a wrong token": (b"GET /v1/streams HTTP/1.1\r\n" + HOST + b"Authorization: Bearer x\r\n\r\n") * 20_000,
    "Label Studio": _post(b"/label-studio/predict", b"application/json", b"Content-Length: 10000000\r\n")
    + b"[" * 9_000_000,
}  # fmt: skip


def besiege(zygote: Zygote, folder: Path, connections: int, rounds: int = 20) -> dict[str, Any]:
    """Send each of the ways over so many connections at once, read nothing; the memory meanwhile."""
    with Store(str(folder)).open() as store:
        secret = Tokens(store).create("own", ("admin",))[1]
    pid, url = zygote.start(str(folder), folder)
    try:
        return _besiege(pid, url, secret, connections, rounds)
    finally:
        zygote.kill(pid)


def _besiege(pid: int, url: str, secret: str, connections: int, rounds: int) -> dict[str, Any]:
    said: list[int] = []
    for name in ("one", "two"):  # a process computes for each: they are there before anything is counted
        body = {"name": name, "classes": CLASSES, "method": "zero_shot"}
        headers = {"Authorization": f"Bearer {secret}"}
        made = httpx.post(f"{url}/v1/streams", json=body, headers=headers, timeout=LONG, trust_env=False)
        assert made.status_code == 201

    def look(_: int = 0) -> float:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = httpx.get(f"{url}/v1/tokens", headers=headers, timeout=LONG, trust_env=False)
        said.append(answer.status_code)
        return memory_mb(pid)

    with ThreadPoolExecutor(40) as crowd:  # so are its threads
        before = max(crowd.map(look, range(200)))
    by_way = {
        name: round(_send(url, sent, connections, rounds, look) - before, 1) for name, sent in WAYS.items()
    }
    grown = max(by_way.values())
    return {"connections": connections, "before_mb": round(before), "grown_mb": grown, "by_way": by_way,
            "asked": len(said), "answered": said.count(200)}  # fmt: skip


def _send(url: str, data: bytes, connections: int, rounds: int, look: Callable[[], float]) -> float:
    """The most memory while so many connections send something, a part of it each in turn."""
    host, port = url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        held = []
        for _ in range(connections):
            each = stack.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect((host, int(port)))
            each.setblocking(False)
            held.append([each, memoryview(data)])
        most = 0.0
        for _ in range(rounds):
            for pair in held:
                with suppress(BlockingIOError, ConnectionError):
                    while pair[1]:
                        pair[1] = pair[1][pair[0].send(pair[1][: 1 << 16]) :]
            os.sched_yield()
            most = max(most, look())
    return most
