"""Makes docs/figures/report.png: the page of the tutorial's run, as a browser shows it. Needs chromium.

python recipes/report_picture.py runs/first
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

TARGET = Path(__file__).resolve().parent.parent / "docs" / "figures" / "report.png"

if __name__ == "__main__":
    page_file = Path(sys.argv[1]).resolve() / "report.html"
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 760})
        page.goto(page_file.as_uri())
        page.screenshot(path=str(TARGET))
        browser.close()
