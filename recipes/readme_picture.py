"""Makes docs/figures/readme.webp: a question on the page, and what the demo's answers bought. Needs chromium.

    taps demo
    python -m recipes.readme_picture taps-demo

The right side is drawn from the predictions that the demo wrote; the left is the page with one of its images.
"""

from __future__ import annotations

import base64
import csv
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from recipes.pictures import save
from tests.browser.site import browsing

from taps import load_clip
from taps.cli.demo import FRACTION, IMAGES, RATE, VIEWS
from taps.data import sign_digits
from taps.report.demo import WINDOW, windowed_accuracy
from taps.report.svg import BLUE, FAINT, Line, chart
from taps.serve.records import StreamConfig
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from taps.session.row import OPEN
from taps.session.stream import make_stream

TARGET = Path(__file__).resolve().parent.parent / "docs" / "figures" / "readme.webp"
QUIET, ASKING = "view_ensemble", "view_ensemble+"
ASKED = 12  # the question that is shown
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 28px 32px; width: 1536px; display: grid; grid-template-columns: 800px 1fr;
  gap: 44px; align-items: start; background: #fff; color: #1d2430; font: 22px/1.4 system-ui, sans-serif; }}
h2 {{ font-size: 28px; margin: 0 0 14px; }} b {{ color: {blue}; }}
p {{ margin: 14px 0 0; color: #55606f; font-size: 20px; }}
img {{ width: 800px; border: 1px solid #d5dae1; border-radius: 12px; display: block; }}
svg {{ width: 100%; height: auto; }} svg text {{ fill: #55606f; font-size: 17px; }}
svg polyline {{ stroke-width: 4; }} .grid {{ stroke: #e3e7ee; }}
.legend span {{ margin-right: 26px; font-size: 20px; }}
.legend i {{ display: inline-block; width: 16px; height: 16px; border-radius: 4px; margin-right: 8px; }}
</style>
<div><h2>It asks about one image in ten …</h2><img src="{page}"></div>
<div><h2>… and learns: <b>{with_} right</b> instead of {without}</h2>{chart}
<p>Right among the last {window} of {images} photos of hands that show a digit; the model was never told what
they mean. {asked} answers; the rest it was not told. Measured by <code>make demo</code>.</p></div>"""


def main(demo: Path) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = stack.enter_context(Service(Store(folder), load_clip("pocket")))
        browser = stack.enter_context(browsing())
        play(service)
        with serving(service) as url:
            page = browser.new_page(viewport={"width": 1080, "height": 742})
            page.goto(f"{url}/?stream=hands")
            page.wait_for_selector("#question:not([hidden])")
            page.wait_for_timeout(1500)
            shot = page.screenshot()
        page = browser.new_page(viewport={"width": 1600, "height": 640})
        page.set_content(compose(demo, shot))
        page.wait_for_timeout(500)
        save(page.screenshot(full_page=True), TARGET)


def play(service: Service) -> None:
    """The demo's stream up to one of its questions, which is left open."""
    data = sign_digits()
    settings = {"views": VIEWS, "fraction": FRACTION, "rate": RATE, "budget": "hard"}
    service.create(StreamConfig("hands", list(data.classes), ASKING, settings, 0, None, 0.0), "recipe")
    asked = 0
    for t, index in enumerate(make_stream(data, 0, limit=IMAGES).order):
        act = partial(StreamSession.predict, data=data.read(index), name=f"hand {t + 1}", who="recipe")
        row = service.send("hands", act).result().row
        asked += row.state == OPEN
        if asked == ASKED:
            return
        if row.state == OPEN:
            label = data.classes[data.samples[index].label or 0]
            service.send("hands", partial(StreamSession.label, id=row.id, label=label, who="recipe")).result()


def compose(demo: Path, shot: bytes) -> str:
    rows = {name: read(demo / name) for name in (QUIET, ASKING)}
    right = {name: [row["correct"] == "1" for row in found] for name, found in rows.items()}
    lines = []
    for name, title, colour in ((ASKING, "asking", BLUE), (QUIET, "not asking", FAINT)):
        ys = windowed_accuracy(right[name])
        lines.append(Line(title, list(range(WINDOW, WINDOW + len(ys))), ys, colour))
    share = {name: f"{sum(each) / len(each):.0%}" for name, each in right.items()}
    return PAGE.format(
        page="data:image/png;base64," + base64.b64encode(shot).decode(),
        chart=chart(lines, x_title="images seen", y_title="", percent=True),
        with_=share[ASKING], without=share[QUIET], blue=BLUE, window=WINDOW,
        images=len(right[ASKING]), asked=sum(row["asked"] == "1" for row in rows[ASKING]),
    )  # fmt: skip


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
