"""TAPS: test-time active prompt learning for vision-language models on single-sample streams."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taps.data.dataset import Dataset
    from taps.learner import Learner
    from taps.learner.together import Pool
    from taps.methods.registry import list_methods, settings
    from taps.model.clip import load_clip
    from taps.serve.client import Client
    from taps.streams.events import stream
    from taps.study.evaluate.evaluate import evaluate
    from taps.study.report.compare import compare
    from taps.types import Answer, Prediction

__all__ = [
    "Answer",
    "Client",
    "Dataset",
    "Learner",
    "Pool",
    "Prediction",
    "compare",
    "evaluate",
    "list_methods",
    "load_clip",
    "settings",
    "stream",
]
__version__ = "0.3.0"

# Imported when first used, so that commands which need no torch do not wait for it.
HOMES = {
    "Answer": "taps.types",
    "Dataset": "taps.data.dataset",
    "Prediction": "taps.types",
    "stream": "taps.streams.events",
    "Client": "taps.serve.client",
    "Learner": "taps.learner",
    "Pool": "taps.learner.together",
    "load_clip": "taps.model.clip",
    "compare": "taps.study.report.compare",
    "evaluate": "taps.study.evaluate.evaluate",
    "list_methods": "taps.methods.registry",
    "settings": "taps.methods.registry",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'taps' has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
