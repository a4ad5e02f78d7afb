"""`taps label FOLDER`: label a folder of images in the browser, with a model that learns as you go."""

from __future__ import annotations

import re
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.cli.options import new_app, with_options
from taps.stream.options import ImageOptions

if TYPE_CHECKING:
    from rich.console import Console

    from taps.clip import Clip
    from taps.serve.folder import Folder
    from taps.serve.service import Service

app = new_app()

METHOD, VIEWS, RATE = "view_ensemble+", 16, 0.1


@dataclass(frozen=True)
class LabelOptions(ImageOptions):
    """What is labelled, and how.

    Attributes:
        rate: Share of images you are asked about.
        method: Which system; it must be one that asks.
        views: Views of each image; fewer are quicker.
        seed: Order of the images and all random choices.
        store: Where everything is kept; FOLDER.taps beside the folder unless given.
        port: 0 for any that is free.
        browser: Open the page in the browser.
    """

    rate: float = RATE
    method: str = METHOD
    views: int = VIEWS
    seed: int = 0
    store: Path | None = None
    port: int = 0
    browser: bool = True


@app.command()
@with_options
def label(options: LabelOptions) -> None:
    """Label a folder of images in the browser: you are asked about a few, the model does the rest.

    Writes labels.csv (yours) and predictions.csv (every image) into the store. Ctrl-C stops; the same command
    goes on where it was left.
    """
    from taps.clip import load_clip
    from taps.serve.folder import Folder
    from taps.serve.service import Beginning
    from taps.stream.run import images_of
    from taps.stream.stream import make_stream

    dataset, names = images_of(options)
    folder, method = named(Path(options.folder)), options.method
    images, name = make_stream(dataset, options.seed), stream_name(folder)
    settings = asking_settings(method, options.rate, options.views)
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)

    def begin(service: Service) -> Folder:
        made = Folder(service, name, dataset, images.order, images.path)
        beginning = Beginning(name, list(names), method, settings, options.seed, deadline=None, hold=0.0)
        stream = made.begin(beginning, given=options.classes is not None)
        if (stream.method, stream.settings) != (method, stream.settings | settings):
            begun = " ".join(f"{key}={value}" for key, value in stream.settings.items())
            print(f"Goes on as it was begun: {stream.method} with {begun}.")
        if dataset.left_out:
            print(f"left out: {dataset.left_out}")
        return made

    go(options.store or beside(folder), clip, begin, port=options.port, browser=options.browser)


def asking_settings(method: str, rate: float, views: int) -> dict[str, Any]:
    """Settings of a method that asks; `views` and whom to ask about where it has them."""
    from taps.errors import SettingsError
    from taps.methods.registry import find_method

    known = find_method(method).known
    if "rate" not in known:
        raise SettingsError(f"The method {method!r} never asks; take one that does, such as {METHOD!r}.")
    values = {"rate": rate, "views": views, "ask_by": "margin"}
    return {name: value for name, value in values.items() if name in known}


def named(folder: Path) -> Path:
    """A folder by its name: in full where it is given as "." or "..".

    >>> str(named(Path("photos/holiday/"))), named(Path(".")).name == Path.cwd().name
    ('photos/holiday', True)
    """
    return folder if folder.name.strip(".") else folder.resolve()


def beside(folder: Path) -> Path:
    """Where the store of a folder is.

    >>> str(beside(Path("photos/holiday/")))
    'photos/holiday.taps'
    """
    return folder.with_name(f"{folder.name}.taps")


def stream_name(folder: Path) -> str:
    """A stream's name from a folder's.

    >>> stream_name(Path("My photos (2024)")), stream_name(Path("写真"))
    ('My-photos-2024', 'images')
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.stem).strip("-._")
    return plain[:64] or "images"


def go(place: Path, clip: Clip, begin: Callable[[Service], Folder], *, port: int, browser: bool) -> None:
    """Serve, open the page, stream the images, write what came of it; until Ctrl-C.

    Args:
        place: Folder of the store.
        clip: The model.
        begin: Given the service, the `Folder` of images.
        port: 0 for any that is free.
        browser: Whether to open the page.
    """
    from rich.console import Console

    from taps.serve.background import serving
    from taps.serve.service import Service
    from taps.serve.store import Store

    console = Console()
    with Service(Store(str(place)), clip) as service:
        images = begin(service)
        with serving(service, port=port) as url:
            page = f"{url}/?stream={images.stream}"
            console.print(f"Label at {page}\nCtrl-C stops; the same command goes on.", soft_wrap=True)
            if browser:
                webbrowser.open(page)
            with suppress(KeyboardInterrupt):
                stream_through(console, images, place)
                threading.Event().wait()
            labels, predictions = images.write(place)
            console.print(f"\nLabels: {labels}\nPredictions: {predictions}", soft_wrap=True)


def stream_through(console: Console, images: Folder, place: Path) -> None:
    """Stream all images, wait for the last answer, predict anew what has no label."""
    from rich.progress import Progress

    total = len(images.order)
    with Progress(console=console, transient=True) as bar:
        for title, act in (
            ("Images; answer on the page", images.feed),
            ("Waiting for the last answers", images.finish),
            ("The rest, by all that was learnt", lambda progress: images.write(place, progress)),
        ):
            task = bar.add_task(title, total=total)
            act(lambda done, task=task: bar.update(task, completed=done))  # type: ignore[misc]
            bar.update(task, completed=total)
    words = f"All {total:,} images are through: labels.csv and predictions.csv are in {place}."
    images.service.notices[images.stream] = words
    console.print(f"{words} Correct more on the page, or stop with Ctrl-C.", soft_wrap=True)
    if images.broken:
        first = next(iter(images.broken.items()))
        console.print(
            f"{len(images.broken)} could not be read, such as {first[0]}: {first[1]}",
            markup=False,
            soft_wrap=True,
        )
