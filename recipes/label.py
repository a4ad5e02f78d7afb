"""Features of the views of many sets, encoded once: other recipes run their streams on them.

    PYTHONPATH=src python3 recipes/label.py encode --data DIR --out OUT
    PYTHONPATH=src python3 recipes/label.py time

DIR holds the zips. `encode` stores the features of 16 views of every image in OUT: at the prompts "a photo of
a" they depend on neither order nor method (two hours on two cores, a minute on a GPU). `results.py`,
`rivals.py`, `pace.py` and `folder_order.py` read them. `time` prints what the head takes on one core.
Defaults of the head were chosen on the sets of `CHOOSING`.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import taps
from taps.data import Dataset, corrupt_dataset, load_dataset, subset_classes
from taps.head.head import Head
from taps.model.clip import Clip
from taps.model.images.views import make_views, sample_generator

PACS = ("photo", "art_painting", "cartoon", "sketch")
FILES = {
    "gtsrb": "gtsrb-test.zip",
    "grocery": "grocery-test.zip",
    "dtd": "dtd.zip",
    "rsscn7": "rsscn7.zip",
    "plantdoc": "plantdoc.zip",
    "sign-digits": "sign-digits.zip",
    "caltech101": "caltech101-test.zip",
    **{name: f"pacs.zip/{name}" for name in PACS},
    "flowers102": "flowers102-test.zip",
    "cub200": "cub200-test.zip",
    "food101": "food101-test.zip",
    "imagenette": "imagenette-val.zip",
}
MADE = ("tiny", "tiny corrupted", "tiny 40 classes", "imagenette corrupted")
FAR = ("gtsrb", "grocery", "dtd", "rsscn7", "plantdoc", "sign-digits")
DRAWN = ("caltech101", *PACS)
CHOOSING = ("gtsrb", "dtd", "plantdoc", "art_painting", "sketch", "flowers102", "food101", *MADE[:3])
SHORT = 2000  # images of a set at most, where it is not one of FAR and DRAWN


def find_set(name: str, data: Path) -> Dataset:
    """One of `FILES` or `MADE`."""
    if name in FILES:
        return load_dataset(data / FILES[name])
    if name.startswith("imagenette"):
        return corrupt_dataset(load_dataset(data / "imagenette-val.zip"), "mix", severity=4, seed=3)
    tiny = load_dataset(data / "tiny-imagenet-val.zip")
    if name == "tiny corrupted":
        return corrupt_dataset(tiny, "mix", severity=3, seed=3)
    return subset_classes(tiny, 40, seed=0) if name == "tiny 40 classes" else tiny


def encode(name: str, data: Path, file: Path, given: argparse.Namespace) -> None:
    """Features of the views of the images, labels and class names, into one file."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # on a GPU the same features as on a CPU
    clip, dataset = load_once(given.model), find_set(name, data)
    limit = given.limit or (len(dataset) if name in FAR + DRAWN else SHORT)
    features: list[torch.Tensor] = []
    chosen = np.random.default_rng(0).permutation(len(dataset))[:limit].tolist()
    for start in range(0, len(chosen), 16):
        some = chosen[start : start + 16]
        seen = torch.cat([view(clip, dataset, index, given.views) for index in some]).to(clip.device)
        with torch.no_grad():
            found = F.normalize(clip.encode_image(clip.preprocess(seen)).float(), dim=-1)
        features += found.cpu().half().split(given.views)
    labels = np.array([dataset.samples[i].label for i in chosen])
    part = file.with_suffix(".part.npz")
    np.savez(part, features=torch.stack(features).numpy(), labels=labels, classes=np.array(dataset.classes))
    part.replace(file)
    print(f"encoded {name}: {len(chosen)} images", flush=True)


def view(clip: Clip, dataset: Dataset, index: int, views: int) -> torch.Tensor:
    """The views of one image, seeded by its place in the data set."""
    generator = sample_generator(0, index)
    return make_views(dataset.image(index), views=views, **clip.config.framing, generator=generator)


def with_stored_features(clip: Clip, features: torch.Tensor) -> Clip:
    """The same model, whose image tower looks features [N, V, d] up: a view's one "pixel" is its place."""
    stored = copy.copy(clip)
    stored.preprocess = lambda views: views

    def encode_image_and_layers(images: torch.Tensor, prompts: Any = None, layers: Any = ()) -> Any:
        assert prompts is None, "stored features are those without vision prompts"
        return features.flatten(0, 1)[images.flatten()], []

    stored.encode_image_and_layers = encode_image_and_layers
    return stored


@cache
def load_once(model: str, device: str | None = None) -> Clip:
    """A worker runs many streams with one model."""
    return taps.load_clip(model, device=device)


def stream_of(labels: np.ndarray, job: dict[str, Any]) -> np.ndarray:
    """Places of the images in the order they come in: at random, or class after class."""
    order, situation = job["order"], job.get("situation")
    places = np.random.default_rng(order).permutation(len(labels))
    turn = np.random.default_rng([order, 2]).permutation(labels.max() + 1)
    if situation == "few classes":  # three of ten
        places = places[turn[labels[places]] < max(2, round(0.3 * len(turn)))]
    elif situation == "one class mostly":  # four of five images
        first = labels[places] == labels[places[0]]
        places = places[first | (np.cumsum(~first) <= first.sum() // 4)]
    places = places[: job.get("limit")]
    if job["sorted"] or situation == "class after class":
        places = places[np.argsort(turn[labels[places]], kind="stable")]
    return places


def read_rows(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def feature_file(name: str, out: Path, views: int) -> Path:
    return out / f"{name.replace(' ', '_')}-{views}.npz"


def encode_one(name: str, given: argparse.Namespace) -> None:
    file = feature_file(name, given.out, given.views)
    zip_file = FILES.get(name, "tiny-imagenet-val.zip" if "tiny" in name else "imagenette-val.zip")
    if not file.exists() and (given.data / zip_file.split("/")[0]).exists():
        encode(name, given.data, file, given)


def head_milliseconds(dim: int, classes: int, images: int = 700, views: int = 16) -> dict[str, float]:
    """Medians over the last images of a made-up stream, a fifth of it labelled: more than are refitted."""
    rng = np.random.default_rng(0)
    head, centres = Head(dim, classes, bases=2, several=True), rng.normal(size=(classes, dim))
    seen: list[float] = []
    learned: list[float] = []
    for place in range(images):
        label = int(rng.integers(classes))
        views_ = centres[label] + rng.normal(size=(views, dim))
        logs = np.log(rng.dirichlet(np.ones(classes), 2))
        began = time.process_time()
        look = head.see(views_ / np.linalg.norm(views_, axis=1, keepdims=True), logs)
        head.predict(look)
        seen.append(time.process_time() - began)
        if place % 5 == 0:
            began = time.process_time()
            head.learn(look, label)
            learned.append(time.process_time() - began)
    return {
        "image_ms": 1000 * float(np.median(seen[-150:])),
        "first_images_ms": 1000 * float(np.median(seen[:512])),
        "first_mean_ms": 1000 * float(np.mean(seen[:512])),
        "label_ms": 1000 * float(np.median(learned[-10:])),
    }


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("encode", "time"))
    parser.add_argument("--data", type=Path, help="folder that holds the zips")
    parser.add_argument("--out", type=Path, help="folder for the features")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--views", type=int, default=16, help="fewer are quicker to encode")
    parser.add_argument("--limit", type=int, help="so many images of a set at most")
    parser.add_argument("--sets", default="", help="these alone, separated by commas")
    return parser


def main() -> None:
    given = parser().parse_args()
    if given.what == "time":
        print(json.dumps({classes: head_milliseconds(512, classes) for classes in (7, 100, 1000)}, indent=1))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    names = given.sets.split(",") if given.sets else (*FILES, *MADE)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        list(pool.map(encode_one, names, [given] * len(names)))


if __name__ == "__main__":
    main()
