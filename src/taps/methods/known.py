"""Images of which something is known before they come: how their views are drawn, their features, or more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taps.methods.base import BatchedMethod, Method, MethodOutput
from taps.types import PixelArray


@dataclass(frozen=True)
class DrawnImage:
    """An image whose random views are its own, wherever in a stream it comes.

    Attributes:
        pixels: The decoded image.
        seed: Of the views.
        number: Of the image.
    """

    pixels: PixelArray
    seed: int
    number: int


@dataclass(frozen=True)
class ViewedImage:
    """An image whose views were made before its turn.

    Attributes:
        seconds: What it took to make them.
        views: Pixels 0..255 [n, 3, size, size].
        number: Of the image in the stream that they were drawn for.
    """

    seconds: float
    views: Tensor
    number: int


@dataclass(frozen=True)
class KnownImage:
    """An image that need not be decoded.

    Attributes:
        seconds: What it took to make what is known of it.
        features: Normalised features of its views [n, d], for methods that need nothing else.
        output: What the method says of it, for methods that keep no state.
        number: Of the image in the stream that its views were drawn for; None where they are its own.
    """

    seconds: float
    features: Tensor | None = None
    output: MethodOutput | None = None
    number: int | None = None

    def predicted_by(self, method: Method) -> MethodOutput:
        """What the method says of it."""
        if self.output is not None:
            return self.output
        assert isinstance(method, BatchedMethod)
        assert method.needs_features_only
        return method.predict(torch.empty(0), self.features)


Prepared = ViewedImage | KnownImage
"""What may be done of an image before its turn."""
