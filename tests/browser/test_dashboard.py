"""The dashboard in a browser: its numbers are the store's, and they change as things happen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from taps.serve.tokens import Tokens
from taps.types import Answer
from tests.browser.site import Site, violations
from tests.serve.test_review import folder_of


def tiles(page: Any) -> dict[str, list[str]]:
    return page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#tiles div')].map(tile => "
        "[tile.querySelector('dt').textContent, [...tile.querySelectorAll('dd')].map(dd => dd.textContent)]))"
    )


def test_the_numbers_are_the_stores_and_live(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(10))
    rows = site.service.store.predictions(site.service.stream("pets").id)
    for row in rows[:6]:
        label = row.label if row.id % 3 else next(name for name, _ in row.top if name != row.label)
        site.service.send(
            "pets", lambda live, row=row, label=label: live.label(row.id, label, "test")
        ).result()
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#accuracy svg")
    shown = tiles(page)
    assert (shown["Images"][0], shown["Questions"][0], shown["Waiting"][0]) == ("10", "10", "4")
    low, high = wilson(4, 6)
    assert shown["Right where asked"][0] == "67 %"
    assert f"{100 * low:.0f} % to {100 * high:.0f} %" in shown["Right where asked"][1]
    assert shown["Right of all"][0] == "67 %"  # every image is asked about here
    assert page.locator("#score circle").count() == 10
    cells = page.locator("#confusion td.wrong").all_inner_texts()
    assert sum(map(int, cells)) == 2
    assert page.locator("#memory rect").count() == len({row.answer for row in answered(site)})
    site.feed(range(10, 12))
    page.wait_for_function(
        "() => document.querySelector('#tiles dd').textContent === '12' "
        "&& document.querySelectorAll('#score circle').length === 12"
    )
    assert "image-11.png" in page.locator("#events li").first.inner_text()


def test_what_another_rule_asks_by_is_drawn_with_its_threshold(site: Site, page: Any) -> None:
    site.create(method="zero_shot+", settings={"acquisition": "margin", "rate": 0.3, "explore": 0.3})
    site.feed(range(30))
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#score svg")
    assert page.inner_text("#score-title") == "Score by margin, and when it asks"
    assert page.locator("#score .limit").count() == 2  # the line, and its key
    heights = page.evaluate(
        "[...document.querySelectorAll('#score circle')]"
        ".sort((a, b) => a.cx.baseVal.value - b.cx.baseVal.value).map(dot => -dot.cy.baseVal.value)"
    )
    rows = site.service.store.predictions(site.service.stream("pets").id)
    usual = max(
        row.score for row in rows if row.score < 1
    )  # one drawn at random has a score above all others
    assert usual < max(row.score for row in rows)
    assert spread(heights) == pytest.approx(spread([min(row.score, usual) for row in rows]), abs=0.01)


def test_a_folder_has_no_threshold(pictures: Path, site: Site, page: Any) -> None:
    made = folder_of(site.service, pictures)
    made.feed(lambda done: None)
    page.goto(f"{site.url}/streams/photos")
    page.wait_for_selector("#score svg")
    assert page.locator("#score .limit").count() == 0
    assert "no threshold" in page.inner_text("#score-note")


def test_a_threshold_above_every_score_is_not_drawn_among_them(site: Site, page: Any) -> None:
    settings = {"acquisition": "margin", "policy": "fixed", "tau0": 99.0}
    site.create(method="zero_shot+", settings=settings)
    site.feed(range(6))
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#score svg")
    assert page.locator("#score polyline.limit").count() == 0


def test_an_error_rate_needs_several_annotators_and_twenty_answers(site: Site, page: Any) -> None:
    site.create(method="zero_shot+", settings={"rate": 1.0})
    site.feed(range(30))

    def answer(id: int, who: str) -> None:
        site.service.send("pets", lambda live: live.label(id, Answer("cat", annotator=who), who)).result()

    def rates() -> dict[str, str]:
        page.goto(f"{site.url}/streams/pets")
        page.wait_for_selector("#people tbody")
        rows = page.locator("#people tbody tr").all()
        return {row.locator("th").inner_text(): row.locator("td").nth(1).inner_text() for row in rows}

    for id in range(22):
        answer(id, "Ann")
    assert rates() == {"Ann": "–"}
    answer(22, "Bob")
    found = rates()
    assert found["Bob"] == "–"
    assert found["Ann"].endswith("%")


def test_every_event_is_told_in_words(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(1))
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("text=Live")
    act = site.service.send
    for key in ("first", "second"):  # the second changes nothing, and is on record for its key
        act("pets", lambda session, key=key: session.label(0, "dog", "test", key)).result()
    act("pets", lambda session: session.undo(0, "test")).result()
    act("pets", lambda session: session.skip(0, "test")).result()
    act("pets", lambda session: session.add_classes(["bird"], "test")).result()
    page.wait_for_selector("#events li.classes_added")
    kinds = page.eval_on_selector_all("#events li b", "all => all.map(each => each.textContent)")
    assert kinds[:5] == ["classes_added", "skipped", "undone", "repeated", "answered"]


def test_a_yes_or_no_takes_part_of_the_budget(site: Site, page: Any) -> None:
    settings = {"rate": 0.6, "questions": "yes_no", "class_seconds": 10.0, "yes_no_seconds": 5.0}
    site.create(method="zero_shot+", settings=settings)
    site.feed(range(12))
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#budget svg")
    asked = [row.state == "open" for row in site.service.store.predictions(site.service.stream("pets").id)]
    assert sum(asked[1:]) > 2
    put, allowed = (
        page.evaluate(
            "name => { const points = document.querySelector(`#budget polyline.${name}`).points; "
            "return points[0].y - points[points.length - 1].y; }",
            name,
        )
        for name in ("line", "limit")
    )
    assert put / allowed == pytest.approx(0.5 * sum(asked[1:]) / (0.6 * 11), abs=0.01)


def spread(values: list[float]) -> list[float]:
    """From 0, the lowest, to 1, the highest."""
    return [(value - min(values)) / (max(values) - min(values)) for value in values]


def answered(site: Site) -> list[Any]:
    rows = site.service.store.predictions(site.service.stream("pets").id)
    return [row for row in rows if row.answer is not None]


def wilson(right: int, all: int, z: float = 1.959964) -> tuple[float, float]:
    """The two roots p of (p̂ − p)² = z² p (1 − p) / n."""
    share = right / all
    a, b, c = 1 + z * z / all, -(2 * share + z * z / all), share * share
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def test_a_session_that_is_over_is_told_of(site: Site, page: Any) -> None:
    site.create()
    tokens = Tokens(site.service.store)
    token, secret = tokens.create("anne", ("label",))
    page.wait_for_timeout(1100)  # a list of tokens is good for a second
    page.goto(f"{site.url}/streams/pets")
    page.fill("#token", secret)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Live")
    tokens.revoke(token.id)
    page.wait_for_timeout(1100)
    site.feed(range(1))
    page.wait_for_selector("#sign-in[open]")
    page.fill("#token", tokens.create("anne", ("label",))[1])
    page.wait_for_timeout(1100)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=1 image")
    assert violations(page) == []
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_selector("#sign-in[open]")
    assert page.context.cookies() == []
