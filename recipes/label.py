"""Label efficiency: accuracy by number of labels, rule and answers, on sets near and far.

    PYTHONPATH=src python3 recipes/label.py encode --data DIR --out OUT
    PYTHONPATH=src python3 recipes/label.py run --out OUT --jobs 15
    PYTHONPATH=src python3 recipes/label.py situations --out OUT --views 4
    PYTHONPATH=src python3 recipes/label.py time --out OUT
    PYTHONPATH=src python3 recipes/label.py page --out OUT --docs docs

DIR holds the zips. `encode` stores the features of 16 views of every image: at the prompts "a photo of a"
they depend on neither order nor method (two hours on two cores, a minute on a GPU). `run` sends every set
through the methods truly, one image after the other, prediction first, and writes a row for each stream to
OUT/rows.jsonl; `situations` does so with streams out of the ordinary, to OUT/situations.jsonl. They go on
where they were stopped. Every choice was made on `CHOOSING`; the others were run once, at the end.
Needs no typer and no rich; `page` needs matplotlib.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from label_probe import probe_accuracy

import taps
from taps.aliases import current
from taps.clip import Clip
from taps.data import Dataset, corrupt_dataset, load_dataset, subset_classes
from taps.default import BEFORE
from taps.head.head import Head
from taps.images.views import make_views, sample_generator
from taps.learner import Learner
from taps.methods.registry import find_method
from taps.types import Answer

VIEWS, KEPT = 16, 0.25  # of the views: with few of them a tenth would be one
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
NEAR = ("flowers102", "cub200", "food101", "imagenette", *MADE)
CHOOSING = ("gtsrb", "dtd", "plantdoc", "art_painting", "sketch", "flowers102", "food101", *MADE[:3])
VOTES = (0.0, 0.125, 0.25, 0.5, 1.0)  # τ of the method `neighbours`; at 0 it is `view_ensemble`
SITUATIONS = ("", "few classes", "one class mostly", "class after class", "wrong", "wrong partner")
ODD_SETS = tuple(name for name in FAR + DRAWN if name not in ("grocery", "plantdoc"))
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


def run_stream(job: dict[str, Any], file: str, model: str) -> dict[str, Any]:
    """One stream, predict first, then label; questions are answered truly but for a share `noise`."""
    torch.set_num_threads(1)
    held = np.load(file)
    labels, classes = held["labels"], held["classes"].tolist()
    places = stream_of(labels, job)
    if job["method"] == "probe":
        return {"images": len(places)} | probe_accuracy(held["features"], labels, places, **job["settings"])
    features = F.normalize(torch.from_numpy(held["features"]).float(), dim=-1)
    clip = with_stored_features(load_once(model, "cpu"), features)
    # The published figures are those of version 0.2's acquisition, unless a plan names another.
    before = BEFORE if "acquisition" in find_method(job["method"]).known else {}
    learner = Learner(clip, classes, job["method"], seed=job["order"], **before | job["settings"])
    chance = np.random.default_rng([job["order"], 1])

    def views_of(index: int) -> torch.Tensor:
        first = index * features.shape[1]
        return torch.arange(first, first + learner.settings.views).view(-1, 1, 1, 1)

    right, sure, losses, seconds = [], [], [], 0.0
    for id, index in enumerate(places.tolist()):
        began = time.perf_counter()
        output = learner.method.predict(views_of(index))
        score = output.entropy if output.score is None else output.score
        probs = output.probs.double().numpy()
        decision, question = learner._decide(probs, score)
        seconds += time.perf_counter() - began
        right.append(int(probs.argmax()) == labels[index])
        sure.append(float(probs.max()))
        losses.append(-math.log(max(float(probs[labels[index]]), 1e-9)))
        if decision.ask and output.item is not None:
            wrong = chance.random() < job["noise"]
            answer = int(chance.integers(len(classes))) if wrong else int(labels[index])
            if wrong and job.get("situation") == "wrong partner":
                answer = (int(labels[index]) + 1) % len(classes)
            asked_of = int(probs.argmax())
            no = question == "yes_no" and answer != asked_of
            learner.method.learn_answer(id, Answer(no=(asked_of,)) if no else Answer(answer), output.item)
    again: list[bool] = []
    for index in places.tolist() if job.get("again") else ():  # by the final state
        with learner._unchanged():
            probs = learner.method.predict(views_of(index)).probs
        again.append(int(probs.argmax()) == labels[index])
    return {
        "images": len(right),
        "classes": len(classes),
        "accuracy": 100 * float(np.mean(right)),
        **({"final": 100 * float(np.mean(again))} if again else {}),
        "last_quarter": 100 * float(np.mean(right[-(len(right) // 4) :])),
        "asked": learner.asked,
        "put": learner.questions.counts,
        "expert_seconds": learner.questions.spent,
        "loss": float(np.mean(losses)),
        "calibration_error": 100 * calibration_error(np.array(sure), np.array(right)),
        "milliseconds": 1000 * seconds / len(right),
        "summary": {k: v for k, v in learner.method.summary().items() if k.startswith("head_")},
    }


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


def calibration_error(sure: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from accuracy, over bins of confidence."""
    place = np.minimum((sure * bins).astype(int), bins - 1)
    parts = [np.flatnonzero(place == b) for b in range(bins)]
    return float(sum(abs(sure[p].mean() - right[p].mean()) * len(p) for p in parts if len(p)) / len(right))


def plans(count: int = VIEWS) -> Iterator[dict[str, Any]]:
    """Every run, what matters most first."""
    views = {"views": count, "fraction": KEPT}
    head = "view_ensemble+"

    def on(sets: tuple[str, ...], orders: int, method: str, **more: Any) -> Iterator[dict[str, Any]]:
        noise, in_turn, limit = more.pop("noise", 0.0), more.pop("sorted", False), more.pop("limit", None)
        for order in range(orders):
            for name in sets:
                yield {
                    "set": name,
                    "order": order,
                    "method": method,
                    "settings": more,
                    "noise": noise,
                    "sorted": in_turn,
                    "limit": limit,
                }

    everywhere, labelled = FAR + DRAWN + NEAR, FAR + DRAWN
    yield from on(everywhere, 1, "zero_shot")
    yield from on(everywhere, 5, head, rate=0.05, **views)
    yield from on(FAR, 2, "taps+", rate=0.05, prompts="hand", limit=600, **views)  # long
    for noise in (0.2, 0.4):
        yield from on(everywhere, 5, head, rate=0.05, noise=noise, **views)
    yield from on(everywhere, 5, head, rate=0.05, sorted=True, **views)
    for rate in (0.01, 0.02, 0.1, 0.2):
        yield from on(labelled, 5, head, rate=rate, **views)
    for rate in (0.2, 0.1, 0.05, 0.02, 0.01):
        yield from on(labelled, 5, "probe", rate=rate)
    yield from on(everywhere, 5, head, rate=0.05, questions="both", **views)
    yield from on(labelled, 5, "zero_shot+", rate=0.05)
    yield from on(everywhere, 5, "neighbours", **views)
    yield from on(everywhere, 1, "view_ensemble", **views)
    for rule in ("margin", "random"):
        yield from on(labelled, 5, head, rate=0.05, acquisition=rule, **views)
    yield from on(labelled, 5, head, rate=0.05, questions="yes_no", **views)
    yield from on(labelled, 5, "dota_labels", rate=0.05, **views)
    yield from on(FAR, 2, head, rate=0.05, limit=600, **views)
    for vote in VOTES:
        yield from on(everywhere, 1, "neighbours", vote=vote, **views)


def situation_plans(count: int) -> Iterator[dict[str, Any]]:
    """Short streams out of the ordinary, one question for ten images."""
    views = {"views": count, "fraction": 0.5}
    for order in range(5):
        for situation in SITUATIONS:
            for name in ODD_SETS:
                job = {"set": name, "order": order, "situation": situation, "sorted": False, "limit": 500}
                job |= {"noise": 0.4 if situation.startswith("wrong") else 0.0}
                yield job | {"method": "view_ensemble+", "settings": {"rate": 0.1} | views}
                yield job | {"method": "view_ensemble", "settings": views}


def key(row: dict[str, Any]) -> str:
    names = ("set", "order", "method", "settings", "noise", "sorted", "limit", "situation")
    return json.dumps([row.get(name) for name in names], sort_keys=True)


def run_all(given: argparse.Namespace, odd: bool = False) -> None:
    """Every plan whose set is encoded, several at a time, each row written as it comes."""
    rows_file = given.out / ("situations.jsonl" if odd else "rows.jsonl")
    done = {key(row) for row in read_rows(rows_file)}
    found = {name: feature_file(name, given.out, given.views) for name in (*FILES, *MADE)}
    jobs = [
        job
        for job in (situation_plans if odd else plans)(given.views)
        if key(job) not in done
        and found[job["set"]].exists()
        and job["order"] < given.orders
        and (not given.only or given.only in key(job))
    ]
    began = time.monotonic()
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool, rows_file.open("a") as out:
        started = {pool.submit(run_within, job, str(found[job["set"]]), given, began): job for job in jobs}
        for future in as_completed(started):
            if row := future.result():
                out.write(json.dumps(started[future] | row) + "\n")
                out.flush()
    left = len(jobs) - (len(read_rows(rows_file)) - len(done))
    print(f"{len(jobs) - left} streams in {time.monotonic() - began:.0f} s, {left} left", flush=True)


def run_within(job: dict[str, Any], file: str, given: argparse.Namespace, began: float) -> dict[str, Any]:
    """Run a stream unless the time for all of them is over."""
    if time.monotonic() - began > given.seconds:
        return {}
    return run_stream(job, file, given.model)


def read_rows(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    rows = (json.loads(line) for line in file.read_text().splitlines() if line.endswith("}"))
    return [current(row) for row in rows]


def feature_file(name: str, out: Path, views: int) -> Path:
    return out / f"{name.replace(' ', '_')}-{views}.npz"


def encode_one(name: str, given: argparse.Namespace) -> None:
    file = feature_file(name, given.out, given.views)
    zip_file = FILES.get(name, "tiny-imagenet-val.zip" if "tiny" in name else "imagenette-val.zip")
    if not file.exists() and (given.data / zip_file.split("/")[0]).exists():
        encode(name, given.data, file, given)


def measure_time(given: argparse.Namespace) -> None:
    """CPU time of the head alone, on one thread: an image, a label, by number of classes."""
    row = {classes: head_milliseconds(512, classes) for classes in (7, 100, 1000)}
    (given.out / "time.json").write_text(json.dumps(row))
    print(json.dumps(row, indent=1))


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
    parser.add_argument("what", choices=("encode", "run", "situations", "time", "page"))
    parser.add_argument("--data", type=Path, help="folder that holds the zips")
    parser.add_argument("--out", type=Path, required=True, help="features and rows go here")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="page: for results/label-tables.md")
    parser.add_argument("--made", help="page: commit, day and hardware of the rows; today's unless given")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--views", type=int, default=VIEWS, help="fewer are quicker to encode")
    parser.add_argument("--limit", type=int, help="encode: so many images of a set at most")
    parser.add_argument("--sets", default="", help="encode: these alone, separated by commas")
    parser.add_argument("--orders", type=int, default=5, help="run: at most so many of each stream")
    parser.add_argument("--only", default="", help="run: plans that have this in their settings or names")
    parser.add_argument("--seconds", type=float, default=math.inf, help="run: begin no stream after these")
    return parser


def main() -> None:
    given = parser().parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "page":
        from label_page import write_page

        return write_page(given.out, given.docs, read_rows, given.made)
    if given.what == "time":
        return measure_time(given)
    if given.what in ("run", "situations"):
        return run_all(given, odd=given.what == "situations")
    names = given.sets.split(",") if given.sets else (*FILES, *MADE)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        list(pool.map(encode_one, names, [given] * len(names)))


if __name__ == "__main__":
    main()
