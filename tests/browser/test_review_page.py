"""The review page in a browser: the least sure first, corrections of several, predictions accepted, files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taps.model.clip import Clip
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from tests.browser.site import violations, visiting
from tests.serve.test_review import Running, folder_of

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@pytest.fixture
def running(pictures: Path, tiny: Clip, tmp_path: Path) -> Iterator[Running]:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = folder_of(service, pictures)
        with serving(service) as url:
            made.feed(lambda done: None)
            running = Running(service, made, url)
            with running.http:
                running.finish()
                made.repredict_all(lambda done: None)
                yield running


@pytest.fixture(params=[DESK, PHONE], ids=["desk", "phone"])
def page(browser: Any, running: Running, request: Any) -> Iterator[Any]:
    wrong: list[str] = []
    with visiting(browser, viewport=request.param) as opened:
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.goto(f"{running.url}/streams/photos/review")
        opened.wait_for_selector("#images li")
        yield opened
    assert wrong == []


def test_images_are_corrected_accepted_and_taken_home(running: Running, page: Any, tmp_path: Path) -> None:
    assert page.locator("#images li").count() == 24
    assert page.locator("#images .answered").count() == 4
    assert violations(page) == []
    tiles = page.locator("#images li.open button")
    ids = [int(tiles.nth(k).get_attribute("data-id")) for k in (0, 1)]
    for id in ids:
        page.locator(f"#images [data-id='{id}']").click()
    assert "2 images chosen" in page.inner_text("#selected")
    page.locator("h1").click()
    page.keyboard.press("1")
    page.wait_for_selector("#last:has-text('Saved: “ant”, 2 images.')")
    now = {each["id"]: each for each in running.http.get("/review").json()}
    assert {(now[id]["by"], now[id]["label"]) for id in ids} == {("person", "ant")}
    left = next(each for each in now.values() if each["by"] == "model")
    page.select_option("#class", left["label"])
    page.locator("#above").fill("50")
    mine = [e for e in now.values() if e["by"] == "model" and e["label"] == left["label"]]
    sure = [each for each in mine if each["probability"] >= 0.5]
    wrong = sum(1 - each["probability"] for each in sure)
    words = f"Accept all above 50 %: {len(sure)} image{'s' * (len(sure) != 1)}, about {wrong:.0f} wrong"
    assert page.inner_text("#accept") == words
    if sure:
        page.click("#accept")
        page.wait_for_selector("#last:has-text('Accepted: ')")
        again = running.http.get("/review").json()
        assert {e["id"] for e in again if e["accepted_by"]} == {each["id"] for each in sure}
    with page.expect_download() as download:
        page.click("#csv")
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert len(rows) == 24


def test_more_questions_from_the_review_come_on_the_labelling_page(running: Running, page: Any) -> None:
    page.wait_for_selector("#progress:has-text('no question left')")
    page.click("#more")
    page.wait_for_url("**/?stream=photos")
    assert running.made.wanted == 24
    running.made.ask()
    page.wait_for_selector("#question:not([hidden])")
    page.wait_for_selector("#progress:has-text('20 questions left')")


def test_the_search_finds_images_by_name(running: Running, page: Any) -> None:
    name = running.http.get("/review").json()[5]["name"]
    page.fill("#search", name)
    assert page.locator("#images li").count() == 1


def test_images_alike_are_labelled_at_once_less_those_taken_out(running: Running, page: Any) -> None:
    now = {each["id"]: each for each in running.http.get("/review").json()}
    groups = [running.http.get(f"/predictions/{id}/alike").json()["ids"] for id in now]
    first, *others = max(groups, key=len)
    lone = next(ids[0] for ids in groups if len(ids) == 1 and now[ids[0]]["by"] == "model")
    page.locator(f"#images [data-id='{lone}']").focus()
    page.keyboard.press("a")
    page.wait_for_selector("#last:has-text('No other images')")
    page.locator(f"#images [data-id='{first}']").click()
    page.wait_for_selector(f"#alike:has-text('Also {len(others)} alike')")
    page.click("#alike")
    page.wait_for_selector("#last:has-text('all chosen')")
    shown = page.locator("#images button")
    assert [int(each.get_attribute("data-id")) for each in shown.all()] == [first, *others]
    assert page.locator("#images [aria-pressed=true]").count() == 1 + len(others)
    assert violations(page) == []
    page.locator(f"#images [data-id='{others[-1]}']").click()
    page.keyboard.press("y")
    page.wait_for_selector("#last:has-text('Saved: ')")
    then = {each["id"]: each for each in running.http.get("/review").json()}
    named = {id for id in then if then[id]["by"] == "person" != now[id]["by"]}
    assert named == {first, *others[:-1]}
    assert {then[id]["label"] for id in named} == {now[first]["label"]}
    assert running.http.get("/stats").json()["learner"]["answered"] == 4 + len(named)
    assert shown.count() == 24
