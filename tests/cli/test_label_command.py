"""`taps label` and `taps demo --serve` as started: the page opens, answers come, the CSVs are there."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 300.0  # seconds


class Started:
    """A command that serves a page, and a person at that page.

    Args:
        words: The command.
        folder: Where it is started; `opened` in it is what the browser was told to show.
    """

    def __init__(self, words: list[str], folder: Path) -> None:
        browser = folder / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" >> {folder}/opened\n')
        browser.chmod(0o755)
        (folder / "opened").unlink(missing_ok=True)
        self.log = folder / "said"
        env = os.environ | {"BROWSER": str(browser), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "taps", *words], cwd=folder, env=env, stdout=out, stderr=out,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )  # fmt: skip
        self.page = self.until(
            lambda: re.search(r"Label at (http://127\.0\.0\.1:\d+)/\?stream=(\S+)", self.said)
        )
        opened = self.until(lambda: (folder / "opened").is_file() and (folder / "opened").read_text())
        assert opened.strip() == self.page[0].removeprefix("Label at ")
        self.http = httpx.Client(
            base_url=f"{self.page[1]}/v1/streams/{self.page[2]}", timeout=PATIENCE, trust_env=False
        )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until(self, found: Callable[[], Any]) -> Any:
        """Ask again and again until there is an answer."""
        end = time.monotonic() + PATIENCE
        while not (answer := found()):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.05)
        return answer

    def answer(self, count: int, label: Callable[[str], str], over: str = "\0") -> dict[str, str]:
        """Answer so many questions, as the page does, or until the command says that it is over."""
        given: dict[str, str] = {}
        while len(given) < count and over not in self.said:
            held = self.http.post("/queries/lease", json={"holder": "page-0001", "count": 1}).json()
            for question in held:
                id, name = question["prediction"]["id"], question["prediction"]["name"]
                given[name] = label(name)
                self.http.post(f"/predictions/{id}/label", json={"label": given[name]}).raise_for_status()
            time.sleep(0.02)
        return given


@contextmanager
def started(words: list[str], folder: Path) -> Iterator[Started]:
    """Stopped by Ctrl-C at the end, which must be a good end."""
    command = Started(words, folder)
    try:
        yield command
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(PATIENCE) == 0, command.said
    finally:
        command.http.close()
        command.process.kill()
        command.process.wait()


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_is_labelled_stopped_and_finished(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to(pictures)
    words = ["label", "photos", "--model", "tiny", "--views", "2", "--rate", "0.4"]

    def truth(name: str) -> str:
        return name.split("/")[0]

    with started(words, tmp_path) as first:
        early = first.answer(3, truth)
    store = tmp_path / "photos.taps"
    assert f"Labels: {store.name}/labels.csv" in first.said
    assert {row["path"]: row["label"] for row in table(store / "labels.csv")} == early
    with started(words, tmp_path) as second:
        late = second.answer(24, truth, over="images are done")
        second.until(lambda: "All 24 images are done" in second.said)
        assert second.http.get("/folder").json()["phase"] == "done"
    assert not set(early) & set(late)  # no question is put twice
    assert len(early | late) >= 8
    assert {row["path"]: row["label"] for row in table(store / "labels.csv")} == early | late
    rows = table(store / "predictions.csv")
    assert sorted(row["path"] for row in rows) == sorted(
        str(path.relative_to(pictures)) for path in pictures.rglob("*.png")
    )
    assert {row["path"]: row["final"] for row in rows if row["by"] == "person"} == early | late
    assert {row["final"] for row in rows} <= {"ant", "bee", "cat"}


def test_the_demos_page_hides_what_the_images_are(tmp_path: Path) -> None:
    words = ["demo", "--serve", "--model", "tiny", "--limit", "12", "--views", "2", "--rate", "0.5"]
    with started(words, tmp_path) as demo:
        classes = demo.http.get("/stats").json()["learner"]["classes"]
        given = demo.answer(12, lambda name: classes[0], over="images are done")
        demo.until(lambda: "All 12 images are done" in demo.said)
    assert given
    assert all(re.fullmatch(r"image \d+", name) for name in given)
    assert len(table(tmp_path / "taps-demo" / "store" / "predictions.csv")) == 12
    assert not (tmp_path / "taps-demo" / "report.html").exists()  # there is no report
