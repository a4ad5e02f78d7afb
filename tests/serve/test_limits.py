"""Too much is refused early, with the right status and a sentence."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from taps.serve import middleware
from taps.serve.errors import TooManyError
from taps.serve.limits import Rates, check_image
from taps.serve.options import Limits
from taps.serve.service import Service
from tests.serve.conftest import beginning, client_of, png

PREDICT = "/v1/streams/pets/predict"


@pytest.fixture
def http(service: Service) -> Iterator[TestClient]:
    service.create(beginning(), "test")
    yield from client_of(service, Limits(body=50_000, pixels=10_000, queue=1))


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises more than its few bytes hold."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def progressive(scans: int, **options: Any) -> bytes:
    """A JPEG with the first of its later scans so often."""
    data = io.BytesIO()
    Image.new("L", (64, 64), 90).save(data, "JPEG", progressive=True, **options)
    whole = data.getvalue()
    second = whole.index(b"\xff\xda", whole.index(b"\xff\xda") + 2)
    end = whole.index(b"\xff\xc4", second)
    return whole[:end] + whole[second:end] * scans + whole[end:]


def chunks(kind: bytes, data: bytes, count: int) -> bytes:
    """A PNG with a chunk so often."""
    whole, sum = png(1), zlib.crc32(kind + data)
    made = struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum)
    return whole[:33] + made * count + whole[33:]


def gif(more: bytes = b"") -> bytes:
    """A GIF with something before its image."""
    data = io.BytesIO()
    Image.new("P", (8, 8)).save(data, "GIF", comment=b"x" * 2000)
    whole = data.getvalue()
    start = 13 + 3 * 2 ** ((whole[10] & 7) + 1)
    return whole[:start] + more + whole[start:]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (progressive(8000), "50 scans"), (b"\xff\xd8" + b"\xff\xfe\0\2" * 9000, "pieces"),
        (chunks(b"iCCP", b"a\0\0" + zlib.compress(bytes(1000)), 21), "compressed texts"),
        (chunks(b"abCd", b"", 4000), "pieces"),
        (gif(b"!\xfe\0" * 9000), "pieces"), (gif(b"!\xfe" + b"\1a" * 9000 + b"\0"), "pieces"),
        (gif(b"\1" * 9000), "pieces"),
        (b"\xff\xd8" + b"\xff\xfe\0\2" * 900 + progressive(70)[2:], "50 scans"),
    ],
)  # fmt: skip
def test_images_made_to_be_slow_are_refused_unopened(
    http: TestClient, body: bytes, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taps.serve.limits.Image.open", lambda *_, **__: pytest.fail("It was opened."))
    refused = http.post(PREDICT, content=body[:50_000])
    assert refused.status_code == 413
    assert word in refused.json()["detail"]


@pytest.mark.parametrize(
    "options",
    [{}, {"progressive": True}, {"exif": b"Exif\0\0" + b"\xff\xda" * 9000}, {"comment": b"\xff\xda" * 99}],
)
def test_usual_images_are_not_slow(options: dict[str, Any]) -> None:
    data = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(data, "JPEG", **options)
    # Beyond its end, as phones put films there, nothing counts.
    check_image(data.getvalue() + b"\xff\xda\0\2" * 999, Limits())
    check_image(progressive(30), Limits())
    check_image(gif(b"!\xfe" + b"\1a" * 500 + b"\0"), Limits())
    check_image(chunks(b"tEXt", b"a\0b", 500), Limits())


def test_a_body_is_counted_while_it_comes_in(http: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 10_000_000:
            sent += 10_000
            yield b"x" * 10_000

    assert http.post(PREDICT, content=endless()).status_code == 413
    assert http.post(PREDICT, content=b"x" * 50_001).status_code == 413
    assert http.post(PREDICT, files={"image": b"x" * 60_000}).status_code == 413


@pytest.mark.parametrize(("width", "height"), [(101, 100), (20_000, 20_000), (60_000, 60_000)])
def test_pixels_are_counted_before_decoding(http: TestClient, width: int, height: int) -> None:
    refused = http.post(PREDICT, content=bomb(width, height))
    assert refused.status_code == 413
    assert "pixels" in refused.json()["detail"]


def test_formats_are_a_list(http: TestClient) -> None:
    data = io.BytesIO()
    Image.new("RGB", (8, 8)).save(data, "PPM")
    for body in (data.getvalue(), b"", b"GIF89a", b"<svg/>", b"%!PS-Adobe"):
        assert http.post(PREDICT, content=body).status_code == 415
    assert http.post(PREDICT, json={"image": 1}).status_code == 415
    assert http.post(PREDICT, data={"other": "x"}, files={"file": png(1)}).status_code == 422
    check_image(png(1), Limits())


def test_an_image_broken_inside_is_refused_and_leaves_nothing(http: TestClient, service: Service) -> None:
    whole = png(3)
    for broken in (whole[:-20], whole[:60] + b"\0" + whole[61:]):
        assert http.post(PREDICT, content=broken).status_code in (415, 422)
    assert http.get("/v1/streams/pets/stats").json()["seen"] == 0
    assert list(service.store.blobs.names()) == []


def test_a_full_queue_is_told_at_once(service: Service) -> None:
    service.create(beginning(), "test")
    worker = service.worker("pets")
    busy, go = threading.Event(), threading.Event()
    worker.send(lambda session: (busy.set(), go.wait()))
    busy.wait()
    for _ in range(service.queue):
        worker.send(lambda session: None)
    for client in client_of(service):
        refused = client.post(PREDICT, content=png(1))
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        go.set()


def test_a_rate_for_each_caller() -> None:
    now = [0.0]
    rates = Rates(2.0, lambda: now[0])
    for _ in range(4):
        rates.take("a")
    with pytest.raises(TooManyError, match="slow down"):
        rates.take("a")
    rates.take("b")
    now[0] = 0.5
    rates.take("a")
    with pytest.raises(TooManyError, match="slow down"):
        rates.take("a")


def test_the_headers_a_browser_needs(http: TestClient) -> None:
    headers = http.get("/healthz").headers
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_a_body_that_never_ends_is_not_waited_for(
    url: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    service.create(beginning(), "test")
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\nabc"
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_caller_who_leaves_is_no_error_of_the_service(http: TestClient) -> None:
    sent: list[Any] = []
    scope = {
        "type": "http", "method": "POST", "path": PREDICT, "headers": [(b"host", b"127.0.0.1")],
        "query_string": b"",
    }  # fmt: skip

    async def leave() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(http.app(scope, leave, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 400
