"""What every method on features says of a small frozen stream: numbers that change are noticed.

    python -m tests.digests            # says which methods say something else than tests/assets/digests.json
    python -m tests.digests --update   # on purpose only: pages of results are older than the numbers then

Images are made-up features around the class texts of the tiny model. Of each method it holds the predicted
classes, with a dot where two classes are too close to tell on every CPU, and the mean confidence.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from taps.learner import Learner
from taps.learner.prepared import KnownImage
from taps.methods.registry import all_methods, find_method
from taps.model.clip import Clip, load_clip

FILE = Path(__file__).parent / "assets" / "digests.json"
CLASSES = ["cat", "dog", "owl", "fox"]
IMAGES, VIEWS = 24, 3
RUNS = 8  # images of one class after the other, at the end
CLOSE = 0.02  # of two probabilities: rounding may tell them apart otherwise elsewhere
NEAR = 5e-4  # of the mean confidence


@cache
def frozen_stream() -> tuple[Clip, list[torch.Tensor], list[int]]:
    """The model, features of the views of each image, and labels."""
    clip = load_clip("tiny", device="cpu")
    text = Learner(clip, CLASSES, "zero_shot").method.text.double().numpy()  # type: ignore[attr-defined]
    rng = np.random.default_rng(7)
    labels = np.append(rng.integers(len(CLASSES), size=IMAGES), np.repeat([3, 1], RUNS))
    shift = rng.normal(size=text.shape)  # the classes lie elsewhere than their texts
    centres = text + 0.6 * shift / np.linalg.norm(shift, axis=1, keepdims=True)
    drawn = centres[labels][:, None] + 0.08 * rng.normal(size=(len(labels), VIEWS, text.shape[1]))
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    return clip, [torch.from_numpy(each).float() for each in drawn], labels.tolist()


def methods() -> list[str]:
    """Those that need no more of an image than features, and no trained prompts."""
    clip, _, _ = frozen_stream()
    found = []
    for name, each in all_methods().items():
        if (
            each.prompts in (None, "hand", "optional")
            and Learner(clip, CLASSES, name).method.needs_features_only
        ):
            found.append(name)
    return found


def told(method: str) -> dict[str, Any]:
    """What a method says of the frozen stream."""
    clip, images, labels = frozen_stream()
    known = find_method(method).known
    wanted = {"views": VIEWS, "fraction": 0.7, "rate": 0.35, "policy": "paced"}
    settings: dict[str, Any] = {name: value for name, value in wanted.items() if name in known}
    learner = Learner(clip, CLASSES, method, seed=1, **settings)
    letters, sure = "", []
    for features, label in zip(images, labels, strict=True):
        said = learner.predict_one(KnownImage(0.0, features[: learner.settings.views]))
        second, first = np.sort(said.probs)[-2:]
        letters += "." if first - second < CLOSE else str(said.index)
        sure.append(said.probability)
        if said.ask:
            learner.learn_one(said.id, label)
    found = {"classes": letters, "confidence": round(float(np.mean(sure)), 4)}
    return found | {"digest": hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12]}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two say the same but for rounding, which may turn one image."""
    pairs = zip(one["classes"], other["classes"], strict=True)
    turned = sum(a != b and "." not in (a, b) for a, b in pairs)
    return turned <= 1 and abs(one["confidence"] - other["confidence"]) < NEAR


def main() -> None:
    held = json.loads(FILE.read_text()) if FILE.is_file() else {}
    found = {name: told(name) for name in methods()}
    changed = [name for name in found if name not in held or not same(found[name], held[name])]
    print("changed:", ", ".join(changed) or "none")
    if "--update" in sys.argv:
        kept = {name: found[name] if name in changed else held[name] for name in found}
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
