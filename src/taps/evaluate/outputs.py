"""What a method without a state says of each image: said once, it holds for every order of the stream."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from taps.methods.base import MethodOutput
from taps.methods.known import KnownImage
from taps.types import Prediction


class Outputs:
    """A file of predictions by the index of their image, which runs in other orders read and add to.

    Two processes may write the same row: they write the same numbers.

    Args:
        file: Made where it is not there. Its name stands for the method, the model and the images.
        images: How many there are.
        classes: How many there are.
    """

    def __init__(self, file: Path, images: int, classes: int) -> None:
        kinds = [("probs", "f4", (classes,)), ("entropy", "f8"), ("seconds", "f8")]
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            empty = np.zeros(images, kinds)
            empty["seconds"] = np.nan  # not said yet
            part = file.with_name(f".{os.getpid()}-{file.name}")
            np.save(part, empty)  # whole, so that no disk can be full when a row is written
            os.replace(part, file)
        self.rows = np.load(file, mmap_mode="r+")

    def image(self, index: int) -> KnownImage | None:
        """An image by what was said of it; None where nothing was."""
        row = self.rows[index]
        if np.isnan(row["seconds"]):
            return None
        output = MethodOutput(torch.from_numpy(np.array(row["probs"])), float(row["entropy"]))
        return KnownImage(float(row["seconds"]), output=output)

    def keep(self, index: int, said: Prediction) -> None:
        """Note what is said of an image; the seconds last, for they say that the row is whole."""
        row = self.rows[index : index + 1]
        row["probs"], row["entropy"] = said.probs, said.entropy
        row["seconds"] = said.seconds
