"""The leaderboard in a browser: it sorts, fits a phone, and axe-core finds nothing wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taps.study.report.compare import leaderboard, write_leaderboard
from tests.browser.site import violations, visiting
from tests.made_up import made_up_folder

METHODS = ("zero_shot", "view_ensemble", "source", "tpt", "taps", "zero")
SETS = ("pets", "dtd", "food", "cars", "sun", "birds")


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = made_up_folder(tmp_path_factory.mktemp("board"), methods=METHODS, datasets=SETS, n=60)
    write_leaderboard(leaderboard([out]), out)
    return out


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
@pytest.mark.parametrize("page", ["leaderboard.html", "runs/pets/taps/index.html"])
def test_pages_fit_and_have_no_violation(
    board: Path, browser: Any, page: str, scheme: str, width: int
) -> None:
    with visiting(browser, viewport={"width": width, "height": 800}, color_scheme=scheme) as opened:
        opened.goto((board / page).as_uri())
        assert opened.evaluate("document.documentElement.scrollWidth") == width
        assert violations(opened) == []


def test_a_click_sorts_and_another_turns_it(board: Path, browser: Any) -> None:
    with visiting(browser) as opened:
        opened.goto((board / "leaderboard.html").as_uri())
        table = opened.locator("table.sortable").first
        columns = table.locator("th").all_inner_texts()

        def cells(column: str) -> list[str]:
            place = columns.index(column) + 1
            return table.locator(f"tbody td:nth-child({place})").all_inner_texts()

        before = cells("method")
        table.get_by_role("button", name="pets").click()
        high = [float(text.split()[0]) for text in cells("pets")]
        assert high == sorted(high, reverse=True)
        table.get_by_role("button", name="pets").click()
        assert [float(text.split()[0]) for text in cells("pets")] == high[::-1]
        assert table.locator("th[aria-sort=ascending]").inner_text().startswith("pets")
        table.get_by_role("button", name="method").click()
        assert cells("method") == sorted(before)
