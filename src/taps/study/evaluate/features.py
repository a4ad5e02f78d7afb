"""What is computed once and used by many runs: features of every image's views, and stateless predictions.

A feature store is a folder with `features.npy` [images, views, d], mapped into memory when it is read, and
`store.json`, which has the SHA-256 of each part of it. Features are stored in the precision of the encoder:
an evaluation has the same results to the bit with a store and without.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from taps.data import Dataset
from taps.disk import claim, open_array, remove, whole_file
from taps.errors import DamagedError, DataError, ImageError, StateError
from taps.files import holds, locked, read_json, write_json
from taps.learner import Learner
from taps.learner.prepared import DrawnImage, KnownImage
from taps.learning.fast import batch_size
from taps.methods.base import BatchedMethod, MethodOutput
from taps.methods.settings import Settings
from taps.model.clip import Clip
from taps.model.images.prefetch import prefetch
from taps.types import PixelArray, Prediction

log = logging.getLogger("taps")
PLACE = "TAPS_FEATURES"  # the variable with the folder of all stores
ARRAY, META = "features.npy", "store.json"
PART = 32  # images that are saved together
VIEW_SEED = 0  # of the views in an evaluation, whatever the order of its images


@dataclass(frozen=True)
class StoreKey:
    """What features depend on; any other value is another store.

    Attributes:
        model: Fingerprint of the weights.
        precision: Type of the model's numbers.
        device: Kind of device that computed the features.
        views: Views of each image.
        seed: Of the views.
        data: Digest of the images.
    """

    model: str
    precision: str
    device: str
    views: int
    seed: int = VIEW_SEED
    augmix: bool = False
    view_backend: str = "tensor"
    data: str = ""

    @property
    def folder(self) -> Path:
        """Stores of one model and one way to make views lie side by side, one for each digest of images."""
        stores = Path(os.environ.get(PLACE) or "~/.cache/taps/features").expanduser()
        made = "-".join(str(value) for name, value in asdict(self).items() if name != "data")
        return stores / hashlib.sha256(made.encode()).hexdigest()[:16] / self.data


def store_key(clip: Clip, settings: Settings, seed: int = VIEW_SEED) -> StoreKey:
    """The key for a model and the views that settings ask for, without the digest of the data."""
    precision = str(next(clip.visual.parameters()).dtype).removeprefix("torch.")
    own = settings.views, seed, settings.augmix, settings.view_backend
    return StoreKey(clip.fingerprint, precision, clip.device.type, *own)


def data_digest(dataset: Dataset) -> str:
    """A digest of the images and all that is done to their pixels; files are read, not decoded."""
    found = hashlib.sha256(repr(dataset.transforms).encode())
    for sample in dataset.samples:
        try:
            content = hashlib.sha256(dataset.source.read(sample.path)).hexdigest()
        except DataError:
            content = "unreadable"
        found.update(f"{sample.path}\t{content}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()[:32]


class FeatureStore:
    """The features of one data set, made and saved in parts of `PART` images.

    Attributes:
        parts: Of each part its SHA-256 and the seconds an image took; None where it is not made yet.
        broken: Why an image could not be read, by its index.
        damaged: Parts whose numbers are not those that were written.
    """

    def __init__(self, key: StoreKey, images: int) -> None:
        self.key, self.images, self.folder = key, images, key.folder
        self.parts: list[dict[str, Any] | None] = [None] * -(-images // PART)
        self.broken: dict[int, str] = {}
        self.dtype, self.dim, self.damaged = "", 0, list[int]()
        if (self.folder / META).is_file():
            self._read()

    def _read(self) -> None:
        """Read the parts that are made; a damaged part counts as not made."""
        try:
            held = read_json(self.folder / META)
            self.dtype, self.dim, self.parts = held["dtype"], held["dim"], held["parts"]
            self.broken = {int(index): why for index, why in held["broken"].items()}
            self.array = np.load(self.folder / ARRAY, mmap_mode="r")
            if self.array.shape != self._shape or len(self.parts) != -(-self.images // PART):
                raise ValueError("another shape")
        except (OSError, DamagedError, StateError, ValueError, KeyError):
            self.parts = [None] * -(-self.images // PART)
            self.damaged = list(range(len(self.parts)))
        for number, part in enumerate(self.parts):
            if part is not None and part["sha256"] != _sha256(self.array[self._rows(number)]):
                self.parts[number] = None
                self.damaged.append(number)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.images, self.key.views, self.dim

    def _rows(self, number: int) -> slice:
        return slice(PART * number, min(PART * (number + 1), self.images))

    @property
    def complete(self) -> bool:
        return None not in self.parts

    def image(self, index: int) -> KnownImage:
        """One image by its features; an `ImageError` where it could not be read."""
        if index in self.broken:
            raise ImageError(self.broken[index])
        part = self.parts[index // PART]
        assert part is not None, "a part that is not made"
        found = torch.from_numpy(np.array(self.array[index]))
        return KnownImage(part["seconds"], found.view(torch.bfloat16) if self.dtype == "bfloat16" else found)

    def make(
        self,
        clip: Clip,
        dataset: Dataset,
        report: Callable[[int, int], None] = lambda done, total: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Make what is missing, part by part, from the model and the images of the key.

        `report` is called with the images done and with all; `stop` is asked before every part. Returns
        whether the store is complete.
        """
        claim(self.folder, lambda folder: holds(folder / META, "key", "parts"))
        with locked(self.folder, patience=5.0):
            # A frozen method: it encodes as every method does that needs features alone.
            views = {name: getattr(self.key, name) for name in ("views", "augmix", "view_backend")}
            learner = Learner(clip, ["image", "photo"], "view_ensemble", **views)
            self._begin(learner)
            for number, part in enumerate(self.parts):
                if part is None and not stop():
                    self._make_part(number, learner, dataset)
                report(self._rows(number).stop, self.images)
        self.damaged = []
        return self.complete

    def _make_part(self, number: int, learner: Learner, dataset: Dataset) -> None:
        rows = self._rows(number)
        indices = range(rows.start, rows.stop)
        found, seconds = encode_images(learner, dataset, indices, self.key.seed)
        blank = np.zeros((self.key.views, self.dim), self._stored)
        kept = np.stack([_plain(each) if isinstance(each, Tensor) else blank for each in found])
        for index, each in zip(indices, found, strict=True):
            if isinstance(each, str):
                self.broken[index] = each
        # Written, not mapped: a full disk is then an error that says so, not a signal that kills.
        with open_array(self.folder / ARRAY) as opened:
            opened.seek(self.array.offset + kept[0].nbytes * rows.start)
            opened.write(kept.tobytes())
        self.parts[number] = {"sha256": _sha256(kept), "seconds": seconds}
        meta = {
            "key": asdict(self.key),
            "images": self.images,
            "dtype": self.dtype,
            "dim": self.dim,
            "threads": torch.get_num_threads(),
            "parts": self.parts,
            "broken": {str(index): why for index, why in self.broken.items()},
        }
        write_json(self.folder / META, meta)

    @property
    def _stored(self) -> str:
        return "int16" if self.dtype == "bfloat16" else self.dtype  # numpy knows no bfloat16

    def _begin(self, learner: Learner) -> None:
        """Find the shape of features by a blank image, which also warms up; open the file for them."""
        blank = DrawnImage(np.zeros((8, 8, 3), np.uint8), 0, 0)
        assert isinstance(learner.method, BatchedMethod)
        (features,) = learner.method.encode_batch([learner.method], [learner._views(blank)])
        self.dtype, self.dim = str(features.dtype).removeprefix("torch."), int(features.shape[1])
        if all(part is None for part in self.parts):
            header = {"descr": np.dtype(self._stored).str, "fortran_order": False, "shape": self._shape}
            remove(self.folder / ARRAY)
            with open_array(self.folder / ARRAY) as new:
                npy.write_array_header_2_0(new, header)
                new.truncate(new.tell() + self.images * features.numel() * features.element_size())
        self.array = np.load(self.folder / ARRAY, mmap_mode="r")


def encode_images(
    learner: Learner, dataset: Dataset, indices: Sequence[int], seed: int
) -> tuple[list[Tensor | str], float]:
    """Features of the views of some images, or why one cannot be read; and the mean seconds of an image.

    On a CPU each image is encoded alone, as a stream encodes it: a product of more rows may round otherwise.
    """
    method, device = learner.method, learner.clip.device.type
    assert isinstance(method, BatchedMethod)
    together = 1 if device == "cpu" else batch_size(learner.settings.views, device)
    found: dict[int, Tensor | str] = {}
    seconds = 0.0

    def decode(index: int) -> PixelArray | None:
        try:
            return dataset.image(index)
        except (ImageError, DataError) as error:
            found[index] = str(error)
            return None

    futures = prefetch(indices, decode, threads=1, depth=together + 1)
    coming = zip(indices, (future.result() for future in futures), strict=True)
    while group := list(islice(coming, together)):
        images = [(index, pixels) for index, pixels in group if pixels is not None]
        began = time.perf_counter()
        views = [learner._views(DrawnImage(pixels, seed, index)) for index, pixels in images]
        made = method.encode_batch([method] * len(views), views) if views else []
        found |= {index: each.cpu() for (index, _), each in zip(images, made, strict=True)}
        seconds += time.perf_counter() - began
    return [found[index] for index in indices], seconds / max(1, len(indices))


def find_store(clip: Clip, dataset: Dataset, settings: Settings) -> FeatureStore | None:
    """The complete store of these images, where there is one; a damaged one is reported and not used."""
    key = store_key(clip, settings)
    if not key.folder.is_dir():  # no data set has a store: do not read every image for its digest
        return None
    store = FeatureStore(replace(key, data=data_digest(dataset)), len(dataset))
    if store.damaged:
        log.warning("%s is damaged; its images are decoded. `taps features` makes it again.", store.folder)
    return store if store.complete else None


def _plain(features: Tensor) -> np.ndarray[Any, Any]:
    return (features.view(torch.int16) if features.dtype == torch.bfloat16 else features).numpy()


def _sha256(rows: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


class Outputs:
    """A file of the predictions of a method without state, by image: they hold for every order of the stream.

    The file is made where it is missing; its name stands for the method, the model and the images. Two
    processes may write the same row: they write the same numbers.
    """

    def __init__(self, file: Path, images: int, classes: int) -> None:
        kinds = [("probs", "f4", (classes,)), ("entropy", "f8"), ("seconds", "f8")]
        if not file.is_file():
            claim(file.parent)
            empty = np.zeros(images, kinds)
            empty["seconds"] = np.nan  # not predicted yet
            # Whole, so that no disk can be full when a row is written.
            with whole_file(file, mark=f".{os.getpid()}") as part, open_array(part) as new:
                np.save(new, empty)
        self.rows = np.load(file, mmap_mode="r+")

    def image(self, index: int) -> KnownImage | None:
        """An image with its prediction; None where it has none yet."""
        row = self.rows[index]
        if np.isnan(row["seconds"]):
            return None
        output = MethodOutput(torch.from_numpy(np.array(row["probs"])), float(row["entropy"]))
        return KnownImage(float(row["seconds"]), output=output)

    def keep(self, index: int, prediction: Prediction) -> None:
        row = self.rows[index : index + 1]
        row["probs"], row["entropy"] = prediction.probs, prediction.entropy
        row["seconds"] = prediction.seconds  # last: it says that the row is whole
