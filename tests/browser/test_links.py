"""A folder labelled by several people: links with a token, names, and what is told while all is predicted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from taps.cli.link import Links, linked
from taps.model.clip import Clip
from taps.serve.folder import Folder
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.browser.site import act_and_wait, settled, shown, violations, visiting
from tests.serve.test_review import folder_of

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


class Shared:
    """A folder served to other machines, and the links to it."""

    def __init__(self, made: Folder, url: str, links: Links) -> None:
        self.made, self.url, self.links = made, url, links


@pytest.fixture
def shared(pictures: Path, tiny: Clip, tmp_path: Path) -> Iterator[Shared]:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = folder_of(service, pictures)
        with linked(service, "photos", "0.0.0.0") as links, serving(service) as url:
            made.feed(lambda done: None)
            yield Shared(made, url, links)


def test_two_people_come_by_the_link_and_answer_under_their_names(
    shared: Shared, browser: Any, tmp_path: Path
) -> None:
    assert httpx.get(f"{shared.url}/v1/streams/photos/queries", trust_env=False).status_code == 401
    answered = {}
    for name, size, role in (("Ann", PHONE, shared.links.others), ("Bob  Ray", DESK, shared.links.own)):
        with visiting(browser, viewport=size) as page:
            page.goto(f"{shared.url}/?stream=photos{role}")
            page.wait_for_selector("#sign-in[open]")
            assert page.inner_text("#sign-in h2") == "Who are you?"
            assert violations(page) == []
            page.fill("#sign-in input", name)
            page.keyboard.press("Enter")
            answered[shown(page)] = name
            assert "token" not in page.url
            act_and_wait(page, lambda page=page: page.keyboard.press("1"))
            settled(page)
            page.goto(f"{shared.url}/streams/photos")
            page.wait_for_selector("#people th[scope=row]")
            assert "Ann" in page.inner_text("#people")
            if name != "Ann":
                assert page.inner_text("#people tbody").split("\n")[0].split("\t")[:2] == ["Ann", "1"]
                assert "Bob Ray" in page.inner_text("#people")
                assert page.inner_text("#events").count("is asked about") >= 1
                assert violations(page) == []
    labels, _ = shared.made.write(tmp_path)
    rows = list(csv.DictReader(labels.read_text().splitlines()))
    assert {row["path"]: row["who"] for row in rows} == {
        image: " ".join(name.split()) for image, name in answered.items()
    }


def test_links_end_with_the_command(pictures: Path, tiny: Clip, tmp_path: Path) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        folder_of(service, pictures)
        with linked(service, "photos", "127.0.0.1") as links:
            assert links == Links()  # nobody needs a token
        with linked(service, "photos", "0.0.0.0") as links:
            assert [token.revoked for token in Tokens(service.store).list()] == [None, None]
        assert all(token.revoked for token in Tokens(service.store).list())
        with linked(service, "photos", "127.0.0.1") as links:  # from now on everybody does
            assert links.own.startswith("#token=")
            assert not links.others


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_bar_says_that_everything_is_predicted_again(
    pictures: Path, tiny: Clip, tmp_path: Path, browser: Any, size: Any
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        made = folder_of(service, pictures)
        made.want(0)
        with serving(service) as url, visiting(browser, viewport=size) as page:
            made.feed(lambda done: None)
            made.phase, made.done = "predicting", 6
            page.goto(f"{url}/?stream=photos")
            page.wait_for_selector("#empty-title:has-text('Predicting every image again')")
            bar = page.locator("#busy")
            assert bar.is_visible()
            assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("6", "24")
            assert "appears here" not in page.inner_text("#empty")
            made.phase = "done"
            page.wait_for_selector("#after:not([hidden])")
            assert bar.is_hidden()
