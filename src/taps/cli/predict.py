"""`taps predict FOLDER`: predictions for every image; nobody is asked."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from taps.cli.options import new_app, with_options
from taps.errors import DataError, SettingsError
from taps.session.options import ImageOptions, SortOptions

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.learner import Learner
    from taps.session.predict import Guess, Predictor

app = new_app()


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
    top: int = 3
    out: str = "predictions.csv"
    batch: int = 16

    def __post_init__(self) -> None:
        if self.top < 1 or self.batch < 1:
            raise SettingsError("--top and --batch must be 1 or more.")
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

    What is said of an image depends on no other image and on no order.

    Columns: path (in full), predicted, probability, and the next likeliest classes; error where an image
    could not be read.
    """
    from taps.data.load import check_there

    check_there(options.folder)  # first, for the others take seconds to import
    from rich.progress import track

    from taps.session.predict import predict_all
    from taps.session.sorting import check_sorting, sort_image

    check_sorting(options.folder, sort)
    predictor, classes, dataset = prepare(options)
    paths = [sample.key for sample in dataset.samples]
    index_of = {path: index for index, path in enumerate(paths)}
    guesses = predict_all(paths, lambda path: dataset.image(index_of[path]), predictor, batch=options.batch)
    if not quiet and options.out != "-":
        guesses = track(guesses, "images", total=len(paths))  # type: ignore[assignment]
    counts: dict[str | None, int] = dict.fromkeys([*classes, None], 0)  # None: could not be read
    with ExitStack() as stack:
        writer = open_csv(stack, options, classes)
        for guess in guesses:
            label = write_guess(writer, guess, classes, dataset, options.top)
            if label is not None:
                sort_image(dataset, guess.path, label, guess.probs[0], sort)
            counts[label] += 1
    if not quiet and options.out != "-":
        broken = counts.pop(None)
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            if count:
                print(f"{count:>7,}  {name}")
        if broken:
            print(f"{broken:>7,}  could not be read")
        if dataset.left_out:
            print(f"left out: {dataset.left_out}")
        print(f"Written: {options.out}")


def prepare(options: PredictOptions) -> tuple[Predictor, tuple[str, ...], Dataset]:
    """Who predicts, into which classes, and the images."""
    from taps.data.names import ClassNames
    from taps.session.run import images_of, text_settings

    if options.learner is None:
        dataset, names = images_of(options)
        return *make_predictor(options, names, **text_settings(options, dataset)), dataset
    predictor, classes = make_predictor(options, ())
    return predictor, classes, images_of(options, ClassNames(classes))[0]


def make_predictor(
    options: PredictOptions, names: Sequence[str], **texts: Any
) -> tuple[Predictor, tuple[str, ...]]:
    """Who predicts: a saved learner, into its own classes; or zero-shot CLIP, into those given."""
    from taps.clip import load_clip
    from taps.session.predict import Predictor, zero_shot

    if options.learner is not None:
        if options.classes or options.template or options.texts:
            raise SettingsError(
                "A --learner knows its classes and their texts; leave --classes, --template and --texts out."
            )
        learner = find_learner(Path(options.learner), options.stream)
        return Predictor(learner), learner.classes
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device, dtype=options.dtype)
    return zero_shot(clip, names, **texts), tuple(names)


def find_learner(folder: Path, stream: str | None) -> Learner:
    """The learner of a store's stream, of a run, or one that was saved."""
    from taps.serve.replay import is_store, learner_of
    from taps.session.predict import load_learner

    if is_store(folder):
        return learner_of(folder, stream)
    if stream is not None:
        raise SettingsError(f"{folder} is no store, so that it has no streams; leave --stream out.")
    return load_learner(folder)


def _opened(path: Path, mode: str) -> TextIO:
    try:
        return path.open(mode, newline="", encoding="utf-8", buffering=1)  # type: ignore[return-value]
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another --out.") from error


def open_csv(stack: ExitStack, options: PredictOptions, classes: tuple[str, ...]) -> Any:
    """A writer of rows into a new file; the headings are written."""
    writer = csv.writer(open_out(stack, options, "w"))
    writer.writerow(headings(options, classes))
    return writer


def open_out(stack: ExitStack, options: PredictOptions, mode: str) -> TextIO:
    if Path(options.out).resolve() == Path(options.folder).resolve():
        raise DataError(f"{options.out} names the images themselves; choose another --out.")
    return sys.stdout if options.out == "-" else stack.enter_context(_opened(Path(options.out), mode))


def headings(options: PredictOptions, classes: tuple[str, ...]) -> list[str]:
    others = range(2, min(options.top, len(classes)) + 1)
    more = [name for place in others for name in (f"class_{place}", f"probability_{place}")]
    return ["path", "predicted", "probability", *more, "error"]


def write_guess(
    writer: Any, guess: Guess, classes: tuple[str, ...], dataset: Dataset, top: int
) -> str | None:
    """Write one row; the image's class, or None where it could not be read."""
    from taps.session.sorting import place_of

    top = min(top, len(classes))
    path = str(place_of(dataset, guess.path) or guess.path)
    if guess.error:
        writer.writerow([path, *[""] * (2 * top), guess.error])
        return None
    pairs = zip(guess.best[:top], guess.probs[:top], strict=True)
    writer.writerow([path, *(cell for k, p in pairs for cell in (classes[k], f"{p:.6f}")), ""])
    return classes[guess.best[0]]
