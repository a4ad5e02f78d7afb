"""Files and folders of a running store deleted, one in each run: how soon the service says so."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.patient import LONG
from tests.serve.zygote import Zygote

Find = Callable[[Path], Path]


def _first(pattern: str) -> Find:
    return lambda files: sorted(files.glob(pattern))[0]


# Without any of these nothing can be recorded.
VITAL: dict[str, Find] = {
    "the folder": lambda files: files,
    "images": lambda files: files / "images",
    "snapshots": lambda files: files / "snapshots",
    "heads": lambda files: files / "heads",
    "identity": lambda files: files / "identity",
    "starts": lambda files: files / "starts",
    "lock": lambda files: files / ".lock",
}
OF_SQLITE: dict[str, Find] = {
    "database": lambda files: files / "store.sqlite",
    "log of writes": lambda files: files / "store.sqlite-wal",
    "index of that": lambda files: files / "store.sqlite-shm",
}
# Without these the service goes on, and says what is lost.
SINGLE: dict[str, Find] = {
    "one image": _first("images/??/*"),
    "folder of images": _first("images/??"),
    "one snapshot": _first("snapshots/1/0*"),
    "file of a snapshot": _first("snapshots/1/0*/*.safetensors"),
    "manifest": _first("snapshots/1/0*/manifest.json"),
    "snapshots of a stream": _first("snapshots/1"),
    "end of a log": _first("heads/1"),
    "end of the audit": _first("heads/audit"),
}


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def seconds_until_told(zygote: Zygote, place: str, files: Path, find: Find, *, vital: bool) -> float:
    """Delete it while images come in; seconds until `/readyz` names it."""
    pid, url = zygote.start(place, files)
    with httpx.Client(base_url=url, timeout=LONG, trust_env=False) as http:

        def predict(number: int) -> bool:
            said = http.post("/v1/streams/pets/predict", content=png(number))
            return bool(said.json()["recorded"])

        settings = {"name": "pets", "classes": CLASSES, "method": "taps", "settings": ASKING}
        assert http.post("/v1/streams", json=settings).status_code == 201
        assert all(predict(number) for number in range(22))  # a snapshot is saved after 20
        assert http.get("/readyz").status_code == 200, http.get("/readyz").text
        gone = find(files)
        delete(gone)
        began = time.monotonic()
        while (ready := http.get("/readyz")).status_code == 200:
            time.sleep(0.05)
        told = time.monotonic() - began
        assert str(gone) in " ".join(ready.json()["troubles"]), ready.text
        assert predict(30) is not vital
        assert (http.post("/v1/streams/pets/classes", json={"names": ["bird"]}).status_code == 503) is vital
    zygote.kill(pid)
    return told
