"""Predictions for many images, in batches: nobody is asked and nothing is kept."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from taps.data.sources import unpack
from taps.disk import temporary_folder
from taps.errors import DataError, ImageError
from taps.learner import Learner
from taps.learner.checkpoint import exists
from taps.model.images.geometry import Framing
from taps.model.images.prefetch import prefetch
from taps.streams.record import SPEC, STATE
from taps.streams.run import check_plugins
from taps.types import PixelArray

ZIPPED = "learner"  # the folder in a ZIP


@dataclass(frozen=True)
class Guess:
    """The prediction of one image.

    Attributes:
        path: Its path.
        best: Indices of the classes, the likeliest first; none where the image could not be read.
        probs: Their probabilities.
        error: Why it could not be read.
    """

    path: str
    best: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    error: str = ""


def load_learner(folder: Path) -> Learner:
    """A saved learner: where `Learner.save` put it, in the folder of a run, or in the page's ZIP."""
    if zipfile.is_zipfile(folder):
        with temporary_folder() as place:
            unpack(folder, place)
            return load_learner(place)
    found = next((each for each in (folder, folder / STATE, folder / ZIPPED) if exists(each)), None)
    if found is None:
        raise DataError(f"{folder} holds no saved learner, run or store; give one of these.")
    if (folder / SPEC).is_file():
        check_plugins(folder)
    return Learner.load(found)


def framed(learner: Learner, image: PixelArray) -> PixelArray:
    """View 0 of an image, where the learner looks at no other; else the image.

    The thread that decodes makes it, and a photograph is not kept until its batch is full. View 0 of it is
    itself. A GPU makes its own, which are rounded otherwise.
    """
    clip = learner.clip
    if learner.settings.views > 1 or clip.device.type != "cpu":
        return image
    return Framing(**clip.config.framing).view(image).permute(1, 2, 0).numpy()


def predict_all(
    paths: Iterable[str], read: Callable[[str], PixelArray], learner: Learner, *, batch: int = 16
) -> Iterator[Guess]:
    """Predict each image, in order; images are decoded while others are classified.

    Args:
        paths: Names of the images.
        read: Gives the pixels of one.
        learner: Stays as it is.
        batch: Images classified together.
    """

    def decoded(path: str) -> tuple[str, PixelArray | None, str]:
        try:
            return path, framed(learner, read(path)), ""
        except (ImageError, DataError) as error:
            return path, None, str(error)

    coming = (each.result() for each in prefetch(paths, decoded, depth=batch))
    while group := list(islice(coming, batch)):
        images = [pixels for _, pixels, _ in group if pixels is not None]
        predictions = iter(learner.predict_many(images, update=False) if images else ())
        for path, pixels, error in group:
            if pixels is None:
                yield Guess(path, error=error)
                continue
            probs = next(predictions).probs
            best = np.argsort(-probs, kind="stable")
            yield Guess(path, tuple(best.tolist()), tuple(probs[best].tolist()))
