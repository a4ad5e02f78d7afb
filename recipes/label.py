"""What a label buys: accuracy by number of labels, method and rule for whom to ask (docs/label.md).

    PYTHONPATH=src python3 recipes/label.py develop --data DIR --out OUT --views 1 --limit 800
    PYTHONPATH=src python3 recipes/label.py final --data DIR --out OUT --views 1 --limit 4000
    PYTHONPATH=src python3 recipes/label.py final --data DIR --out OUT --views 8 --limit 500
    PYTHONPATH=src python3 recipes/label.py noise --data DIR --out OUT --views 1 --limit 800 --orders 20
    PYTHONPATH=src python3 recipes/label.py time --data DIR --out OUT
    PYTHONPATH=src python3 recipes/label.py page --out OUT --docs docs

DIR holds the zips. `develop` runs on Tiny-ImageNet's val set (clean, corrupted, fewer classes, coarse names)
and on corrupted Imagenette: every choice was made there. `final` runs once on caltech101-test and PACS.
`noise` runs the development streams in many more orders, with right and with wrong answers.

Views of an image are encoded once and stored: with a context in the text alone ("a photo of a", tuned) their
features depend on neither order nor method. One view makes long streams cheap (zero-shot with the head);
several are for `view_ensemble` and `taps`, with a head and without. The methods themselves, their steps,
policies and heads, are run truly, one image after the other. Rows go to OUT/NAME-VIEWS.jsonl; a run that was
stopped goes on where it was.
Needs no typer and no rich; `page` needs matplotlib.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import taps
from taps.clip import Clip
from taps.data import Dataset, corrupt_dataset, load_dataset, subset_classes
from taps.head.head import Head
from taps.images.views import make_views, sample_generator
from taps.learner import Learner

ORDERS = 5
KEPT = 0.25  # of the views: with few of them a tenth would be none
RULES = ("random", "entropy", "margin", "leverage", "coverage", "density")
FINAL = {
    "caltech101": "caltech101-test.zip",
    **{name: f"pacs.zip/{name}" for name in ("photo", "art_painting", "cartoon", "sketch")},
}
DEVELOP = (
    "tiny",
    "tiny corrupted",
    "tiny 40 classes",
    "tiny coarse",
    "tiny coarse sketch",
    "imagenette corrupted",
)
COARSE = {
    "dog": "Chihuahua|Yorkshire Terrier|Golden Retriever|Labrador Retriever|Standard Poodle",
    "bird": "goose|black stork|king penguin|albatross",
    "insect": "ladybug|fly|bee|grasshopper|stick insect|cockroach|praying mantis|dragonfly|monarch butterfly",
    "car": "station wagon|convertible|limousine|sports car|police van|moving van",
    "fruit": "orange|lemon|banana|pomegranate",
    "monkey": "orangutan|chimpanzee|baboon",
    "house": "barn|lighthouse|cliff dwelling|thatched roof",
}


def development_set(name: str, data: Path) -> Dataset:
    """One of `DEVELOP`."""
    if name.startswith("imagenette"):
        return corrupt_dataset(load_dataset(data / "imagenette-val.zip"), "mix", severity=4, seed=3)
    tiny = load_dataset(data / "tiny-imagenet-val.zip")
    if "coarse" in name:
        tiny = coarse(tiny)
    if name == "tiny corrupted":
        return corrupt_dataset(tiny, "mix", severity=3, seed=3)
    if name == "tiny coarse sketch":
        return corrupt_dataset(tiny, "sketch", severity=2, seed=3)
    return subset_classes(tiny, 40, seed=0) if name == "tiny 40 classes" else tiny


def coarse(tiny: Dataset) -> Dataset:
    """Tiny-ImageNet's images under coarse names, as PACS has them."""
    place = {name: k for k, names in enumerate(COARSE.values()) for name in names.split("|")}
    new_label = {i: place[name] for i, name in enumerate(tiny.classes) if name in place}
    part = tiny.take([i for i, sample in enumerate(tiny.samples) if sample.label in new_label])
    return part.relabelled(tuple(COARSE), new_label)


def encode(clip: Clip, dataset: Dataset, limit: int, views: int, file: Path) -> None:
    """Features of the views of some of the images, labels and class names, into one file."""
    chosen = np.random.default_rng(0).permutation(len(dataset))[:limit]
    features: list[torch.Tensor] = []
    at_once = max(1, 64 // views)
    for start in range(0, len(chosen), at_once):
        some = chosen[start : start + at_once].tolist()
        seen = [view(clip, dataset, index, views) for index in some]
        with torch.no_grad():
            found = F.normalize(clip.encode_image(clip.preprocess(torch.cat(seen))).float(), dim=-1)
        features += found.cpu().half().split(views)
    labels = np.array([dataset.samples[i].label for i in chosen])
    part = file.with_suffix(".part.npz")
    np.savez(part, features=torch.stack(features).numpy(), labels=labels, classes=np.array(dataset.classes))
    part.replace(file)


def view(clip: Clip, dataset: Dataset, index: int, views: int) -> torch.Tensor:
    """The views of one image, seeded by its place in the data set."""
    return make_views(
        dataset.image(index),
        views=views,
        **clip.config.framing,
        generator=sample_generator(0, index),
        device=clip.device,
    )


def with_stored_features(clip: Clip, features: torch.Tensor) -> Clip:
    """The same model, whose image tower looks its features up: an image's "pixels" are its place."""
    stored = copy.copy(clip)
    stored.preprocess = lambda views: views

    def encode_image_and_layers(images: torch.Tensor, prompts: Any = None, layers: Any = ()) -> Any:
        assert prompts is None, "stored features are those without vision prompts"
        return features[int(images[0, 0])][: len(images)], []

    stored.encode_image_and_layers = encode_image_and_layers
    return stored


@cache
def load_once(model: str) -> Clip:
    """A worker runs many streams with one model."""
    return taps.load_clip(model, device="cpu")


def run_stream(
    file: str, model: str, order: int, method: str, settings: dict[str, Any], noise: float
) -> dict[str, Any]:
    """One stream, predict first, then label; the questions are answered truly but for a share `noise`."""
    torch.set_num_threads(1)
    held = np.load(file)
    clip = load_once(model)
    features = F.normalize(torch.from_numpy(held["features"]).float(), dim=-1)
    labels, classes = held["labels"], held["classes"].tolist()
    learner = Learner(with_stored_features(clip, features), classes, method, seed=order, **settings)
    chance = np.random.default_rng([order, 1])
    right, inner, sure, losses, seconds = [], [], [], [], 0.0
    record_inner(learner.method, inner)
    permuted = np.random.default_rng(order).permutation(len(labels))
    for id, index in enumerate(permuted.tolist()):
        views = torch.full((settings.get("views", 1), 1), index)
        began = time.perf_counter()
        output = learner.method.predict(views)
        score = output.entropy if output.score is None else output.score
        ask = learner.policy is not None and learner.policy.decide(score).ask
        seconds += time.perf_counter() - began
        probs = output.probs.double().numpy()
        right.append(int(probs.argmax()) == labels[index])
        sure.append(float(probs.max()))
        losses.append(-math.log(max(float(probs[labels[index]]), 1e-9)))
        if ask and output.item is not None:
            wrong = chance.random() < noise
            answer = int(chance.integers(len(classes))) if wrong else int(labels[index])
            learner.method.learn(id, answer, output.item)
    return {
        "images": len(right),
        "accuracy": 100 * float(np.mean(right)),
        "accuracy_inside": 100 * float(np.mean(inner == labels[permuted])) if inner else None,
        "second_half": 100 * float(np.mean(right[len(right) // 2 :])),
        "asked": learner.asked,
        "loss": float(np.mean(losses)),
        "calibration_error": 100 * calibration_error(np.array(sure), np.array(right)),
        "milliseconds": 1000 * seconds / len(right),
        "summary": learner.method.summary(),
    }


def record_inner(method: Any, said: list[int]) -> None:
    """Note what the method inside a head says: of `taps+`, plain `taps` with the very same labels."""
    if hasattr(method, "inner"):
        predict = method.inner.predict

        def noted(views: torch.Tensor) -> Any:
            output = predict(views)
            said.append(int(output.probs.argmax()))
            return output

        method.inner.predict = noted


def calibration_error(sure: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from accuracy, over bins of confidence."""
    place = np.minimum((sure * bins).astype(int), bins - 1)
    parts = [np.flatnonzero(place == b) for b in range(bins)]
    return float(sum(abs(sure[p].mean() - right[p].mean()) * len(p) for p in parts if len(p)) / len(right))


def plans(what: str, views: int) -> Iterator[tuple[str, dict[str, Any], float, float]]:
    """Method, settings, share of wrong answers and most orders of every run; what matters most first."""
    yield "zero_shot", {}, 0.0, 1
    if what == "noise":
        for noise in (0.2, 0.0, 0.4):
            yield "zero_shot+", {"rate": 0.05}, noise, math.inf
        return
    if views == 1:  # long streams: the head alone
        for rate in (0.05, 0.01, 0.02, 0.10):
            yield "zero_shot+", {"rate": rate}, 0.0, ORDERS
        for rule in RULES[1:]:
            yield "zero_shot+", {"rate": 0.05, "ask_by": rule}, 0.0, ORDERS
        for noise in (0.2, 0.4):
            yield "zero_shot+", {"rate": 0.05}, noise, ORDERS
        return
    many = {"views": views, "fraction": KEPT}
    yield "view_ensemble", many, 0.0, 1
    yield "view_ensemble+", {**many, "rate": 0.05}, 0.0, ORDERS
    yield "taps+", {**many, "prompts": "hand", "rate": 0.05}, 0.0, ORDERS
    yield "zero_shot+", {"rate": 0.05}, 0.0, ORDERS


def key(row: dict[str, Any]) -> str:
    return json.dumps([row[name] for name in ("set", "order", "method", "settings", "noise")], sort_keys=True)


def run_all(name: str, sets: dict[str, Path], given: argparse.Namespace) -> None:
    """Every plan on every set in every order, several at a time, each row written as it comes."""
    rows_file = given.out / f"{name}-{given.views}.jsonl"
    done = {key(row) for row in read_rows(rows_file)}
    jobs = [
        {"set": which, "order": order, "method": method, "settings": settings, "noise": noise}
        for method, settings, noise, orders in plans(given.what, given.views)
        for order in range(int(min(orders, given.orders)))
        for which in sets
    ]
    jobs = [job for job in jobs if key(job) not in done]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool, rows_file.open("a") as out:
        futures = [
            pool.submit(
                run_stream,
                str(sets[job["set"]]),
                given.model,
                job["order"],
                job["method"],
                job["settings"],
                job["noise"],
            )
            for job in jobs
        ]
        for job, future in zip(jobs, futures, strict=True):
            out.write(json.dumps(job | future.result()) + "\n")
            out.flush()


def read_rows(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def encode_one(name: str, given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    file = feature_file(name, given)
    if file.exists():
        return
    dataset = load_dataset(given.data / FINAL[name]) if name in FINAL else development_set(name, given.data)
    encode(taps.load_clip(given.model), dataset, given.limit, given.views, file)
    print(f"encoded {name}", flush=True)


def feature_file(name: str, given: argparse.Namespace) -> Path:
    return given.out / f"{name.replace(' ', '_')}-{given.limit}x{given.views}.npz"


def measure_time(given: argparse.Namespace) -> None:
    """What a head adds to the steps of the methods it can ride on."""
    torch.set_num_threads(1)
    dataset = load_dataset(given.data / "imagenette-val.zip")
    clip = taps.load_clip(given.model)
    views = {"views": given.views}
    ridden = {
        "taps": (views | {"prompts": "hand", "policy": "paced"}, given.images),
        "view_ensemble": (views, given.images),
        "zero_shot": ({}, 5 * given.images),
    }
    row = {
        "head_ms": {classes: head_milliseconds(clip.config.embed_dim, classes) for classes in (7, 100, 1000)},
        "views": given.views,
        "device": str(clip.device),
        "pairs": {name: time_pair(clip, dataset, name, *how) for name, how in ridden.items()},
    }
    (given.out / "time.json").write_text(json.dumps(row))
    print(json.dumps(row, indent=1))


def time_pair(
    clip: Clip, dataset: Dataset, method: str, settings: dict[str, Any], images: int
) -> dict[str, float]:
    """Whole steps of a method without and with a head, on the same images; decoding is not counted.

    The two go by turns, and at every other image the other one begins: whoever comes second finds the caches
    warm.
    """
    learners = [Learner(clip, dataset.classes, name, **settings) for name in (method, method + "+")]
    spent: list[list[float]] = [[], []]
    chosen = np.random.default_rng(0).permutation(len(dataset))[:images].tolist()
    for turn, index in enumerate(chosen):
        image = dataset.image(index)
        for which in (0, 1) if turn % 2 else (1, 0):
            began = time.process_time()  # of one thread: other work on the machine does not count
            prediction = learners[which].predict_one(image)
            spent[which].append(time.process_time() - began)
            if prediction.ask:
                learners[which].learn_one(prediction.id, dataset.samples[index].label)
    plain, ridden = 1000 * np.array(spent)
    extra = float(np.median(ridden - plain))  # paired, and the median: shared caches disturb single steps
    step = float(np.median(plain))
    return {"images": images, "step_ms": step, "extra_ms": extra, "extra_percent": 100 * extra / step}


def head_milliseconds(dim: int, classes: int, bases: int = 3) -> float:
    """What the head alone adds to an image: median CPU time of its prediction."""
    rng = np.random.default_rng(0)
    head, spent = Head(dim, classes, bases), []
    for _ in range(200):
        feature, beliefs = rng.normal(size=dim), np.log(rng.dirichlet(np.ones(classes), bases))
        began = time.process_time()
        head.predict(feature / np.linalg.norm(feature), beliefs)
        spent.append(time.process_time() - began)
    return 1000 * float(np.median(spent))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("develop", "noise", "final", "time", "page"))
    parser.add_argument("--data", type=Path, help="folder that holds the zips")
    parser.add_argument("--out", type=Path, required=True, help="features and rows go here")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="page: where label.md goes")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--limit", type=int, default=1000, help="images of each set")
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--orders", type=int, default=ORDERS)
    parser.add_argument("--images", type=int, default=100, help="time: how many images")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "page":
        from label_page import write_page

        return write_page(given.out, given.docs, read_rows)
    if given.what == "time":
        return measure_time(given)
    names = tuple(FINAL) if given.what == "final" else DEVELOP
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        list(pool.map(encode_one, names, [given] * len(names)))
    run_all(given.what, {name: feature_file(name, given) for name in names}, given)


if __name__ == "__main__":
    main()
