"""`taps predict FOLDER` and `taps watch FOLDER`: predictions without questions."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taps.cli.options import new_app, with_options
from taps.disk import check_table, open_table
from taps.errors import DataError, SettingsError
from taps.files import csv_line, csv_rows
from taps.streams.options import ImageOptions, SortOptions

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.learner import Learner
    from taps.streams.predict import Guess

app = new_app()
HEAD = re.compile(r"path,predicted,probability(,class_\d+,probability_\d+)*,error")


@dataclass(frozen=True)
class PredictOptions(ImageOptions):
    """What to predict, with what, and where to put it.

    Attributes:
        learner: A saved learner (its folder, or the page's ZIP), a run, or a store (of `taps label`): predict
            with what was learned there.
        stream: Which stream's learner, where a store holds several.
        top: How many of the likeliest classes are written for each image.
        out: The CSV file; - for standard output.
        batch: Images classified together.
    """

    learner: str | None = None
    stream: str | None = None
    top: int = field(default=3, metadata={"min": 1})
    out: str = "predictions.csv"
    batch: int = field(default=16, metadata={"min": 1})

    def __post_init__(self) -> None:
        if self.stream is not None and self.learner is None:
            raise SettingsError("--stream names a stream of the store given with --learner; give that, too.")


@app.command()
@with_options
def predict(
    options: PredictOptions,
    sort: SortOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Predict the class of every image and write a CSV; nobody is asked, and nothing is learned.

    The prediction of an image depends on no other image and on no order.

    Columns: path (in full), predicted, probability, and the next likeliest classes; error where an image
    could not be read.
    """
    from taps.data.load import check_there

    check_there(options.folder)  # before the slow imports
    from rich.progress import track

    from taps.data.names import ClassNames
    from taps.streams.predict import predict_all
    from taps.streams.run import images_of, text_settings
    from taps.streams.sorting import check_sorting

    check_sorting(options.folder, sort)
    check_out(options)
    if options.learner is None:
        dataset, names = images_of(options)
        learner = make_learner(options, names, **text_settings(options, dataset))
    else:
        learner = make_learner(options)
        dataset, _ = images_of(options, ClassNames(learner.classes))
    paths = [sample.path for sample in dataset.samples]
    index_of = {path: index for index, path in enumerate(paths)}
    guesses = predict_all(paths, lambda path: dataset.image(index_of[path]), learner, batch=options.batch)
    quiet = quiet or options.out == "-"
    if not quiet:
        guesses = track(guesses, "images", total=len(paths))  # type: ignore[assignment]
    counts: dict[str | None, int] = dict.fromkeys([*learner.classes, None], 0)  # None: could not be read
    with ExitStack() as stack:
        table = PredictionsCsv(stack, options, sort, learner.classes, dataset)
        for guess in guesses:
            counts[table.write(guess)] += 1
    if quiet:
        return
    broken = counts.pop(None)
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        if count:
            print(f"{count:>7,}  {name}")
    if broken:
        print(f"{broken:>7,}  could not be read")
    if dataset.left_out:
        print(f"left out: {dataset.left_out}")
    print(f"Written: {options.out}")


@app.command()
@with_options
def watch(
    options: PredictOptions,
    sort: SortOptions,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two scans of the folder.")] = 1.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many images.")] = None,
) -> None:
    """Predict each image that is in the folder or comes into it, until Ctrl-C; nobody is asked.

    A file is read once it has not grown between two looks. Rows go to the CSV as they come; images that have
    one there already, from an earlier watch, are passed over.
    """
    from taps.data.dataset import Dataset
    from taps.data.sources import FolderSource
    from taps.model.images import load_image
    from taps.streams.predict import predict_all
    from taps.streams.run import class_list
    from taps.streams.sorting import check_sorting

    check_sorting(options.folder, sort)
    check_out(options)
    folder = Path(options.folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one to watch.")
    if options.classes is None and options.learner is None:
        raise DataError("No classes given; add --classes, or a --learner that knows them.")
    learner = make_learner(options, class_list(options.classes) if options.classes else ())
    dataset = Dataset(folder.name, learner.classes, (), FolderSource(folder))
    with ExitStack() as stack:
        table = PredictionsCsv(stack, options, sort, learner.classes, dataset, append=True)
        for count, path in enumerate(new_images(folder, every, table.done), start=1):
            (guess,) = predict_all([path], lambda path: load_image(folder / path, name=path), learner)
            label = table.write(guess)
            print(f"{path}  {guess.error if label is None else f'{label}  {guess.probs[0]:.1%}'}", flush=True)
            if limit is not None and count >= limit:
                break


def make_learner(options: PredictOptions, names: Sequence[str] = (), **texts: Any) -> Learner:
    """A saved learner; or zero-shot CLIP with the classes given."""
    from taps.learner import Learner
    from taps.model.clip import load_clip

    if options.learner is not None:
        if options.classes or options.template or options.texts:
            raise SettingsError(
                "A --learner knows its classes and their texts; leave --classes, --template and --texts out."
            )
        return find_learner(Path(options.learner), options.stream)
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device, dtype=options.dtype)
    return Learner(clip, names, "zero_shot", allow_duplicates=True, **texts)


def find_learner(folder: Path, stream: str | None) -> Learner:
    """The learner of a store's stream, of a run, or one that was saved."""
    from taps.serve.guards import is_store
    from taps.serve.replay import learner_of
    from taps.streams.predict import load_learner

    if is_store(folder):
        return learner_of(folder, stream)
    if stream is not None:
        raise SettingsError(f"{folder} is no store, so that it has no streams; leave --stream out.")
    return load_learner(folder)


def check_out(options: PredictOptions) -> None:
    """Refuse to write over anything but a table of predictions, before the model is loaded."""
    if options.out == "-":
        return
    if Path(options.out).resolve() == Path(options.folder).resolve():
        raise DataError(f"{options.out} names the images themselves; choose another --out.")
    check_table(Path(options.out), HEAD)


class PredictionsCsv:
    """The CSV of predictions, one row an image; images are sorted as their rows are written.

    Args:
        stack: Closes the file.
        options: Where the file is, and how many classes a row has.
        sort: Where images are sorted to.
        classes: Their names.
        dataset: The images.
        append: Whether to add rows to an existing file; `done` has the images of its rows.
    """

    def __init__(
        self,
        stack: ExitStack,
        options: PredictOptions,
        sort: SortOptions,
        classes: tuple[str, ...],
        dataset: Dataset,
        *,
        append: bool = False,
    ) -> None:
        from taps.streams.sorting import sorter
        from taps.types import FIRST_COLUMNS

        self.classes, self.dataset, self.sorter = classes, dataset, sorter(dataset, sort)
        self.top = min(options.top, len(classes))
        self.done: frozenset[str] = frozenset()
        others = [name for k in range(2, self.top + 1) for name in (f"class_{k}", f"probability_{k}")]
        columns, out = [*FIRST_COLUMNS, *others, "error"], Path(options.out)
        append = append and options.out != "-" and check_table(out, re.compile(",".join(columns)))
        if append:
            with out.open(newline="", encoding="utf-8", errors="replace") as file:
                self.done = frozenset(row[0] for row in csv_rows(file) if row)
        to_stdout = options.out == "-"
        self.file = sys.stdout if to_stdout else stack.enter_context(open_table(out, HEAD, keep=append))
        if not append:
            self.file.write(csv_line(columns))

    def write(self, guess: Guess) -> str | None:
        """Write one row; the image's class, or None where it could not be read."""
        from taps.streams.sorting import place_of

        path = str(place_of(self.dataset, guess.path) or guess.path)
        if guess.error:
            self.file.write(csv_line([path, *[""] * (2 * self.top), guess.error]))
            return None
        pairs = zip(guess.best[: self.top], guess.probs[: self.top], strict=True)
        likeliest = [cell for k, p in pairs for cell in (self.classes[k], f"{p:.6f}")]
        self.file.write(csv_line([path, *likeliest, ""]))
        label = self.classes[guess.best[0]]
        if self.sorter is not None:
            self.sorter.put(guess.path, label, guess.probs[0])
        return label


def new_images(folder: Path, every: float, done: Container[str] = ()) -> Iterator[str]:
    """Paths of images below a folder, each once, as soon as a file has stopped growing; none that is done."""
    from taps.data.sources import FolderSource

    seen: set[str] = set()
    base = folder.absolute()
    sizes: dict[str, int] = {}
    while True:
        for parts in FolderSource(folder).listing().images:
            path = "/".join(parts)
            try:
                size = (folder / path).stat().st_size
            except OSError:  # it went away again
                continue
            if path not in seen and sizes.get(path) == size:
                seen.add(path)
                if str(base / path) not in done:
                    yield path
            sizes[path] = size
        time.sleep(every)
