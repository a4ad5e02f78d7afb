"""The labelling page in a browser: by keyboard, by touch, by two people, without a connection."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import httpx
import pytest

from taps.serve.leases import Leases
from taps.serve.tokens import Tokens
from tests.browser.site import (
    CLASSES,
    FLAGS,
    NEVER,
    Site,
    act_and_wait,
    chromium,
    settled,
    shown,
    violations,
    visiting,
)
from tests.serve.patient import LONG

# From here on: all that the page says of what was done last.
TOLD = """() => {
    const last = document.querySelector("#last");
    globalThis.told = [];
    new MutationObserver(() => told.push(last.textContent)).observe(last, {childList: true});
}"""


def test_thirty_questions_by_keyboard(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(31))
    page.goto(site.url)
    expected: dict[str, str | None] = {}
    for number in range(30):
        name = shown(page)
        guesses = page.locator("#guesses .label").all_inner_texts()
        if number % 10 == 7:
            wanted: str | None = "golden retriever"
            page.keyboard.press("/")
            page.keyboard.type("retr")
            act_and_wait(page, lambda: page.keyboard.press("Enter"))
        elif number == 4:
            wanted = None
            act_and_wait(page, lambda: page.keyboard.press("s"))
        elif number == 9:
            wanted = "lighthouse"
            page.keyboard.press("n")
            page.keyboard.type(wanted)
            act_and_wait(page, lambda: page.keyboard.press("Enter"))
        else:
            wanted = guesses[number % 3]
            act_and_wait(page, partial(page.keyboard.press, str(1 + number % 3)))
        expected[name] = wanted
    settled(page)
    page.wait_for_selector("text=of the last")  # the second look
    assert site.answers() == {name: label for name, label in expected.items() if label}
    assert [name for name, state in site.states().items() if state == "skipped"] == ["image-4.png"]


def test_an_answer_is_taken_back_by_keyboard(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(4))
    page.goto(site.url)
    first = shown(page)
    act_and_wait(page, lambda: page.keyboard.press("1"))
    act_and_wait(page, lambda: page.keyboard.press("u"))
    assert shown(page) == first
    assert site.answers() == {}
    act_and_wait(page, lambda: page.keyboard.press("2"))
    settled(page)
    assert list(site.answers()) == [first]


def test_an_answer_on_its_way_is_taken_back(site: Site, page: Any) -> None:
    """Also before the page hears of events: what was sent is saved, and must be taken back there."""
    site.create()
    site.feed(range(4))
    sent: list[Any] = []
    page.route("**/events?*", lambda route: None)
    for each in ("**/label", "**/changes?*"):
        page.route(each, lambda route: sent.append(route))
    page.goto(site.url)
    first = shown(page)
    act_and_wait(page, lambda: page.keyboard.press("1"))
    while not sent:
        page.wait_for_timeout(10)
    page.keyboard.press("u")
    with page.expect_response("**/label"):
        sent[0].continue_()
    page.wait_for_selector("text=Undone")
    with page.expect_response("**/changes?*"):
        sent[1].continue_()
    assert "Undone" in page.inner_text("#last")  # what the answer changed is of no interest any more
    assert shown(page) == first
    assert site.answers() == {}


def test_an_answer_given_anew_is_not_somebody_elses(site: Site, page: Any) -> None:
    """The question was asked for again after the undo, and is answered again before it comes."""
    site.create()
    site.feed(range(4))
    page.goto(site.url)
    first = shown(page)
    act_and_wait(page, lambda: page.keyboard.press("1"))
    page.wait_for_selector("text=of the last")
    asked: list[Any] = []
    page.route("**/lease", lambda route: route.continue_() if asked else asked.append(route))
    act_and_wait(page, lambda: page.keyboard.press("u"))
    while not asked:
        page.wait_for_timeout(10)
    page.evaluate(TOLD)
    act_and_wait(page, lambda: page.keyboard.press("2"))
    settled(page)
    with page.expect_response("**/lease"):
        asked[0].continue_()
    page.wait_for_timeout(200)
    assert list(site.answers()) == [first]
    assert not [said for said in page.evaluate("told") if "elsewhere" in said]


def test_a_question_taken_back_stays_while_others_are_asked_for(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(2))
    page.goto(site.url)
    first, leased = shown(page), []

    def lease(route: Any) -> None:
        if leased:
            return route.continue_()
        site.feed(range(2, 4))
        leased.append((route, route.fetch()))

    page.route("**/lease", lease)
    act_and_wait(page, lambda: page.keyboard.press("1"))
    page.wait_for_selector("#recent .answered")
    while not leased:
        page.wait_for_timeout(10)
    assert len(leased[0][1].json()) == 3  # so many others are held now; the page has not been told
    page.evaluate(TOLD)
    act_and_wait(page, lambda: page.keyboard.press("u"))
    site.feed(range(4, 5))
    page.wait_for_selector("#recent [data-id='4']")  # heard of: questions are to be asked for once more
    with page.expect_response(
        lambda each: each.url.endswith("/lease") and each.request != leased[0][0].request
    ):
        leased[0][0].fulfill(response=leased[0][1])
    page.wait_for_timeout(200)
    assert shown(page) == first
    assert not [said for said in page.evaluate("told") if "elsewhere" in said]


def test_keys_can_be_turned_off(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(2))
    page.goto(site.url)
    first = shown(page)
    page.keyboard.press("?")
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    page.keyboard.press("1")
    page.reload()
    assert shown(page) == first
    page.keyboard.press("1")
    assert shown(page) == first
    assert set(site.states().values()) == {"open"}


def test_five_by_touch_on_a_phone(site: Site, browser: Any) -> None:
    site.create()
    site.feed(range(6))
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with visiting(browser, **phone, device_scale_factor=2) as page:
        page.goto(site.url)
        expected = {}
        for number in range(5):
            name, button = shown(page), page.locator(".guess").nth(number % 3)
            expected[name] = button.locator(".label").inner_text()
            act_and_wait(page, button.tap)
        settled(page)
        assert site.answers() == expected
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        sizes = page.evaluate(
            """[...document.querySelectorAll("button, select, input")]
            .filter((each) => each.checkVisibility())
            .map((each) => each.getBoundingClientRect()).map(({width, height}) => Math.min(width, height))"""
        )
    assert sizes
    assert min(sizes) >= 44


def test_two_annotators_never_see_the_same_question(site: Site, browser: Any) -> None:
    site.create()
    site.feed(range(12))
    with visiting(browser) as anne, visiting(browser) as bert:
        answer_side_by_side(site, [anne, bert])


def answer_side_by_side(site: Site, pages: list[Any]) -> None:
    for page in pages:
        page.goto(site.url)
    seen: list[set[str]] = [set(), set()]
    shown(pages[0]), shown(pages[1])
    while len(seen[0] | seen[1]) < 12:
        for own, page in zip(seen, pages, strict=True):
            if page.is_visible("#question"):
                name = shown(page)
                assert name not in seen[0] | seen[1]
                own.add(name)
                act_and_wait(page, partial(page.keyboard.press, "1"))
    for page in pages:
        settled(page)
        page.wait_for_selector("#empty:not([hidden])")
    assert min(map(len, seen)) > 2
    assert seen[0] | seen[1] == set(site.answers()) == set(site.states())
    site.feed(range(20, 21))  # both are told of it, one gets it
    pages[0].wait_for_function(
        "() => !document.querySelector('#question').hidden "
        "|| document.body.textContent.includes('other annotators')"
    )


def test_who_takes_an_answer_back_has_the_question_before_others(site: Site, browser: Any) -> None:
    site.create()
    site.feed(range(1))
    with visiting(browser) as anne, visiting(browser) as bert:
        anne.goto(site.url)
        first = shown(anne)
        act_and_wait(anne, lambda: anne.keyboard.press("1"))
        settled(anne)
        bert.goto(site.url)
        bert.wait_for_selector("text=Nothing to answer now")
        bert.evaluate("() => Object.defineProperty(document, 'hidden', {value: true})")  # he looks elsewhere
        asked: list[Any] = []
        anne.route("**/lease", lambda route: route.continue_() if asked else asked.append(route))
        anne.keyboard.press("u")
        bert.wait_for_selector("#recent .open")
        while not asked:
            anne.wait_for_timeout(10)
        with anne.expect_response("**/lease") as leased:
            asked[0].continue_()
        assert [each["prediction"]["name"] for each in leased.value.json()] == [first]
        assert shown(anne) == first


def test_a_page_that_is_closed_gives_its_questions_back(site: Site, browser: Any) -> None:
    site.create()
    site.feed(range(2))
    with visiting(browser) as page, visiting(browser) as other:
        page.goto(site.url)
        shown(page)
        other.goto(site.url)
        other.wait_for_selector("text=Others are on it")
        page.goto("about:blank")
        leases, end = f"{site.url}/v1/streams/pets/queries/lease", time.monotonic() + LONG
        while len(other.request.post(leases, data={"holder": "somebody", "count": 2}).json()) < 2:
            assert time.monotonic() < end, "they were not given back"
        other.request.post(leases, data={"holder": "somebody", "count": 0})
        site.feed(range(2, 3))  # news: the other page asks again
        assert shown(other) == "image-0.png"


def test_a_browser_that_is_killed_keeps_no_question(
    site: Site, page: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Leases, "__init__", partialmethod(Leases.__init__, patience=1e9))
    site.stop()
    site.start()
    site.create()
    site.feed(range(1))
    words = [chromium(), *FLAGS, "--headless", f"--user-data-dir={tmp_path}", site.url]
    killed = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)  # type: ignore
    try:
        end, leases = time.monotonic() + LONG, f"{site.url}/v1/streams/pets/queries/lease"
        while httpx.post(leases, json={"holder": "somebody", "count": 1}).json():
            httpx.post(leases, json={"holder": "somebody", "count": 0})
            assert time.monotonic() < end, "the browser takes no question"
            time.sleep(0.5)
        page.goto(site.url)
        page.wait_for_selector("text=Others are on it")
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert shown(page) == "image-0.png"


def test_a_question_that_somebody_left_lying_comes_to_another(
    site: Site, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing happens on the stream, and nobody says that he has gone."""
    late = [0.0]
    monkeypatch.setattr(
        Leases, "__init__", partialmethod(Leases.__init__, clock=lambda: time.time() + late[0])
    )
    site.stop()
    site.start()
    site.create()
    site.feed(range(1))
    held = httpx.post(f"{site.url}/v1/streams/pets/queries/lease", json={"holder": "gone-home", "count": 3})
    assert len(held.json()) == 1
    page.goto(site.url)
    page.wait_for_selector("text=Others are on it")
    late[0] = 600.0
    assert shown(page) == "image-0.png"


def test_answers_survive_a_lost_connection(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(6))
    page.goto(site.url)
    first = shown(page)
    page.wait_for_selector("text=Live")
    site.stop()
    page.wait_for_selector("text=Connection lost")
    act_and_wait(page, lambda: page.keyboard.press("1"))
    second = shown(page)
    act_and_wait(page, lambda: page.keyboard.press("2"))
    page.wait_for_selector("text=Not saved yet")
    site.start()
    page.wait_for_selector("text=Live")
    page.wait_for_function("() => document.querySelector('#alert').textContent === ''")
    settled(page)
    page.wait_for_selector("text=2 labelled")
    assert set(site.answers()) == {first, second}
    assert shown(page) not in (first, second)


def test_questions_come_without_a_reload(site: Site, page: Any) -> None:
    site.create()
    page.goto(site.url)
    page.wait_for_selector("text=No image has come yet")
    site.feed(range(1))
    assert shown(page) == "image-0.png"
    site.service.send("pets", lambda live: live.label(0, "dog", "another")).result()
    page.wait_for_selector("text=answered by somebody else")
    page.wait_for_selector("text=Nothing to answer now")


def test_a_prediction_nobody_was_asked_about_is_corrected(site: Site, page: Any) -> None:
    site.create(settings=NEVER)
    site.feed(range(3))
    page.goto(site.url)
    page.click("#recent li[data-id='1'] button")
    page.locator("#correct").get_by_role("combobox").fill("stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("#recent li.corrected")
    assert site.answers() == {"image-1.png": "stop sign"}
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("text=Undone")
    assert site.answers() == {}
    assert set(site.states().values()) == {"unqueried"}


def test_a_correction_may_be_none_of_the_classes_or_a_new_one(site: Site, page: Any) -> None:
    never = {"policy": "fixed", "tau0": 99.0, "acquisition": "entropy"}
    site.create(method="zero_shot+", settings=never)
    site.feed(range(3))
    page.goto(site.url)
    page.click("#recent li[data-id='1'] button")
    assert violations(page) == []
    page.keyboard.press("0")
    page.wait_for_selector("#recent li[data-id='1']:has-text('none of the classes')")
    page.click("#recent li[data-id='2'] button")
    page.locator("#correct").get_by_role("button", name="New class").click()
    page.fill("#add-name", "zebra")
    page.keyboard.press("Enter")
    page.wait_for_selector("#recent li[data-id='2']:has-text('zebra')")
    page.click("#recent li[data-id='0'] button")
    page.locator("#correct").get_by_role("combobox").fill("okapi")
    page.keyboard.press("Enter")
    assert page.input_value("#add-name") == "okapi"
    page.keyboard.press("Enter")
    page.wait_for_selector("#recent li[data-id='0']:has-text('okapi')")
    assert not page.query_selector("dialog[open]")
    assert site.answers() == {"image-2.png": "zebra", "image-0.png": "okapi"}
    rows = page.request.get(f"{site.url}/v1/streams/pets/predictions").json()
    assert [row["none"] for row in rows] == [False, True, False]


def test_a_class_that_was_added_is_listed_at_once(site: Site, page: Any) -> None:
    site.create(classes=["cat", "dog"])
    site.feed(range(4))
    page.goto(site.url)
    shown(page)
    page.keyboard.press("n")
    page.fill("#add-name", "zebra")
    act_and_wait(page, lambda: page.keyboard.press("Enter"))
    settled(page)
    assert page.inner_text("#guesses .label >> nth=2") == "zebra"
    site.service.send("pets", lambda live: live.add_classes(["okapi"], "another")).result()
    page.wait_for_selector("#guesses .label:text-is('okapi')")
    second = shown(page)
    act_and_wait(page, lambda: page.keyboard.press("4"))
    settled(page)
    assert site.answers()[second] == "okapi"


def test_a_new_class_that_is_there_already_is_taken(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(3))
    page.goto(site.url)
    given = {shown(page): "stop sign"}
    page.route("**/stats", lambda route: route.abort())  # it does not hear of classes from elsewhere
    for typed, expected in (("Stop_Sign", "stop sign"), ("Zebra", "zebra")):
        given[shown(page)] = expected
        if expected == "zebra":  # somebody else has just added it
            site.service.send("pets", lambda live: live.add_classes(["zebra"], "another")).result()
            page.unroute("**/stats")
        page.keyboard.press("n")
        page.fill("#add-name", typed)
        act_and_wait(page, lambda: page.keyboard.press("Enter"))
    settled(page)
    assert site.answers() == given


def test_a_token_is_asked_for_and_changed_for_a_session(site: Site, page: Any) -> None:
    site.create()
    site.feed(range(2))
    _, secret = Tokens(site.service.store).create("anne", ("label",))
    page.wait_for_timeout(1100)  # a list of tokens is good for a second
    page.goto(site.url)
    page.fill("#token", "taps_guess")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=not known")
    page.fill("#token", secret)
    page.keyboard.press("Enter")
    shown(page)
    act_and_wait(page, lambda: page.keyboard.press("1"))
    settled(page)
    assert list(site.answers()) == ["image-0.png"]
    assert secret not in page.evaluate("document.cookie + JSON.stringify(localStorage)")


@pytest.fixture
def anne(site: Site, page: Any) -> Any:
    """Somebody who has signed in; `tokens` makes and revokes tokens."""
    site.create()
    site.feed(range(2))
    page.tokens = Tokens(site.service.store)
    page.token, secret = page.tokens.create("anne", ("label",))
    page.wait_for_timeout(1100)  # a list of tokens is good for a second
    page.goto(site.url)
    sign_in(page, secret)
    shown(page)
    return page


def sign_in(page: Any, secret: str) -> None:
    page.fill("#token", secret)
    page.keyboard.press("Enter")


def revoke(page: Any) -> str:
    """The token counts no more; another that does."""
    page.tokens.revoke(page.token.id)
    _, secret = page.tokens.create("anne", ("label",))
    page.wait_for_timeout(1100)
    return str(secret)


def test_answers_wait_until_one_has_signed_in_again(site: Site, anne: Any) -> None:
    """However many requests were refused meanwhile."""
    secret = revoke(anne)
    anne.keyboard.press("1")
    anne.wait_for_selector("#sign-in[open]")
    with anne.expect_response("**/lease"):  # as it comes when leases are renewed
        anne.evaluate("Date.now = () => 1e15; document.dispatchEvent(new Event('pointerdown'))")
    sign_in(anne, secret)
    settled(anne)
    assert list(site.answers()) == ["image-0.png"]


def test_who_waits_for_questions_is_told_that_the_session_is_over(site: Site, anne: Any) -> None:
    for _ in range(2):
        act_and_wait(anne, lambda: anne.keyboard.press("1"))
    settled(anne)
    secret = revoke(anne)
    site.feed(range(2, 3))
    anne.wait_for_selector("#sign-in[open]")
    sign_in(anne, secret)
    assert shown(anne) == "image-2.png"


def test_a_token_that_may_not_label_is_refused_at_the_door(anne: Any) -> None:
    _, other = anne.tokens.create("camera", ("predict",))
    secret = revoke(anne)
    anne.reload()
    sign_in(anne, other)
    anne.wait_for_selector("text=ask for one with the role label")
    sign_in(anne, secret)
    anne.wait_for_selector("text=Live")
    assert anne.inner_text("#alert") == ""


def test_who_signs_out_gives_questions_back_and_ends_the_session(site: Site, anne: Any) -> None:
    cookies = anne.context.cookies()
    assert violations(anne) == []
    anne.get_by_role("button", name="Sign out").click()
    anne.wait_for_function("() => document.querySelector('#name').textContent === ''")
    anne.wait_for_selector("#sign-in[open]")
    assert anne.evaluate("document.activeElement.id") == "token"
    assert anne.locator("#sign-out").is_hidden()
    session = {"taps_session": cookies[0]["value"]}
    assert httpx.get(f"{site.url}/v1/streams", cookies=session).status_code == 401
    secret = anne.tokens.create("bob", ("label",))[1]
    anne.wait_for_timeout(1100)
    held = httpx.post(
        f"{site.url}/v1/streams/pets/queries/lease",
        json={"holder": "somebody", "count": 2},
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert len(held.json()) == 2


def test_answers_are_saved_before_one_is_signed_out(site: Site, anne: Any) -> None:
    anne.wait_for_selector("text=Live")
    site.stop()
    anne.wait_for_selector("text=Connection lost")
    act_and_wait(anne, lambda: anne.keyboard.press("1"))
    anne.get_by_role("button", name="Sign out").click()
    anne.wait_for_selector("text=You will be signed out when 1 answer is saved")
    assert anne.locator("#sign-in").is_hidden()
    site.start()
    anne.wait_for_selector("#sign-in[open]")
    assert list(site.answers()) == ["image-0.png"]


def test_an_answer_that_is_refused_keeps_one_signed_in(site: Site, anne: Any) -> None:
    sent: list[Any] = []
    anne.route("**/label", lambda route: sent.append(route))
    anne.keyboard.press("1")
    while not sent:
        anne.wait_for_timeout(10)
    anne.get_by_role("button", name="Sign out").click()
    sent[0].fulfill(status=422, json={"detail": "It makes no sense."})
    anne.wait_for_selector("text=Not saved: It makes no sense. You are still signed in.")
    anne.unroute("**/label")
    act_and_wait(anne, lambda: anne.keyboard.press("1"))
    act_and_wait(anne, lambda: anne.keyboard.press("1"))  # the one that was refused is asked again
    settled(anne)
    assert set(site.answers()) == {"image-0.png", "image-1.png"}


def test_where_no_token_is_needed_there_is_nothing_to_sign_out_of(site: Site, page: Any) -> None:
    site.create()
    page.goto(site.url)
    page.wait_for_selector("text=Live")
    assert page.locator("#sign-out").count() == 1
    assert page.locator("#sign-out").is_hidden()


@pytest.mark.parametrize("width", [360, 390, 430])
def test_what_is_said_is_seen_on_a_phone(site: Site, browser: Any, width: int) -> None:
    site.create()
    site.feed(range(12))
    with visiting(browser, viewport={"width": width, "height": 740}, has_touch=True, is_mobile=True) as page:
        page.goto(site.url)
        shown(page)
        counts = page.locator("#counts").bounding_box()
        assert counts is not None
        assert counts["height"] < 30  # one line
        page.evaluate("document.querySelector('#alert').textContent = 'Not saved yet.'")
        page.evaluate("window.scrollTo(0, 400)")
        place = page.locator("#alert").bounding_box()
        assert place is not None
        assert 0 <= place["y"] < 740


ATTACKS = ["<img src=x onerror=alert(1)>", '"><script>alert(2)</script>', "{{7*7}}${alert(3)}"]


def test_names_are_text_and_nothing_else(site: Site, page: Any) -> None:
    site.create(classes=[*CLASSES[:2], *ATTACKS])
    site.feed(range(4), name="<svg onload=alert(4)> {}.png")
    page.goto(site.url)
    assert shown(page) == "<svg onload=alert(4)> 0.png"
    assert set(ATTACKS) <= set(page.locator("#guesses .label").all_inner_texts())
    page.keyboard.press("/")
    page.keyboard.type("script")
    act_and_wait(page, lambda: page.keyboard.press("Enter"))
    page.keyboard.press("n")
    page.keyboard.type("<b onmouseover=alert(5)>bold</b>")
    act_and_wait(page, lambda: page.keyboard.press("Enter"))
    settled(page)
    assert list(site.answers().values()) == [ATTACKS[1], "<b onmouseover=alert(5)>bold</b>"]
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#confusion table")
    assert ATTACKS[1] in page.locator("#confusion th").all_inner_texts()
    page.goto(f"{site.url}/streams/%3Cimg%20src=x%20onerror=alert(6)%3E")
    page.wait_for_selector("text=No stream is named")
    assert page.inner_text("#title") == "<img src=x onerror=alert(6)>"
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("class 7", "class 7"),
        ("golden", "golden retriever"),
        ("retriever", "golden retriever"),
        ("goldne retr", "golden retriever"),
        ("retreiver", "golden retriever"),
        ("glr", "golden retriever"),
        ("eclair", "éclair"),
        ("ice_cream", "ice cream"),
    ],
)
def test_a_class_is_found_among_a_thousand(site: Site, page: Any, typed: str, expected: str) -> None:
    names = [f"class {number}" for number in range(997)] + ["golden retriever", "éclair", "ice cream"]
    page.goto(site.url)
    found = page.evaluate(
        "async ([typed, names]) => (await import('/web/find.js')).rank(typed, names)", [typed, names]
    )
    assert found[0]["name"] == expected
    assert found[0]["index"] == names.index(expected)


def test_yes_no_and_none_of_the_classes(site: Site, page: Any) -> None:
    site.create(method="zero_shot+", settings={"rate": 1.0, "questions": "yes_no"})
    site.feed(range(4))
    page.goto(site.url)
    guesses = []
    for key in ("y", "n", "0"):
        shown(page)
        guess = page.inner_text("#guesses .label >> nth=0")
        assert page.inner_text("#ask") == f"Is this “{guess}”?"
        guesses.append(guess)
        act_and_wait(page, lambda key=key: page.keyboard.press(key))
    settled(page)
    page.wait_for_selector("text=Saved: none of the classes")
    rows = page.request.get(f"{site.url}/v1/streams/pets/predictions").json()
    assert [(row["answer"], row["no"], row["none"]) for row in rows] == [
        (guesses[0], [], False),
        (None, [guesses[1]], False),
        (None, [], True),
        (None, [], False),
    ]
    assert violations(page) == []
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector(f"text=is not {guesses[1]}")


def test_how_good_it_is_and_what_more_answers_would_bring(site: Site, page: Any) -> None:
    site.create(method="zero_shot+", settings={"policy": "random", "rate": 0.6})
    site.feed(range(24))
    page.goto(f"{site.url}/streams/pets")
    page.wait_for_selector("#standing:has-text('All predictions')")
    said = "All predictions · not known yet: 0 random answers, 8 needed"
    assert page.inner_text("#standing") == said
    for id in [row.id for row in site.service.store.predictions(site.service.stream("pets").id) if row.asked]:
        site.service.send("pets", lambda live, id=id: live.label(id, CLASSES[id % 2], "test")).result()
    stats = httpx.get(f"{site.url}/v1/streams/pets/stats").json()
    assert stats["accuracy"]["estimate"]["answers"] == stats["answered"] >= 10
    said = " · ".join(("All predictions", stats["accuracy"]["said"], stats["forecast"]["said"]))
    page.wait_for_selector(f"#standing:text-is('{said}')")  # the dashboard follows
    page.goto(f"{site.url}/?stream=pets")
    page.wait_for_selector(f"#standing:text-is('{said}')")
