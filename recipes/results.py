"""The table of all methods on features, on one commit: docs/results/results.md.

    PYTHONPATH=src python3 recipes/label.py encode --data DIR --out FEATURES --views 4 --limit 400
    PYTHONPATH=src python3 recipes/results.py run --features FEATURES --out OUT --seconds 500
    PYTHONPATH=src python3 recipes/results.py page --out OUT --docs docs/results

`run` says what it will take, then sends every stream through its method: one image after the other,
prediction first, then the answer where one is asked for. It writes a row for each stream to OUT/rows.jsonl
and begins none after `--seconds`; the same command goes on. Rows of two commits are refused. `page` writes
results.md, results.csv and results.json. `--model tiny` with features of the tiny model is a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from label import FILES, feature_file, load_once, read_rows, stream_of
from results_page import Row, write_page
from rivals import forecast, names

from taps.asking.rules import RULES
from taps.data.orders import PROTOCOLS
from taps.errors import DataError
from taps.learner import Learner
from taps.learner.prepared import KnownImage
from taps.methods.registry import all_methods, find_method, with_length
from taps.model.clip import Clip
from taps.streams.score import row_of
from taps.study.evaluate.measures import calibration_error
from taps.types import Prediction

RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
HEADS = ("view_ensemble+", "zero_shot+", "linear_probe")  # at every rate, and with wrong answers
NOISE = (0.2, 0.4)
STREAMS = ("few classes", "one class mostly", "class after class", "statA:0.01", "longtail:100")
STREAMED = ("zero_shot", "view_ensemble", "tda", "dota", "zero_shot+", "view_ensemble+")
TEXT_TUNERS = ("ctpt", "otpt", "rtpt", "dynaprompt")  # a pass of the text tower for each image


def feature_methods(clip: Clip, text_tuners: bool) -> list[str]:
    """Every method that needs no more of an image than features of its views, and no trained prompts."""
    left_out = () if text_tuners else TEXT_TUNERS
    names = [name for name, each in all_methods().items() if each.prompts in (None, "hand", "optional")]
    return [
        name
        for name in names
        if name not in left_out and Learner(clip, ["cat", "dog"], name).method.needs_features_only
    ]


def plans(sets: list[str], methods: list[str], orders: int) -> Iterator[Row]:
    """Every stream, order by order, so that a run cut short has whole tables of fewer orders."""
    for order in range(orders):
        for kind in kinds(methods):
            yield from ({"set": name, "order": order, **kind} for name in sets)


def kinds(methods: list[str]) -> Iterator[Row]:
    """What is run on every set and in every order; what several tables share is run once."""
    usual = {"rate": 0.05, "rule": "", "noise": 0.0, "situation": ""}
    found = [usual | {"method": method} for method in methods]
    found += [usual | {"method": method, "rate": rate} for rate in RATES for method in HEADS]
    found += [usual | {"method": "view_ensemble+", "rule": rule} for rule in RULES]
    found += [usual | {"method": method, "noise": noise} for noise in NOISE for method in HEADS]
    found += [usual | {"method": method, "situation": each} for each in STREAMS for method in STREAMED]
    yield from {key(kind): kind for kind in found}.values()


def key(row: Row) -> str:
    names = ("set", "order", "method", "rate", "rule", "noise", "situation")
    return json.dumps([row.get(name) for name in names])


def settings_of(job: Row, views: int, images: int) -> dict[str, Any]:
    """One setting for all sets: the defaults, as many views as are stored, a paced budget, a known length."""
    known = find_method(job["method"]).known
    wanted: dict[str, Any] = {"views": views, "fraction": 0.5, "rate": job["rate"], "policy": "paced"}
    wanted |= {"acquisition": job["rule"]} if job["rule"] else {}
    chosen = {name: value for name, value in wanted.items() if name in known}
    return with_length(job["method"], chosen, images)


def run_stream(job: Row, file: str, model: str, limit: int) -> Row:
    """One stream: every image is predicted before its label can be asked for."""
    torch.set_num_threads(1)
    held = np.load(file)
    labels, classes = held["labels"][:limit], held["classes"].tolist()
    features = F.normalize(torch.from_numpy(held["features"][:limit]).float(), dim=-1)
    places = places_of(labels, job)
    settings = settings_of(job, features.shape[1], len(places))
    learner = Learner(load_once(model, "cpu"), classes, job["method"], seed=job["order"], **settings)
    chance = np.random.default_rng([job["order"], 1])
    said: list[Prediction] = []
    kept: list[np.ndarray | None] = []
    for place in places.tolist():
        said.append(learner.predict_one(KnownImage(0.0, features[place, : learner.settings.views])))
        kept.append(row_of(learner, said[-1].id))
        if said[-1].ask:
            answer(learner, said[-1], int(labels[place]), job["noise"], chance)
    return measured(said, labels[places], places, len(labels)) | {
        "again": accuracy_again(learner, kept, labels[places]),
        "asked": learner.asked,
        "classes": len(classes),
        "stateless": learner.method.stateless,
    }


def places_of(labels: np.ndarray, job: Row) -> np.ndarray:
    """Places of the images in the order they come in."""
    name, _, text = job["situation"].partition(":")
    if name in PROTOCOLS:
        draw, _ = PROTOCOLS[name]
        return draw(labels.astype(np.int64), text, np.random.default_rng(job["order"]))[0]
    return stream_of(labels, job | {"sorted": False})


def accuracy_again(learner: Learner, kept: list[np.ndarray | None], labels: np.ndarray) -> float | None:
    """Share that is right when the final state predicts all images again; None where it learned nothing."""
    rows = [row for row in kept if row is not None]
    if not learner.answered or len(rows) < len(labels):
        return None
    again = [int(probs.argmax()) for probs in learner.method.predict_rows(rows)]
    return 100 * float((np.array(again) == labels).mean())


def answer(learner: Learner, said: Prediction, label: int, noise: float, chance: np.random.Generator) -> None:
    """The annotator's answer: the label, or in a share of the cases any class at random."""
    told = int(chance.integers(len(learner.classes))) if chance.random() < noise else label
    if said.question == "yes_no" and told != said.index:
        learner.learn_one(said.id, no=said.index)
    else:
        learner.learn_one(said.id, told)


def measured(said: list[Prediction], labels: np.ndarray, places: np.ndarray, images: int) -> Row:
    """Figures of a stream; `hits` has a letter for every image of the set, - where it did not come."""
    right = np.array([each.index for each in said]) == labels
    hits = np.full(images, "-")
    hits[places] = np.where(right, "1", "0")
    sure = np.array([each.probability for each in said])
    of_label = np.array([float(each.probs[label]) for each, label in zip(said, labels, strict=True)])
    return {
        "images": len(said),
        "accuracy": 100 * float(right.mean()),
        "calibration_error": 100 * calibration_error(sure, right.astype(np.float64)),
        "log_loss": float(-np.log(np.maximum(of_label, 1e-9)).mean()),
        "milliseconds": 1000 * float(np.median([each.seconds for each in said])),
        "hits": "".join(hits),
    }


def commit() -> str:
    """The last commit that changed what figures depend on; with a + where files differ from it."""
    parts = ["--", "src", "recipes/results.py", "recipes/label.py"]
    ask = ["git", "log", "-1", "--format=%h", *parts]
    found = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    ask = ["git", "status", "--porcelain", *parts]
    changed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    return found + ("+" if changed else "")


def to_do(jobs: list[Row], rows: list[Row]) -> list[Row]:
    """Streams that are missing; a method without a state says the same in every order of whole sets."""
    done = {key(row) for row in rows}
    once = {row["method"] for row in rows if row["stateless"]}
    return [
        job
        for job in jobs
        if key(job) not in done and not (job["order"] and job["method"] in once and not job["situation"])
    ]


def run(given: argparse.Namespace) -> None:
    """Every stream that has no row yet; none begins after `--seconds`."""
    given.out.mkdir(parents=True, exist_ok=True)
    file, now = given.out / "rows.jsonl", commit()
    rows = read_rows(file)
    check_commit(rows, now, file)
    found = {name: feature_file(name, given.features, given.views) for name in given.sets}
    sets = [name for name, place in found.items() if place.exists()]
    methods = feature_methods(load_once(given.model, "cpu"), given.text_tuners)
    for orders in range(1, given.orders + 1):  # what the first order says of a method, the next one uses
        jobs = to_do(list(plans(sets, methods, orders)), rows)
        print(forecast(jobs, rows, given.jobs), flush=True)
        with file.open("a") as out:
            for row in run_jobs(jobs, found, given, now):
                out.write(json.dumps(row) + "\n")
                out.flush()
        rows = read_rows(file)


def run_jobs(jobs: list[Row], found: dict[str, Path], given: argparse.Namespace, now: str) -> Iterator[Row]:
    """The row of each stream as it comes: in this process, or in several."""
    places = [str(found[job["set"]]) for job in jobs]
    if given.jobs == 1:
        made: Iterator[Row] = (run_within(job, place, given) for job, place in zip(jobs, places, strict=True))
        yield from (row | {"commit": now} for row in made if row)
        return
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        started = [
            pool.submit(run_within, job, place, given) for job, place in zip(jobs, places, strict=True)
        ]
        for future in as_completed(started):
            if row := future.result():
                yield row | {"commit": now}


def run_within(job: Row, file: str, given: argparse.Namespace) -> Row:
    """Run a stream unless the time for all of them is over."""
    began = time.time()
    if began > given.until:
        return {}
    row = run_stream(job, file, given.model, given.limit)
    return job | row | {"seconds": time.time() - began}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--features", type=Path, help="run: where `label.py encode` wrote to")
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows")
    parser.add_argument(
        "--docs", type=Path, default=Path("docs/results"), help="page: folder that it goes to"
    )
    parser.add_argument("--sets", type=names, default=list(FILES), help="separated by commas")
    parser.add_argument("--since", default="", help="page: a sentence on what has changed since the run")
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--limit", type=int, default=2000, help="images of a set at most")
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--text-tuners", action="store_true", help=f"run {', '.join(TEXT_TUNERS)} too: slow")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no stream after these")
    return parser


def check_commit(rows: list[dict[str, Any]], commit: str, file: Path) -> None:
    """Refuse to mix rows of two commits: a difference between methods could be one between commits."""
    others = sorted({row["commit"] for row in rows} - {commit})
    if others:
        raise DataError(
            f"{file} holds rows of commit {', '.join(others)}, and this is {commit}. Continue there, or "
            "give another file."
        )


def main(words: list[str] | None = None) -> None:
    given = parser().parse_args(words)
    given.until = time.time() + given.seconds
    if given.what == "run":
        run(given)
    else:
        write_page(read_rows(given.out / "rows.jsonl"), given)


if __name__ == "__main__":
    main()
