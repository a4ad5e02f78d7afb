"""`taps label` from the first question to the sorted folder, as a person goes through it."""

from __future__ import annotations

import csv
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from taps.cli.label import Ending, stream_through, wait_for_more
from taps.model.clip import Clip
from taps.serve.folder import Folder
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.streams.options import SortOptions
from taps.streams.predict import load_learner
from tests.browser.site import act_and_wait, settled, shown, violations, visiting
from tests.serve.test_review import folder_of

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@contextmanager
def working(*acts: Callable[[], object]) -> Iterator[None]:
    """Have things done one after the other, as the command does, while somebody is at the page."""
    thread = threading.Thread(target=lambda: [act() for act in acts], daemon=True)
    thread.start()
    yield
    thread.join()


def answer_all(page: Any) -> int:
    """Answer truly until all is done; how many questions there were."""
    count = 0
    while True:
        page.wait_for_function(
            "() => !document.querySelector('#question').hidden || !document.querySelector('#after').hidden"
        )
        if page.is_hidden("#question"):
            return count
        truth = shown(page).split("/")[0]
        act_and_wait(page, lambda truth=truth: page.locator(f"#guesses button:has-text('{truth}')").click())
        settled(page)
        count += 1


def table(place: Path) -> dict[str, str]:
    rows = csv.DictReader((place / "predictions.csv").read_text().splitlines())
    return {row["path"]: row["final"] for row in rows}


def sorted_images(place: Path) -> dict[str, str]:
    files = list(place.glob("*/*"))
    found = {file.name.replace("__", "/"): file.parent.name for file in files}
    assert len(found) == len(files)  # none lies in two folders
    return found


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_from_the_first_question_to_the_sorted_folder(
    pictures: Path, tiny: Clip, tmp_path: Path, browser: Any, size: dict[str, int]
) -> None:
    wrong: list[str] = []
    with Service(Store(str(tmp_path / "store")), tiny) as service, serving(service) as url:
        made = folder_of(service, pictures)
        ending = Ending(tmp_path / "store", made.dataset, SortOptions(tmp_path / "sorted", sure=0.0))
        through = lambda: stream_through(Console(file=io.StringIO()), made, ending)  # noqa: E731
        with (
            visiting(browser, viewport=size, has_touch=size is PHONE) as page,
            working(through, lambda: wait_for_more(made), through),
        ):
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(f"{url}/?stream=photos")
            assert answer_all(page) == 4
            assert page.inner_text("#empty-title") == "All 24 images are done"
            assert str(tmp_path / "store") in page.inner_text("#command")
            assert violations(page) == []
            page.click("#look")
            correct_two(page, made, by_keys=size is DESK)
            take_home(page, tmp_path / "home")
            page.click("#more")
            page.wait_for_url("**/?stream=photos")
            assert answer_all(page) == 24 - 4 - 1  # one was corrected: it is known
            page.wait_for_selector("#empty-title:has-text('All 24 images are done')")
    assert wrong == []
    assert table(tmp_path / "store") == {name: name.split("/")[0] for name in map(made.name, range(24))}
    assert sorted_images(tmp_path / "sorted") == table(tmp_path / "store")


def correct_two(page: Any, made: Folder, *, by_keys: bool) -> None:
    """Correct two images at once, take that back, and correct one of them."""
    page.wait_for_selector("#images li.open")
    tiles = page.locator("#images button")
    ids = [int(tiles.nth(place).get_attribute("data-id")) for place in (0, 1)]
    truth = made.name(ids[1]).split("/")[0]  # ids are places here
    if by_keys:
        tiles.nth(0).focus()
        for key in ("Space", "ArrowRight", "Space"):
            page.keyboard.press(key)
    else:
        tiles.nth(0).tap()
        tiles.nth(1).tap()
    assert page.inner_text("#selected").startswith("2 images chosen")
    assert violations(page) == []
    page.locator(f"#names button:has-text('{truth}')").click()
    page.wait_for_selector("#last:has-text('2 images')")
    assert {belief.row.answer for belief in made.beliefs() if belief.row.id in ids} == {truth}
    page.click("#undo")
    page.wait_for_selector("#last:has-text('Undone: 2 images')")
    assert {belief.by for belief in made.beliefs() if belief.row.id in ids} == {"model"}
    page.locator(f"#images [data-id='{ids[1]}']").focus()
    page.keyboard.press(str(1 + made.dataset.classes.index(truth)))
    page.wait_for_selector("#last:has-text('1 image.')")


def take_home(page: Any, place: Path) -> None:
    """Download all there is, and use it."""
    for what in ("csv", "zip", "learner"):
        with page.expect_download() as download:
            page.click(f"#{what}")
        download.value.save_as(place / what)
    rows = list(csv.DictReader((place / "csv").read_text().splitlines()))
    with zipfile.ZipFile(place / "zip") as archive:
        folders = [name.split("/")[0] for name in archive.namelist()]
    assert sorted(folders) == sorted(row["final"] for row in rows)
    assert load_learner(place / "learner").answered == 5


def test_every_page_has_questions_of_its_own(
    pictures: Path, tiny: Clip, tmp_path: Path, browser: Any
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service, serving(service) as url:
        made = folder_of(service, pictures)
        made.want(6)
        made.feed(lambda done: None)
        with (
            visiting(browser, viewport=DESK) as ann,
            visiting(browser, viewport=PHONE) as bob,
            working(lambda: made.finish(lambda done: None)),
        ):
            for page in (ann, bob):
                page.goto(f"{url}/?stream=photos")
            assert shown(ann) != shown(bob)
            while made.counts()["answered"] < 6:
                for page in (ann, bob):
                    if page.is_visible("#question"):
                        act_and_wait(page, lambda page=page: page.keyboard.press("1"))
                        settled(page)
