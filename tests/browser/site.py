"""A service on loopback for a browser to look at, and the browser."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from taps.serve.records import StreamConfig
from taps.serve.run import serving
from taps.serve.service import Service
from tests.serve.conftest import png
from tests.serve.patient import LONG

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ALWAYS = {"views": 2, "fraction": 0.5, "policy": "fixed", "tau0": 0.0}
NEVER = {"views": 2, "fraction": 0.5, "policy": "fixed", "tau0": 99.0}
CLASSES = ["cat", "dog", "ship", "golden retriever", "stop sign"]


def chromium() -> str | None:
    """The browser of the system."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def browsing() -> Iterator[Browser]:
    """A headless browser with a profile of its own, which is thrown away."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=FLAGS, timeout=1000 * LONG)
        yield browser
        browser.close()


@contextmanager
def visiting(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page of a visitor's own, who shares nothing with others and is in no hurry."""
    context = browser.new_context(**options)
    context.set_default_timeout(1000 * LONG)
    yield context.new_page()
    context.close()


class Site:
    """A service that can be stopped and started again under the same address, with the same store."""

    def __init__(self, make: Callable[[], Service]) -> None:
        self.make = make
        self._place = socket.socket()  # bound all the time, so that nobody else is given the port
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.start()

    def start(self) -> None:
        self._stack = ExitStack()
        self.service = self._stack.enter_context(self.make())
        self.url = self._stack.enter_context(serving(self.service, port=self._place.getsockname()[1]))

    def stop(self) -> None:
        self._stack.close()

    def close(self) -> None:
        self.stop()
        self._place.close()

    def create(self, name: str = "pets", **changes: Any) -> None:
        values: dict[str, Any] = {"classes": CLASSES, "method": "taps", "settings": ALWAYS, "seed": 1}
        values |= {"deadline": None, "hold": 0.0, **changes}
        self.service.create(StreamConfig(name=name, **values), "test")

    def feed(self, numbers: range, stream: str = "pets", name: str = "image-{}.png") -> None:
        for number in numbers:
            act = self.service.send(
                stream, lambda live, n=number: live.predict(png(n), name.format(n), "test")
            )
            act.result()

    def answers(self, stream: str = "pets") -> dict[str, str | None]:
        """Image → label, of those that have one."""
        rows = self.service.store.predictions(self.service.stream(stream).id)
        return {row.name: row.answer for row in rows if row.answer is not None}

    def states(self, stream: str = "pets") -> dict[str, str]:
        return {row.name: row.state for row in self.service.store.predictions(self.service.stream(stream).id)}


def shown(page: Page) -> str:
    """The name of the image on the screen."""
    page.wait_for_selector("#question:not([hidden])")
    return page.inner_text("#name")


def settled(page: Page) -> None:
    """Wait until every answer is saved."""
    page.wait_for_selector("body[data-unsaved='0']")


def act_and_wait(page: Page, act: Any) -> None:
    """Do something, and wait until the image on the screen is another."""
    before = page.inner_text("#name")
    act()
    page.wait_for_function(
        "name => document.querySelector('#question').hidden "
        "|| document.querySelector('#name').textContent !== name",
        arg=before,
    )


AXE = Path(__file__).parent / "axe" / "axe.min.js"


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with a page as it is now."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:120]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
