"""Features of class texts, encoded once: where a class has several, they are kept on disk by content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import TapsError
from taps.files import read_tensors, write_tensors
from taps.prompts.classifier import Classifier, class_means

CHUNK = 512  # texts encoded at once: thousands would need gigabytes


def cache_folder() -> Path:
    """Where features of texts are kept: TAPS_CACHE, or ~/.cache/taps; it may be deleted at any time."""
    return Path(os.environ.get("TAPS_CACHE") or "~/.cache/taps").expanduser() / "texts"


@torch.no_grad()
def encoded_texts(classifier: Classifier, texts: Sequence[Sequence[str]]) -> Tensor:
    """Normalised means of the features of each class's texts [K, d].

    Args:
        classifier: The model.
        texts: Of each class.
    """
    clip, counts = classifier.clip, [len(each) for each in texts]
    # One text a class takes less than a second. Random weights have no name of their own.
    kept = max(counts) > 1 and not clip.fingerprint.startswith("random")
    place = cache_folder() / f"{_key(classifier, texts)}.safetensors"
    found = _read(place) if kept else None
    if found is None:
        found = _encode(classifier, [each for own in texts for each in own], counts)
        if kept:
            _write(place, found)
    return found.to(clip.device)


def _encode(classifier: Classifier, flat: Sequence[str], counts: Sequence[int]) -> Tensor:
    chunks = [flat[start : start + CHUNK] for start in range(0, len(flat), CHUNK)]
    encoded = [classifier.clip.encode_text(chunk).to(classifier.dtype) for chunk in chunks]
    features = F.normalize(torch.cat(encoded), dim=-1)
    return features if max(counts) == 1 else class_means(features, counts)


def _key(classifier: Classifier, texts: Sequence[Sequence[str]]) -> str:
    """Names the features: texts, weights, and what their digits depend on."""
    clip = classifier.clip
    content = [clip.fingerprint, str(clip.dtype), clip.device.type, texts]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _read(place: Path) -> Tensor | None:
    """None where there is no such file, or a damaged one: the texts are encoded again."""
    try:
        return read_tensors(place)[0]["features"]
    except (OSError, TapsError, KeyError):
        return None


def _write(place: Path, features: Tensor) -> None:
    """A disk that is full or read-only costs time, and nothing else."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(place, {"features": features.cpu()})
    except (OSError, TapsError):
        return
