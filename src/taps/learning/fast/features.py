"""Features of an image's views by the frozen tower, captured once for each number of views and replayed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from taps.learning.fast.capture import CapturedGraph, CudaCapture, GraphCapture
from taps.model.clip import Clip
from taps.model.prompts.classifier import Classifier

log = logging.getLogger("taps")
SHAPES = 4  # graphs kept for one model; each holds the activations of its views


@dataclass
class _Captured:
    """A graph and the static buffers it reads."""

    inputs: tuple[Tensor, ...]
    graph: CapturedGraph[Tensor]


@dataclass
class _OfModel:
    """What was captured of one model, for all learners that share it. The lock is held while one replays."""

    device: torch.device
    graphs: GraphCapture | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    captured: dict[Any, _Captured] = field(default_factory=dict)


_models: WeakKeyDictionary[Clip, _OfModel] = WeakKeyDictionary()


@torch.no_grad()
def frozen_features(classifier: Classifier, views: Tensor, vision: Tensor | None = None) -> Tensor:
    """Normalised features of views [N, 3, H, W] in 0..255; nothing is differentiated.

    Args:
        classifier: With the model.
        views: Of one image; graphs are kept for a few numbers of views.
        vision: Prompts of the vision tower.
    """
    clip = classifier.clip
    model = _models.get(clip)
    if model is None or model.device != clip.device:
        model = _models[clip] = _OfModel(clip.device, _capture_of(clip.device))
    if model.graphs is None:
        return classifier.image(clip.preprocess(views.to(clip.device)), vision)
    inputs = (views.to(clip.device), *(() if vision is None else (vision,)))

    def encode(views: Tensor, vision: Tensor | None = None) -> Tensor:
        return classifier.image(clip.preprocess(views), vision)

    # Weights that were moved or cast since then lie elsewhere: a graph would read what is no longer theirs.
    weights = next(clip.visual.parameters()).data_ptr()
    key = (weights, *((each.shape, each.dtype) for each in inputs))
    with model.lock:
        found = model.captured.get(key) or _capture(model, key, encode, inputs)
        if found is None:
            return encode(*inputs)
        for mine, given in zip(found.inputs, inputs, strict=True):
            mine.copy_(given)
        found.graph.replay()
        return found.graph.result.clone()


def _capture_of(device: torch.device) -> GraphCapture | None:
    return CudaCapture(device) if device.type == "cuda" else None


def _capture(
    model: _OfModel, key: Any, encode: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> _Captured | None:
    assert model.graphs is not None
    while len(model.captured) >= SHAPES:
        del model.captured[next(iter(model.captured))]
    mine = tuple(each.clone() for each in inputs)
    try:
        model.captured[key] = _Captured(mine, model.graphs.capture(lambda: encode(*mine)))
    except RuntimeError as error:
        log.info("Features are computed without CUDA graphs (%s).", error)
        model.graphs = None
        return None
    return model.captured[key]
