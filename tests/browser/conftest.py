"""Debian's chromium, headless, against a service with the tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taps.model.clip import Clip
from taps.serve.service import Service
from taps.serve.store import Store

pytest.importorskip("playwright", reason="playwright is not installed")
from tests.browser.site import Site, browsing, chromium, visiting


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    if chromium() is None:
        pytest.skip("there is no chromium here (Debian: apt-get install chromium)")
    with browsing() as opened:
        yield opened


@pytest.fixture
def site(tiny: Clip, tmp_path: Path) -> Iterator[Site]:
    made = Site(lambda: Service(Store(str(tmp_path / "store")), tiny))
    yield made
    made.close()


@pytest.fixture
def page(browser: Any, site: Site) -> Iterator[Any]:
    """A page whose scripts must not fail, and whose policy must not be broken."""
    wrong: list[str] = []
    with visiting(browser, viewport={"width": 1280, "height": 900}) as opened:
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on(
            "console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None
        )
        opened.on("dialog", lambda dialog: wrong.append(dialog.message))
        yield opened
    assert wrong == []
