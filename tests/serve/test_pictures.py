"""Pictures for the pages: what many requests of one token take of memory, and what they show."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from taps.serve import pictures
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.conftest import CLASSES, beginning, png
from tests.serve.patient import LONG
from tests.serve.processes import memory_mb
from tests.serve.zygote import Zygote

SHOWN = "/v1/streams/pets/predictions/0/picture"


def encoded(kind: str, mode: str = "RGB", side: int = 80) -> bytes:
    data = io.BytesIO()
    Image.new(mode, (side, side // 2)).save(data, kind)
    return data.getvalue()


def test_pictures_of_one_token_take_little_memory(zygote: Zygote, tmp_path: Path) -> None:
    with Store(str(tmp_path)).open() as store:
        admin, label = (Tokens(store).create(role, (role,))[1] for role in ("admin", "label"))
    pid, url = zygote.start(str(tmp_path), tmp_path)
    stop, seen = threading.Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.02):
            seen.append(memory_mb(pid))

    def get(path: str) -> int:
        headers = {"Authorization": f"Bearer {label}"}
        return httpx.get(url + path, headers=headers, timeout=LONG, trust_env=False).status_code

    try:
        with httpx.Client(
            headers={"Authorization": f"Bearer {admin}"}, timeout=LONG, trust_env=False
        ) as http:
            body = {"name": "pets", "classes": CLASSES, "method": "zero_shot"}
            assert http.post(f"{url}/v1/streams", json=body).status_code == 201
            large = encoded("PNG", "RGBA", 6300)  # 20 megapixels
            for data in (png(1), large):
                assert http.post(f"{url}/v1/streams/pets/predict", content=data).status_code == 200
        paths = [SHOWN.replace("0", "1") + f"?size={1000 + number}" for number in range(24)]
        with ThreadPoolExecutor(24) as crowd:
            set(crowd.map(get, [SHOWN] * 24))  # its threads are there before anything is counted
            before = memory_mb(pid)
            watcher = threading.Thread(target=watch)
            watcher.start()
            assert set(crowd.map(get, paths)) == {200}
        stop.set()
        watcher.join()
        assert max(seen) - before < 300, (before, max(seen), seen[-1])
    finally:
        stop.set()
        zygote.kill(pid)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("PNG", "RGB"), ("PNG", "P"), ("PNG", "1"), ("PNG", "LA"), ("PNG", "I;16"), ("JPEG", "CMYK"),
     ("TIFF", "F"), ("GIF", "P"), ("WEBP", "RGBA")],
)  # fmt: skip
def test_images_of_every_kind_are_shown_small(
    http: TestClient, service: Service, kind: str, mode: str
) -> None:
    service.create(beginning(), "test")
    assert http.post("/v1/streams/pets/predict", content=encoded(kind, mode)).status_code == 200
    answer = http.get(SHOWN, params={"size": 40})
    assert answer.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (40, 20)


def test_a_large_webp_is_shown_as_it_is(
    http: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "WEBP", 1000)
    service.create(beginning(), "test")
    http.post("/v1/streams/pets/predict", content=encoded("WEBP"))
    answer = http.get(SHOWN)
    assert answer.headers["content-type"] == "image/webp"
    assert answer.content == encoded("WEBP")


def test_a_picture_is_made_once_and_few_are_kept(
    http: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    real = pictures.as_jpeg
    monkeypatch.setattr(pictures, "as_jpeg", lambda data, size: (made.append(size), real(data, size))[1])
    service.create(beginning(), "test")
    http.post("/v1/streams/pets/predict", content=encoded("PNG"))
    for size in (40, 50, 40):
        http.get(SHOWN, params={"size": size})
    assert made == [40, 50]
    monkeypatch.setattr(pictures, "KEPT", 0)
    for _ in range(2):
        assert http.get(SHOWN, params={"size": 60}).status_code == 200
    assert made == [40, 50, 60, 60]


def test_turns_are_given_back(http: TestClient, service: Service) -> None:
    service.create(beginning(), "test")
    http.post("/v1/streams/pets/predict", content=png(1))
    for _ in range(20):  # more than may be under way
        assert http.get(SHOWN).status_code == 200
        assert http.get(SHOWN.replace("0", "7")).status_code == 404
        assert http.get(SHOWN.replace("picture", "image")).content == png(1)
