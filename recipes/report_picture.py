"""Makes docs/figures/report.webp: the page of the tutorial's run, as a browser shows it. Needs chromium.

python -m recipes.report_picture runs/first
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.pictures import save
from tests.browser.site import browsing

TARGET = Path(__file__).resolve().parent.parent / "docs" / "figures" / "report.webp"

if __name__ == "__main__":
    with browsing() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 760})
        page.goto((Path(sys.argv[1]).resolve() / "report.html").as_uri())
        save(page.screenshot(), TARGET)
