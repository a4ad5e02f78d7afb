"""Pictures of every state of the pages, made in a headless chromium with the bundled sample.

    python -m recipes.screenshots --out docs/figures/page

Needs playwright (pip install playwright) and a chromium of the system.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from recipes.pictures import save
from tests.browser.site import browsing

from taps import load_clip
from taps.data import load_dataset
from taps.data.facts import imagenet_names
from taps.data.sample import bundled_sample
from taps.serve.folder import Folder, pool_settings
from taps.serve.records import StreamConfig
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.streams.sequence import make_stream

DESK, PHONE = {"width": 1280, "height": 860}, {"width": 360, "height": 740}
SETTINGS = {"rate": 0.3, "acquisition": "margin", "views": 4, "fraction": 0.5}
IMAGES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/page"))
    parser.add_argument("--model", default="pocket")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = stack.enter_context(Service(Store(folder), load_clip(options.model)))
        Shots(stack.enter_context(browsing()), service, options.out).all()


def photo(t: int) -> str:
    """What an image is called: not by its class."""
    return f"photo-{t:03d}.webp"


class Shots:
    """Takes the pictures one after the other; the stream goes on from one to the next."""

    def __init__(self, browser: Browser, service: Service, out: Path) -> None:
        self.browser, self.service, self.out = browser, service, out
        self.data = load_dataset(str(bundled_sample()))
        self.order = make_stream(self.data, 0).order[:IMAGES]
        labels = [self.data.samples[index].label or 0 for index in self.order]
        self.truth = {photo(t): self.data.classes[label] for t, label in enumerate(labels)}

    def all(self) -> None:
        with serving(self.service) as url:
            page = self.open(url)
            self.keep(page, "none")
            self.create("sample", list(self.data.classes))
            page.reload()
            page.wait_for_selector("text=No image has come yet")
            self.keep(page, "empty")
            self.feed("sample")
            page.wait_for_selector("#question:not([hidden])")
            self.label(page, 6)
            self.keep(page, "asking")
            self.dialogs(page)
            self.variants(url)
            self.thousand(url)
            self.dashboard(url)
            self.folder(url)
        page.wait_for_selector("text=Connection lost")
        page.locator(".guess").first.click()
        page.wait_for_selector("text=Not saved yet")
        self.keep(page, "lost")

    def create(self, name: str, classes: list[str]) -> None:
        beginning = StreamConfig(name, classes, "view_ensemble+", SETTINGS, seed=0, deadline=None, hold=0.0)
        self.service.create(beginning, "recipe")

    def feed(self, stream: str, images: int = IMAGES) -> None:
        for t, index in enumerate(self.order[:images]):
            data, name = self.data.read(index), photo(t)
            sent = self.service.send(stream, lambda live, d=data, n=name: live.predict(d, n, "recipe"))
            sent.result()

    def open(self, url: str, size: dict[str, int] = DESK, **options: Any) -> Page:
        page = self.browser.new_context(viewport=size, **options).new_page()
        page.set_default_timeout(120_000)
        page.goto(url)
        return page

    def keep(self, page: Page, name: str, *, whole: bool = False) -> None:
        """Save what is on the screen, when it has come to rest."""
        page.wait_for_timeout(1200)
        save(page.screenshot(full_page=whole), self.out / f"{name}.webp")

    def label(self, page: Page, count: int, last: str = "text=of the last") -> None:
        """Answer as somebody would who knows: the right class by name; then wait for what comes last."""
        for _ in range(count):
            name = page.inner_text("#name")
            page.keyboard.press("/")
            page.keyboard.type(self.truth[name])
            page.keyboard.press("Enter")
            page.wait_for_function(
                "name => document.querySelector('#question').hidden "
                "|| document.querySelector('#name').textContent !== name",
                arg=name,
            )
            page.wait_for_selector("#question:not([hidden]), #after:not([hidden])")
        page.wait_for_selector(last)

    def dialogs(self, page: Page) -> None:
        self.keep(page, "grid", whole=True)
        page.keyboard.press("?")
        self.keep(page, "help")
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        page.keyboard.type("lighthouse")
        self.keep(page, "new-class")
        page.keyboard.press("Escape")
        page.locator("#recent li.unqueried button").first.click()
        self.keep(page, "correct")
        page.keyboard.press("Escape")
        page.evaluate("scrollTo(0, 0)")

    def variants(self, url: str) -> None:
        for name, size, options in (
            ("dark", DESK, {"color_scheme": "dark"}),
            ("phone", PHONE, {"has_touch": True, "is_mobile": True}),
            ("phone-dark", PHONE, {"has_touch": True, "is_mobile": True, "color_scheme": "dark"}),
        ):
            page = self.open(url, size, **options)
            page.wait_for_selector("#question:not([hidden])")
            self.keep(page, name)
            page.context.close()

    def thousand(self, url: str) -> None:
        """A thousand classes, and somebody who makes a slip of the finger."""
        self.create("thousand", sorted(set(imagenet_names().values())))
        self.feed("thousand", 12)
        page = self.open(f"{url}/?stream=thousand")
        page.wait_for_selector("#question:not([hidden])")
        page.keyboard.press("/")
        page.keyboard.type("retreiver")
        self.keep(page, "thousand")
        page.context.close()

    def folder(self, url: str) -> None:
        """A folder: how far it is, that it is done, and the review with images that are chosen."""
        questions, names = 12, [photo(t) for t in range(IMAGES)]
        made = Folder(self.service, "photos", self.data, self.order, names.__getitem__)
        settings = SETTINGS | {"rate": questions / IMAGES} | pool_settings(questions, IMAGES)
        classes = sorted({self.truth[name] for name in names})
        beginning = StreamConfig("photos", classes, "view_ensemble+", settings, 0, None, 0.0)
        made.begin(beginning, given=True, questions=questions)
        page = self.open(f"{url}/?stream=photos")
        acts = (made.feed, made.finish, made.repredict_all)
        working = threading.Thread(target=lambda: [act(lambda done: None) for act in acts])
        working.start()
        page.wait_for_selector("#question:not([hidden])")
        self.label(page, 6)
        self.keep(page, "progress")
        self.label(page, 6, last="#after:not([hidden])")
        self.keep(page, "done")
        working.join()
        page.click("#look")
        page.wait_for_selector("#images li")
        for place in (1, 3, 4):
            page.locator("#images button").nth(place).click()
        self.keep(page, "review")
        page.context.close()

    def dashboard(self, url: str) -> None:
        for name, options in (("dashboard", {}), ("dashboard-dark", {"color_scheme": "dark"})):
            page = self.open(f"{url}/streams/sample", **options)
            page.wait_for_selector("#events li")
            self.keep(page, name, whole=True)
            page.context.close()


if __name__ == "__main__":
    main()
