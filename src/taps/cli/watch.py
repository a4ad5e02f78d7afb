"""`taps watch FOLDER`: predictions for images as they come into a folder."""

from __future__ import annotations

import csv
import time
from collections.abc import Container, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from taps.cli.options import new_app, with_options
from taps.cli.predict import PredictOptions, headings, make_predictor, open_csv, open_out, write_guess
from taps.errors import DataError
from taps.session.options import SortOptions

app = new_app()


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
    from taps.images import load_image
    from taps.session.predict import predict_all
    from taps.session.run import class_list
    from taps.session.sorting import check_sorting, sort_image

    check_sorting(options.folder, sort)
    folder = Path(options.folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give one to watch.")
    if options.classes is None and options.learner is None:
        raise DataError("No classes given; add --classes, or a --learner that knows them.")
    predictor, classes = make_predictor(options, class_list(options.classes) if options.classes else ())
    dataset = Dataset(folder.name, classes, (), FolderSource(folder))
    with ExitStack() as stack:
        writer, seen = append_csv(stack, options, classes)
        for count, path in enumerate(new_images(folder, every, seen), start=1):
            (guess,) = predict_all([path], lambda path: load_image(folder / path, name=path), predictor)
            label = write_guess(writer, guess, classes, dataset, options.top)
            if label is not None:
                sort_image(dataset, guess.path, label, guess.probs[0], sort)
            print(f"{path}  {guess.error if label is None else f'{label}  {guess.probs[0]:.1%}'}", flush=True)
            if limit is not None and count >= limit:
                break


def append_csv(
    stack: ExitStack, options: PredictOptions, classes: tuple[str, ...]
) -> tuple[Any, frozenset[str]]:
    """A writer of further rows, and the images that have one."""
    out = Path(options.out)
    if options.out == "-" or not out.is_file() or not out.stat().st_size:
        return open_csv(stack, options, classes), frozenset()
    with out.open(newline="", encoding="utf-8", errors="replace") as file:
        first, *rows = csv.reader(file)
    if first != headings(options, classes):
        raise DataError(f"{out} is there and has other columns; choose another --out.")
    return csv.writer(open_out(stack, options, "a")), frozenset(row[0] for row in rows if row)


def new_images(folder: Path, every: float, seen: Container[str] = ()) -> Iterator[str]:
    """Paths of images below a folder, each once, as soon as a file has stopped growing; none seen before."""
    from taps.data.sources import FolderSource

    done: set[str] = set()
    base = folder.absolute()
    sizes: dict[str, int] = {}
    while True:
        for parts in FolderSource(folder).listing().images:
            path = "/".join(parts)
            try:
                size = (folder / path).stat().st_size
            except OSError:  # it went away again
                continue
            if path not in done and sizes.get(path) == size:
                done.add(path)
                if str(base / path) not in seen:
                    yield path
            sizes[path] = size
        time.sleep(every)
