"""Pictures of the real Label Studio with a project that TAPS predicts, for its page. Needs chromium.

make labelstudio
TAPS_LABEL_STUDIO=.venv-labelstudio/bin/label-studio python -m recipes.labelstudio_pictures
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from xml.sax.saxutils import quoteattr

import httpx
from playwright.sync_api import Page
from recipes.pictures import save
from tests.browser.site import browsing
from tests.labelstudio.studio import PASSWORD, USER, fine, make_project, running, shown, until

from taps import load_clip
from taps.data import load_dataset
from taps.data.sample import bundled_sample
from taps.serve.labelstudio import LabelStudio
from taps.serve.run import serving
from taps.serve.service import Service
from taps.serve.store import Store

OUT = Path(__file__).resolve().parent.parent / "docs" / "figures" / "labelstudio"
CLASSES = ["airplane", "bonsai", "flamingo", "lamp", "pizza", "rooster", "saxophone", "stop sign"]
EACH = 2  # images of a class


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        studio = stack.enter_context(running(folder))
        store = Store(str(folder / "store"))
        service = stack.enter_context(Service(store, load_clip("pocket")))
        here = LabelStudio(str(studio.base_url).rstrip("/"))
        url = stack.enter_context(serving(service, port=8000, studio=here))
        project = make_project(studio, "Things", config(), images())
        backend = {"project": project, "url": f"{url}/label-studio", "title": "TAPS"}
        fine(studio.post("/api/ml", json=backend))
        look_at_all(studio, project)
        browser = stack.enter_context(browsing())
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.set_default_timeout(120_000)
        take(page, str(studio.base_url).rstrip("/"), project)


def config() -> str:
    choices = "".join(f"<Choice value={quoteattr(name)}/>" for name in CLASSES)
    return (
        '<View><Image name="image" value="$image"/>'
        f'<Choices name="class" toName="image" showInline="true">{choices}</Choices></View>'
    )


def images() -> dict[str, bytes]:
    """Some of the bundled sample, in turn."""
    data = load_dataset(str(bundled_sample()))
    found: dict[str, bytes] = {}
    for turn in range(EACH):
        for name in CLASSES:
            of_class = [i for i, each in enumerate(data.samples) if data.classes[each.label or 0] == name]
            found[f"photo-{len(found) + 1:02d}.webp"] = data.read(of_class[turn])
    return found


def look_at_all(studio: httpx.Client, project: int) -> None:
    """Have every task predicted, as somebody does who opens them one after the other."""
    for task in fine(studio.get("/api/tasks", params={"project": project, "page_size": 100}))["tasks"]:
        until(lambda task=task: shown(studio, task["id"]), "The prediction")


def take(page: Page, url: str, project: int) -> None:
    page.goto(f"{url}/user/login/")
    page.fill("[name=email]", USER)
    page.fill("[name=password]", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_function("!location.pathname.includes('login')")
    for name, path in (
        ("connect", f"/projects/{project}/settings/ml"),
        ("tasks", f"/projects/{project}/data"),
        ("task", f"/projects/{project}/data?labeling=1"),
    ):
        page.goto(url + path)
        page.wait_for_timeout(12_000)
        save(page.screenshot(), OUT / f"{name}.webp")


if __name__ == "__main__":
    main()
