"""Every command that takes a store, beside a service that records the whole time: nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from taps.cli import main
from taps.serve import telemetry
from taps.serve.doctor import examine
from taps.serve.store import Store
from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.patient import LONG
from tests.serve.zygote import Zygote

TAKES = {"store", "learner"}  # names of parameters that may be a store
# Each with a word of its sentence where it is refused; None where it works.
COMMANDS: list[tuple[list[str], str | None]] = [
    (["token", "list", "STORE"], None),
    (["token", "create", "STORE", "--role", "label", "--stream", "pets", "--days", "2"], None),
    (["token", "create", "STORE", "--role", "label", "--days", "nan"], "must be a number"),
    (["token", "create", "STORE", "--role", "label", "--stream", "nope"], "No stream is named 'nope'"),
    (["token", "revoke", "STORE", "MADE"], None),
    (["token", "revoke", "STORE", "nope"], "No active token"),
    (["backup", "STORE", "COPY"], None),
    (["backup", "STORE", "COPY"], "not empty"),
    (["doctor", "STORE"], None),
    (["recover", "STORE"], "uses the"),
    (["recover", "STORE", "--yes"], "uses the"),
    (["serve", "--store", "STORE", "--model", "tiny", "--processes", "0"], "uses the"),
    (["serve", "--store", "STORE", "--model", "tiny", "--processes", "0", "--anew"], "uses the"),
    (
        ["label", "PICTURES", "--store", "FILES", "--classes", "CLASSES", "--model", "tiny"],
        "Another process uses",
    ),
    (["predict", "PICTURES", "--learner", "FILES", "--stream", "pets", "--out", "OUT"], None),
    (["watch", "PICTURES", "--learner", "FILES", "--stream", "nope", "--out", "OUT2"], "no stream 'nope'"),
    (["token", "list", "STORE"], None),
]


def commands_with_stores() -> Iterator[str]:
    """The commands that have a parameter for a store, by the command line's own account."""
    for name in main.COMMANDS:
        command = main.load_command(name)
        inner = getattr(command, "commands", {"": command})
        for each in inner.values():
            if TAKES & {parameter.name for parameter in each.params}:
                yield name


def test_no_command_with_a_store_is_left_out() -> None:
    assert {words[0] for words, _ in COMMANDS} == set(commands_with_stores())


class Recording(threading.Thread):
    """Somebody who sends images and answers what is asked, one after the other."""

    def __init__(self, url: str, secret: str) -> None:
        super().__init__(daemon=True)
        headers = {"Authorization": f"Bearer {secret}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=LONG, trust_env=False)
        self.told: dict[int, str] = {}
        self.answers: dict[int, str] = {}
        self.wrong: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            while not self.enough.wait(0.01):
                self.once(len(self.told))
        except Exception as error:
            self.wrong.append(repr(error))

    def once(self, number: int) -> None:
        answer = self.http.post("/v1/streams/pets/predict", content=png(number % 50))
        said = answer.json()
        if answer.status_code != 200 or not said["recorded"] or said["id"] != number:
            self.wrong.append(answer.text)
        self.told[number] = said["top"][0]["label"]
        if said["query_id"] is not None:
            label = {"label": CLASSES[number % 3]}
            labelled = self.http.post(f"/v1/streams/pets/queries/{number}/label", json=label)
            if labelled.status_code != 200:
                self.wrong.append(labelled.text)
            self.answers[number] = label["label"]

    def more(self, count: int = 3) -> None:
        """Wait for further images."""
        end, wanted = time.monotonic() + LONG, len(self.told) + count
        while len(self.told) < wanted:
            assert not self.wrong, self.wrong[0]
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not self.wrong, self.wrong[0]


Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Say:
    """A command in this process: its exit code, and what it said."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(telemetry, "set_up_logs", lambda: None)

    def call(words: list[str], names: dict[str, str]) -> tuple[int, str]:
        files = ["--files", str(place[1])] if "STORE" in words and "://" in place[0] else []
        line = [names.get(word, word) for word in words] + files
        done = CliRunner().invoke(main.app, line)
        if done.exception is None or isinstance(done.exception, SystemExit):
            return done.exit_code, done.output
        sentence = main.user_error(done.exception)  # type: ignore[arg-type]
        assert sentence is not None, (line, done.exc_info)
        return 2, sentence

    return call


def test_every_command_beside_a_service(
    place: tuple[str, Path], zygote: Zygote, say: Say, tmp_path: Path
) -> None:
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(png(number))
    names = {
        "STORE": place[0], "FILES": str(place[1]), "COPY": str(tmp_path / "copy"),
        "PICTURES": str(tmp_path / "pictures"), "CLASSES": "cat,dog,ship",
        "OUT": str(tmp_path / "out.csv"), "OUT2": str(tmp_path / "out2.csv"),
    }  # fmt: skip
    code, said = say(["token", "create", "STORE", "--role", "admin"], names)
    assert (code, "A new store was made" in said) == (0, True), said
    (secret,) = [word for word in said.split() if word.startswith("taps_")]
    pid, url = zygote.start(*place)
    try:
        make_stream(url, secret)
    finally:
        stop(pid)
    pid, url = zygote.start(*place)  # so the database is one that a clean stop has left
    recording = Recording(url, secret)
    try:
        go_through(recording, say, names)
        ready = recording.http.get("/readyz")
        assert (ready.status_code, recording.wrong) == (200, []), ready.text
    finally:
        recording.enough.set()
        zygote.kill(pid)
        recording.http.close()
    check_records(place, recording)


def go_through(recording: Recording, say: Say, names: dict[str, str]) -> None:
    """Call one command after the other, with images in between."""
    recording.start()
    recording.more(25)  # one snapshot at least
    for words, refused in COMMANDS:
        if "--learner" in words and "://" in names["STORE"]:
            refused = "No database found"
        code, said = say(words, names)
        assert (code, (refused or "") in said) == (2 if refused else 0, True), (words, said)
        if "shown this once" in said:
            names["MADE"] = said.split("Token ")[1].split(",")[0]
        recording.more()
    recording.enough.set()
    recording.join()


def make_stream(url: str, secret: str) -> None:
    body: dict[str, Any] = {"name": "pets", "classes": CLASSES, "method": "taps", "settings": ASKING}
    headers = {"Authorization": f"Bearer {secret}"}
    made = httpx.post(f"{url}/v1/streams", json=body, headers=headers, timeout=LONG, trust_env=False)
    assert made.status_code == 201, made.text


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + LONG
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def check_records(place: tuple[str, Path], recording: Recording) -> None:
    """All that was acknowledged is there, and nothing twice."""
    with closing(Store.existing(*place)) as store:
        rows = store.predictions(store.streams()[0].id)
        assert {row.id: row.top[0][0] for row in rows} == recording.told
        labelled = {row.id: row.answer for row in rows if row.answer is not None}
        assert labelled == recording.answers
        assert len(labelled) > 3
        assert [finding.sentence for finding in examine(store) if finding.bad] == []
