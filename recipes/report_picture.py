"""Makes docs/figures/NAME.webp: a report as a browser shows it. Needs chromium.

taps demo
python -m recipes.report_picture taps-demo/report.html demo
python -m recipes.report_picture runs/first/report.html report    # the tutorial's run
python -m recipes.report_picture results/field/leaderboard.html leaderboard 1640
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.pictures import save
from tests.browser.site import browsing

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"

if __name__ == "__main__":
    height = int(sys.argv[3]) if len(sys.argv) > 3 else 760
    with browsing() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": height})
        page.goto(Path(sys.argv[1]).resolve().as_uri())
        save(page.screenshot(), FIGURES / f"{sys.argv[2]}.webp")
