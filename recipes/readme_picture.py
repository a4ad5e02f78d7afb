"""Makes docs/figures/readme.webp and demo.webp, and demo.json with the figures they show. Needs chromium.

    taps demo
    python -m recipes.readme_picture taps-demo

demo.webp is the demo's report. readme.webp shows a question on the page, from the same stream, and beside it
what the answers bought, drawn from the demo's predictions. Tests compare the docs with demo.json.
"""

from __future__ import annotations

import base64
import csv
import datetime
import hashlib
import json
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from recipes.pictures import save
from recipes.provenance import hardware
from recipes.report_picture import FIGURES, shoot
from tests.browser.site import browsing

from taps import load_clip
from taps.cli.demo import FRACTION, IMAGES, RATE, VIEWS
from taps.data import sign_digits
from taps.methods.registry import with_length
from taps.serve.records import StreamConfig
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.stream_session import StreamSession
from taps.streams.row import OPEN
from taps.streams.sequence import make_stream
from taps.study.report.demo import WINDOW, windowed_accuracy
from taps.study.report.svg import BLUE, FAINT, Line, chart

PICTURES = ("readme.webp", "demo.webp")
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
<p>{images} photos of hands that show a digit. Of {asked} the model was told which, after its prediction.
The lines are of the last {window} photos each. Measured by <code>make demo</code>.</p></div>"""


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
        rows = {name: read(demo / name) for name in (QUIET, ASKING)}
        said = measured(rows)
        page.set_content(compose(rows, said, shot))
        page.wait_for_timeout(500)
        save(page.screenshot(full_page=True), FIGURES / PICTURES[0])
        shoot(browser, demo / "report.html", FIGURES / PICTURES[1])
    note(said)


def measured(rows: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    """What the pictures say."""
    right = {name: [row["correct"] == "1" for row in each] for name, each in rows.items()}
    return {
        "images": len(rows[ASKING]),
        "asked": sum(row["asked"] == "1" for row in rows[ASKING]),
        "accuracy": {name: round(100 * sum(each) / len(each), 1) for name, each in right.items()},
    }


def note(said: dict[str, Any]) -> None:
    """Write down the figures, and of which pictures they are."""
    command = "`taps demo` and `python -m recipes.readme_picture taps-demo`"
    made = f"{command} at the commit of this file ({datetime.date.today()}), {hardware()}"
    marks = {name: hashlib.sha256((FIGURES / name).read_bytes()).hexdigest() for name in PICTURES}
    (FIGURES / "demo.json").write_text(json.dumps({"made": made, **said, "sha256": marks}, indent=1) + "\n")


def play(service: Service) -> None:
    """The demo's stream up to one of its questions, which is left open."""
    data = sign_digits()
    values = {"views": VIEWS, "fraction": FRACTION, "rate": RATE, "budget": "hard"}
    settings = with_length(ASKING, values, IMAGES)
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


def compose(rows: dict[str, list[dict[str, str]]], said: dict[str, Any], shot: bytes) -> str:
    lines = []
    for name, title, colour in ((ASKING, "asking", BLUE), (QUIET, "not asking", FAINT)):
        ys = windowed_accuracy([row["correct"] == "1" for row in rows[name]])
        lines.append(Line(title, list(range(WINDOW, WINDOW + len(ys))), ys, colour))
    return PAGE.format(
        page="data:image/png;base64," + base64.b64encode(shot).decode(),
        chart=chart(lines, x_title="images seen", y_title="", percent=True),
        with_=f"{said['accuracy'][ASKING]:.0f}%",
        without=f"{said['accuracy'][QUIET]:.0f}%",
        blue=BLUE,
        window=WINDOW,
        images=said["images"],
        asked=said["asked"],
    )


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
