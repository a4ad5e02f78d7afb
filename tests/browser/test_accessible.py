"""axe-core finds nothing wrong with any state of the pages, in light and dark, wide and narrow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.site import Site, act_and_wait, settled, shown, violations

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.mark.parametrize(("scheme", "size"), [("light", DESK), ("dark", PHONE)])
def test_no_violation_in_any_state(site: Site, page: Any, scheme: str, size: dict[str, int]) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(size)
    page.goto(site.url)
    page.wait_for_selector("text=No stream yet")
    assert violations(page) == []
    site.create()
    page.reload()
    page.wait_for_selector("text=No image has come yet")
    assert violations(page) == []
    site.feed(range(4))
    shown(page)
    act_and_wait(page, lambda: page.locator(".guess").first.click())
    settled(page)
    page.wait_for_selector("#recent li")
    assert violations(page) == []
    page.get_by_role("combobox", name="Another class").fill("o")
    assert violations(page) == []
    page.keyboard.press("Escape")
    for open, dialog in (("#help-button", "#help"), ("#new", "#add"), ("#recent button", "#correct")):
        page.click(open)
        page.wait_for_selector(f"{dialog}[open]")
        assert violations(page) == []
        page.keyboard.press("Escape")
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#events li")
    assert violations(page) == []


def test_the_way_of_the_focus(site: Site, page: Any) -> None:
    """Tab goes from the question to the guesses, the search, the buttons; after an answer it begins anew."""
    site.create()
    site.feed(range(3))
    page.goto(site.url)
    shown(page)
    page.wait_for_function("() => document.activeElement.id === 'question'")
    visited = []
    for _ in range(9):
        page.keyboard.press("Tab")
        visited.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert visited == ["guess"] * 5 + ["finder-1", "new", "none", "skip"]
    page.keyboard.press("Shift+Tab")
    act_and_wait(page, lambda: page.keyboard.press("Enter"))
    page.wait_for_function("() => document.activeElement.id === 'question'")
    assert "Next image: image-1.png. 1: " in page.inner_text("#spoken")
