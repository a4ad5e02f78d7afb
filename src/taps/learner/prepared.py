"""Images prepared before their turn in a stream: with their own views, with views made, or encoded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taps.methods.base import BatchedMethod, Method, MethodOutput
from taps.types import PixelArray


@dataclass(frozen=True)
class DrawnImage:
    """A decoded image whose random views come from its own seed and number, wherever in a stream it comes."""

    pixels: PixelArray
    seed: int
    number: int


@dataclass(frozen=True)
class ViewedImage:
    """An image whose views [n, 3, size, size] were made, in some seconds, for a number in the stream."""

    seconds: float
    views: Tensor
    number: int


@dataclass(frozen=True)
class KnownImage:
    """An image that need not be decoded.

    Attributes:
        seconds: What it took to make what is known of it.
        features: Normalised features of its views [n, d], for methods that need nothing else.
        output: The method's output, for methods that keep no state.
        number: Of the image in the stream that its views were drawn for; None where they are its own.
    """

    seconds: float
    features: Tensor | None = None
    output: MethodOutput | None = None
    number: int | None = None

    def predicted_by(self, method: Method) -> MethodOutput:
        if self.output is not None:
            return self.output
        assert isinstance(method, BatchedMethod)
        assert method.needs_features_only
        return method.predict(torch.empty(0), self.features)


Prepared = ViewedImage | KnownImage
