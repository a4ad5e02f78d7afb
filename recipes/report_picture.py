"""Makes docs/figures/NAME.webp: a report as a browser shows it. Needs chromium.

python -m recipes.report_picture runs/first/report.html report    # the tutorial's run
python -m recipes.report_picture results/field/leaderboard.html leaderboard 1640

`recipes.readme_picture` makes that of the demo.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser
from recipes.pictures import save
from tests.browser.site import browsing

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"


def shoot(browser: Browser, report: Path, picture: Path, height: int = 760) -> None:
    """The top of a report."""
    page = browser.new_page(viewport={"width": 1000, "height": height})
    page.goto(report.resolve().as_uri())
    save(page.screenshot(), picture)


if __name__ == "__main__":
    height = int(sys.argv[3]) if len(sys.argv) > 3 else 760
    with browsing() as browser:
        shoot(browser, Path(sys.argv[1]), FIGURES / f"{sys.argv[2]}.webp", height)
