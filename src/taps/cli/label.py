"""`taps label FOLDER`: label a folder of images in the browser, with a model that learns as you go."""

from __future__ import annotations

import csv
import re
import time
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.cli.options import new_app, with_options
from taps.data.names import shown
from taps.default import METHOD, QUICK, VIEWS
from taps.errors import SettingsError
from taps.streams.options import ImageOptions, SortOptions

if TYPE_CHECKING:
    from rich.console import Console

    from taps.data import Dataset
    from taps.model.clip import Clip
    from taps.serve.folder import Folder
    from taps.serve.service import Service

app = new_app()

RATE = 0.1  # more than a stream's: a person waits at the page
PAUSE = 0.5  # seconds between two checks whether more questions are wanted


@dataclass(frozen=True)
class LabelOptions(ImageOptions):
    """What is labelled, and how.

    Attributes:
        rate: Share of images you are asked about; by default 0.1, or that of the last time.
        budget: How many questions you are asked, instead of a share.
        method: The method; it must ask questions.
        views: Views of each image; fewer are quicker.
        quick: Four views of each image: faster, and a little less accurate.
        seed: Order of the images and all random choices.
        twice: Share of the answered questions that a second person is asked, too. People need names: those
            who come by the link of --host 0.0.0.0 have one.
        gold: CSV of known answers, columns path and label: people are asked about these images, and the
            dashboard says how many of them each had right.
        store: The store; by default FOLDER.taps beside the folder.
        host: Address to serve at. With 0.0.0.0 phones and colleagues reach the page by the link that is
            printed, and nobody without it.
        port: 0 for any that is free.
        browser: Open the page in the browser.
        long: Write into labels.csv all that the service knows of each label.
    """

    rate: float | None = None
    budget: int | None = None
    method: str = METHOD
    views: int = field(default=VIEWS, metadata={"min": 1})
    quick: bool = False
    seed: int = 0
    twice: float | None = None
    gold: Path | None = None
    store: Path | None = None
    host: str = "127.0.0.1"
    port: int = field(default=0, metadata={"max": 65_535})
    browser: bool = True
    long: bool = False

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 1:
            raise SettingsError(f"--rate is {self.rate:g}; it must be above 0, and 1 at most.")
        if self.budget is not None and self.budget < 1:
            raise SettingsError(f"--budget is {self.budget}; it must be 1 or more.")
        if self.rate is not None and self.budget is not None:
            raise SettingsError("--rate and --budget both say how much is asked; give one of them.")
        if self.twice is not None and not 0 <= self.twice <= 1:
            raise SettingsError(f"--twice is {self.twice:g}; it must be a share between 0 and 1.")
        if self.quick and self.views != VIEWS:
            raise SettingsError("--quick and --views both say how many views there are; give one of them.")

    def questions(self, images: int) -> int:
        """How many questions are put about so many images."""
        return min(images, self.budget or max(1, round((self.rate or RATE) * images)))


@app.command()
@with_options
def label(options: LabelOptions, sort: SortOptions) -> None:
    """Label a folder of images in the browser: you are asked about a few, the model does the rest.

    Writes labels.csv (yours) and predictions.csv (every image) into the store. Ctrl-C stops; the same command
    continues.
    """
    from taps.data.load import check_readable, check_there

    check_there(options.folder)  # before the slow imports
    need_page()
    from taps.disk import check_free
    from taps.methods.registry import method_settings
    from taps.model.clip import load_clip
    from taps.model.prompts.texts import read_texts
    from taps.serve.folder import Folder
    from taps.serve.opinions import ask_twice
    from taps.serve.records import StreamConfig
    from taps.streams.run import images_of, text_settings
    from taps.streams.sequence import make_stream
    from taps.streams.sorting import check_sorting

    check_sorting(options.folder, sort)
    folder, method = Path(options.folder), options.method
    if not folder.name.strip("."):  # "." and ".." have no name of their own
        folder = folder.resolve()
    place = options.store or folder.with_name(f"{folder.name}.taps")
    check_free(place)
    dataset, names = images_of(options)
    images, name = make_stream(dataset, options.seed), stream_name(folder)
    questions = options.questions(len(images.order))
    settings = asking_settings(method, options.views, questions, len(images.order))
    settings |= QUICK if options.quick and "views" in settings else {}
    settings |= text_settings(options, dataset)
    if options.texts:  # the store keeps the sentences: the file may go
        settings["texts"] = read_texts(options.texts, names)
    method_settings(method, settings)
    check_readable(dataset)
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device, dtype=options.dtype)

    paths = [images.path(place) for place in range(len(images.order))]
    known = read_known(options.gold, paths, names) if options.gold else {}

    def begin(service: Service) -> Folder:
        made = Folder(service, name, dataset, images.order, images.path, known=known)
        new = name not in service.workers
        beginning = StreamConfig(name, list(names), method, settings, options.seed, deadline=None, hold=0.0)
        wanted = questions if new or options.rate is not None or options.budget is not None else None
        stream = made.begin(beginning, given=options.classes is not None, questions=wanted)
        if any(stream.settings.get(key) != settings.get(key) for key in ("views", "texts", "template")) or (
            stream.method != method
        ):
            begun = " ".join(f"{key}={value}" for key, value in stream.settings.items() if key != "texts")
            print(f"Goes on as it was begun: {stream.method} with {begun}.")
        if options.twice is not None:
            ask_twice(service.store, stream.id, options.twice)
        if dataset.left_out:
            print(f"left out: {dataset.left_out}")
        return made

    ending = Ending(place, dataset, sort, long=options.long)
    go(place, clip, begin, ending, host=options.host, port=options.port, browser=options.browser)


def need_page() -> None:
    """Import the page: a package of the extra `label` that is missing is named before anything is made."""
    import taps.serve.run  # noqa: F401


def read_known(file: Path, paths: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
    """Known answers by path, from a CSV with the columns path and label."""
    try:
        rows = list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--gold {file} cannot be read: {error}.") from error
    if not rows or not {"path", "label"} <= rows[0].keys():
        raise SettingsError(f"--gold {file} needs the columns path and label, and a row for each image.")
    known = {row["path"]: row["label"] for row in rows}
    for what, given, allowed in (("images", known, paths), ("classes", known.values(), classes)):
        if unknown := sorted(set(given) - set(allowed)):
            raise SettingsError(f"--gold {file} names unknown {what}: {shown(unknown)}.")
    return known


@dataclass(frozen=True)
class Ending:
    """Writes labels.csv and predictions.csv into a folder and sorts the images; `long`: with all columns."""

    place: Path
    dataset: Dataset
    sort: SortOptions
    long: bool = False

    def write(self, images: Folder) -> str:
        """Write and sort everything; the lines that say what is where."""
        from taps.serve.review import NONE
        from taps.streams.sorting import sort_all

        labels, predictions = images.write(self.place, long=self.long)
        found = [each for each in images.beliefs() if not images.files.is_gone(each.row)]
        known = [(each.row.name, each.label or NONE, each.probability) for each in found]
        sort_all(self.dataset, known, self.sort)
        where = [f"Labels: {labels}", f"Predictions: {predictions}"]
        where += [f"Sorted: {self.sort.sort_into}"] if self.sort.sort_into is not None else []
        where += [f"Not whole: {lacking}"] if (lacking := images.lacking()) else []
        where += [gone] if (gone := images.gone()) else []
        return "\n".join([*where, f"Other images: {images.elsewhere}"])


def asking_settings(method: str, views: int, questions: int, images: int) -> dict[str, Any]:
    """Settings for so many questions; a method with a head chooses them among all images."""
    from taps.methods.registry import find_method
    from taps.serve.folder import pool_settings

    known = find_method(method).known
    if "rate" not in known:
        raise SettingsError(f"The method {method!r} never asks; take one that does, such as {METHOD!r}.")
    values = {"rate": questions / images, "expected": images, "views": views}
    if "neighbourhood" in known:
        values |= pool_settings(questions, images)
    return {name: value for name, value in values.items() if name in known}


def stream_name(folder: Path) -> str:
    """A stream's name from a folder's.

    >>> stream_name(Path("My photos (2024)")), stream_name(Path("写真"))
    ('My-photos-2024', 'images')
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.stem).strip("-._")
    return plain[:64] or "images"


def go(
    place: Path,
    clip: Clip,
    begin: Callable[[Service], Folder],
    ending: Ending,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
) -> None:
    """Serve the page, encode the images and ask about them, write the results; until Ctrl-C.

    Args:
        place: Folder of the store.
        clip: The model.
        begin: Makes the `Folder` of images in a service.
        ending: Writes the results.
        host: Address to serve at.
        port: 0 for any that is free.
        browser: Whether to open the page.
    """
    from rich.console import Console

    from taps.cli.link import linked
    from taps.serve.run import serving
    from taps.serve.service import Service
    from taps.serve.store import Store

    console = Console()
    with Service(Store(str(place)), clip) as service:
        images = begin(service)
        with linked(service, images.stream, host) as links, serving(service, host=host, port=port) as url:
            page = links.show(console, url, images.stream)
            console.print("Ctrl-C stops; the same command continues.")
            if browser:
                webbrowser.open(page)
            with suppress(KeyboardInterrupt):
                while True:
                    stream_through(console, images, ending)
                    wait_for_more(images)
            console.print(f"\n{ending.write(images)}", markup=False, soft_wrap=True)


def wait_for_more(images: Folder) -> None:
    while not images.ask():
        time.sleep(PAUSE)


def stream_through(console: Console, images: Folder, ending: Ending) -> None:
    """Encode all images, wait for the last answer, predict again what has no label."""
    from rich.progress import Progress

    total = len(images.order)
    images.look()
    if renewed := images.renewed():
        console.print(renewed, soft_wrap=True)
    with Progress(console=console, transient=True) as bar:
        for title, act in (
            ("Encoding; answer on the page", images.feed),
            ("Waiting for your answers", images.finish),
            ("The rest, by all that was learned", images.repredict_all),
        ):
            task = bar.add_task(title, total=total)
            act(lambda done, task=task: bar.update(task, completed=done))  # type: ignore[misc]
            bar.update(task, completed=total)
    where = ending.write(images)
    console.print(f"All {total:,} images are done.\n{where}", markup=False, soft_wrap=True)
    console.print("Look through them on the page, or stop with Ctrl-C.")
    if images.broken:
        first = next(iter(images.broken.values()))
        console.print(f"{len(images.broken)} could not be read: {first}", markup=False, soft_wrap=True)
