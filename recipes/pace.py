"""When to ask, how good it is, when to stop: the tables of docs/results/pace.md.

    PYTHONPATH=src python3 recipes/pace.py run --features DIR --out OUT --jobs 2
    PYTHONPATH=src python3 recipes/pace.py forecast --features DIR --out OUT --jobs 2
    PYTHONPATH=src python3 recipes/pace.py page --out OUT --docs docs

DIR holds the features that `recipes/label.py encode --views 8 --limit 1000` makes. `run` sends sets in
several orders through `view_ensemble+`, once for each pace, and writes a row for each stream to
OUT/pace.jsonl. `forecast` writes to OUT/forecast.jsonl what 20 more answers brought, on images held aside.
Both go on where they were stopped. `CHOOSING` are the sets that settings and constants were chosen on; the
others were only reported on. `page` also simulates how wide the interval of the accuracy is.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from label import load_once
from provenance import stamped

from taps.asking.accuracy import FEWEST, MORE, NINE_OF_TEN, RunningAccuracy, forecast
from taps.asking.policy import make_policy
from taps.asking.rules import narrowness
from taps.head.head import Head
from taps.learner import Learner
from taps.learner.prepared import KnownImage
from taps.types import Answer

CHOOSING = ("sign-digits", "dtd", "art_painting", "gtsrb", "art_painting+sketch")
REPORTED = (
    "rsscn7", "sketch", "cartoon", "photo", "grocery", "caltech101", "plantdoc", "flowers102", "food101",
    "cub200", "imagenette", "cartoon+photo", "photo+sketch",
)  # fmt: skip
KINDS = ("ordinary", "class after class", "dirichlet", "few classes", "by domain")
PACES = ("even", "front")
ORDERS, LIMIT, RATE, VIEWS, PHASES = 2, 1000, 0.05, 8, 10
FORECAST_RATE, AT, TESTED = (
    0.2,
    (10, 20, 40, 60, 80),
    150,
)  # answers before a forecast; images it is tested on
SIMULATED = 60  # streams that the width of the interval is the mean of


@cache
def load(features: Path, name: str) -> tuple[torch.Tensor, np.ndarray, list[str], np.ndarray]:
    """Features, labels, classes and domains of a set; of several joined by "+", each is a domain."""
    held = [np.load(features / f"{part}-{VIEWS}.npz") for part in name.split("+")]
    joined = torch.from_numpy(np.concatenate([each["features"] for each in held])).float()
    labels = np.concatenate([each["labels"] for each in held])
    domains = np.concatenate([np.full(len(each["labels"]), place) for place, each in enumerate(held)])
    return F.normalize(joined, dim=-1), labels, held[0]["classes"].tolist(), domains


def stream_of(labels: np.ndarray, domains: np.ndarray, kind: str, order: int, limit: int) -> np.ndarray:
    """Places of the images in the order in which they come."""
    places = np.random.default_rng(order).permutation(len(labels))
    turn = np.random.default_rng([order, 2]).permutation(labels.max() + 1)
    if kind == "few classes":  # three of ten
        places = places[turn[labels[places]] < max(2, round(0.3 * len(turn)))]
    places = places[:limit]
    rank = {
        "class after class": turn[labels[places]],
        "by domain": (domains[places] + order) % (domains.max() + 1),
        "dirichlet": phases(labels[places], order),
    }
    return places[np.argsort(rank[kind], kind="stable")] if kind in rank else places


def phases(labels: np.ndarray, order: int) -> np.ndarray:
    """In which of ten times each image comes: of each class, shares drawn from a Dirichlet of 0.1."""
    rng, found = np.random.default_rng([order, 1]), np.zeros(len(labels), int)
    for label in np.unique(labels):
        at = rng.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(rng.dirichlet(np.full(PHASES, 0.1))) * len(at)
        found[at] = np.minimum(np.searchsorted(ends, np.arange(len(at)), side="right"), PHASES - 1)
    return found


def plans() -> Iterator[dict[str, Any]]:
    """Every run: kinds by classes on single sets, "by domain" on joined ones."""
    for order in range(ORDERS):
        for name in CHOOSING + REPORTED:
            for kind in KINDS:
                if ("+" in name) == (kind == "by domain"):
                    for pace in PACES:
                        yield {"set": name, "kind": kind, "order": order, "pace": pace}


def run_stream(job: dict[str, Any], features: Path, model: str) -> dict[str, Any]:
    """One stream, every question answered at once; accuracy, what was estimated, what was forecast."""
    torch.set_num_threads(1)
    vectors, labels, classes, domains = load(features, job["set"])
    places = stream_of(labels, domains, job["kind"], job["order"], LIMIT)
    settings = {"rate": RATE, "views": VIEWS, "fraction": 0.5, "pace": job["pace"], "expected": len(places)}
    clip = load_once(model, "cpu")
    learner = Learner(clip, classes, "view_ensemble+", seed=job["order"], **settings)
    right, began = [], time.perf_counter()
    for index in places.tolist():
        said = learner.predict_one(KnownImage(0.0, vectors[index]))
        right.append(bool(said.index == labels[index]))
        if said.ask:
            learner.learn_one(said.id, int(labels[index]))
    seconds, found = time.perf_counter() - began, learner.desk.accuracy.estimate()
    return {
        "images": len(right),
        "accuracy": 100 * float(np.mean(right)),
        "last_quarter": 100 * float(np.mean(right[-(len(right) // 4) :])),
        "asked": learner.asked,
        "budget": math.ceil(RATE * len(right)),
        "estimate": None if found is None else found.plain(),
        "milliseconds": 1000 * seconds / len(right),
    }


def forecast_stream(job: dict[str, Any], features: Path, model: str) -> dict[str, Any]:
    """Mean confidence and accuracy on images held aside, by number of answers, on an ordinary stream."""
    torch.set_num_threads(1)
    vectors, labels, classes, domains = load(features, job["set"])
    places = stream_of(labels, domains, "ordinary", job["order"], LIMIT)
    clip = load_once(model, "cpu")
    method = Learner(clip, classes, "view_ensemble+", seed=job["order"], views=VIEWS, fraction=0.5).method
    looks, firsts = [], []
    for index in places.tolist():
        read = method._read(*method._given(KnownImage(0.0, vectors[index]).predicted_by(method.inner)))
        views, logs = (part.double().numpy() for part in read)
        looks.append(method.head.see(views, logs))
        firsts.append(np.exp(logs[0]))
    head = Head(method.head.recent.shape[1], len(classes), len(method.bases), method.inputs.several)
    policy = make_policy(
        "paced", rate=FORECAST_RATE, pace=job["pace"], expected=len(places), classes=len(classes)
    )
    tested = np.random.default_rng(job["order"]).choice(len(places), TESTED, replace=False)
    sure, answers, found = [], 0, {}
    for look, first, label in zip(looks, firsts, labels[places].tolist(), strict=True):
        head.stream = head.stream + first
        probs = head.predict(look)
        sure.append(float(probs.max()))
        if not policy.decide(max(look.density, 0.0) * narrowness(probs)).ask:
            continue
        policy.answer(label)
        head.learn(look, label)
        answers += 1
        if any(answers in (at, at + MORE) for at in AT):
            right = [head.predict(looks[i]).argmax() == labels[places[i]] for i in tested]
            found[str(answers)] = {"sure": float(np.mean(sure)), "accuracy": float(np.mean(right))}
    return {"found": found}


def growths(rows: list[dict[str, Any]], chosen: bool) -> list[tuple[float, float]]:
    """What more answers brought in points, and the points that a growth of 1 would have been."""
    pairs = []
    for row in rows:
        for at in AT:
            now, then = row["found"].get(str(at)), row["found"].get(str(at + MORE))
            if now and then and (row["set"] in CHOOSING) == chosen and at >= FEWEST:
                ahead = forecast(at, now["sure"])
                unit = (ahead.high - ahead.low) / (NINE_OF_TEN[1] - NINE_OF_TEN[0])
                pairs.append((100 * (then["accuracy"] - now["accuracy"]), unit))
    return pairs


def forecast_lines(rows: list[dict[str, Any]]) -> str:
    """The fit on the sets chosen on, and how often the interval held, there and elsewhere."""
    chosen, others = (np.array(growths(rows, which)) for which in (True, False))
    growth = float(chosen[:, 0] @ chosen[:, 1] / (chosen[:, 1] @ chosen[:, 1]))
    low, high = np.quantile(chosen[:, 0] / chosen[:, 1], [0.03, 0.97])
    held = [
        float(
            np.mean((NINE_OF_TEN[0] <= part[:, 0] / part[:, 1]) & (part[:, 0] / part[:, 1] <= NINE_OF_TEN[1]))
        )
        for part in (chosen, others)
    ]
    return (
        f"Fitted growth {growth:.3f}, from {low:.3f} to {high:.3f}. The interval held the truth in "
        f"{held[0]:.0%} of {len(chosen)} cases on the sets chosen on and in {held[1]:.0%} of {len(others)} "
        "on the others."
    )


def simulated_width(explore: float, budget: int = 40, images: int = 400) -> tuple[float, float, float]:
    """Half the interval, how often it covers and how many random answers there are, where it can be said."""
    halves, covered, answers = [], [], []
    for seed in range(SIMULATED):
        rng, running = np.random.default_rng(seed), RunningAccuracy(1)
        policy = make_policy(
            "paced", budget=budget, pace="front", expected=images, explore=explore, seed=seed
        )
        right, possible = [], []
        for id in range(images):
            probability = float(rng.beta(2, 1))
            right.append(bool(rng.random() < probability))
            decision = policy.decide(1 - probability)
            possible.append(decision.chance > 0)
            running.add(id, 0, probability, decision.chance, decision.ask)
            if decision.ask:
                policy.answer(int(rng.integers(10)))
                running.answer(id, Answer(0 if right[-1] else 1))
        if found := running.estimate():
            truth = np.mean(np.array(right)[possible])
            halves.append(50 * (found.high - found.low))
            covered.append(found.low <= truth <= found.high)
            answers.append(found.answers)
    return float(np.mean(halves)), float(np.mean(covered)), float(np.mean(answers))


def widths() -> str:
    lines = ["| `explore` | random answers | half the interval | covers |", "|---|---|---|---|"]
    for explore in (0.25, 0.5, 1.0):
        half, covered, answers = simulated_width(explore)
        lines.append(f"| {explore:g} | {answers:.0f} of 40 | ±{half:.0f} points | {covered:.0%} |")
    return "\n".join(lines)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("set", "kind", "order", "pace"))


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def work(task: tuple[dict[str, Any], Path, str]) -> dict[str, Any]:
    return task[0] | (forecast_stream if task[0]["kind"] == "forecast" else run_stream)(*task)


def forecast_plans() -> Iterator[dict[str, Any]]:
    for order in range(ORDERS):
        for name in CHOOSING + REPORTED:
            if "+" not in name:
                yield {"set": name, "kind": "forecast", "order": order, "pace": "front"}


def run_all(given: argparse.Namespace) -> None:
    """Every plan that has no row yet."""
    given.out.mkdir(parents=True, exist_ok=True)
    ahead = given.what == "forecast"
    file = given.out / ("forecast.jsonl" if ahead else "pace.jsonl")
    done = {key(row) for row in read_rows(file)}
    jobs = forecast_plans() if ahead else plans()
    there = {file.name.removesuffix(f"-{VIEWS}.npz") for file in given.features.glob("*.npz")}
    tasks = [
        (job, given.features, given.model)
        for job in jobs
        if key(job) not in done and set(job["set"].split("+")) <= there
    ]
    with get_context("spawn").Pool(given.jobs) as pool, file.open("a") as out:
        for row in pool.imap_unordered(work, tasks):
            out.write(json.dumps(row) + "\n")
            out.flush()


def gains(rows: list[dict[str, Any]], sets: tuple[str, ...], kind: str) -> list[float]:
    """Points of accuracy that "front" has over "even", stream by stream."""
    held = {key(row): row["accuracy"] for row in rows if row["set"] in sets and row["kind"] == kind}
    pairs = [(found, (*found[:3], "even")) for found in held if found[3] == "front"]
    return [held[front] - held[even] for front, even in pairs if even in held]


def table(rows: list[dict[str, Any]]) -> str:
    """Gains by kind of stream."""
    lines = ["| streams | chosen on: mean (streams) | reported: mean (streams) |", "|---|---|---|"]
    for kind in KINDS:
        cells = [gains(rows, sets, kind) for sets in (CHOOSING, REPORTED)]
        told = [
            f"{np.mean(cell):+.1f} ± {np.std(cell) / math.sqrt(len(cell)):.1f} ({len(cell)})" if cell else "–"
            for cell in cells
        ]
        lines.append(f"| {kind} | {told[0]} | {told[1]} |")
    return "\n".join(lines)


def by_set(rows: list[dict[str, Any]]) -> str:
    """Accuracy at each pace on ordinary streams, by set."""
    lines = ["| set | " + " | ".join(PACES) + " |", "|---|" + "---|" * len(PACES)]
    for name in CHOOSING + REPORTED:
        cells = []
        for pace in PACES:
            found = [
                row["accuracy"]
                for row in rows
                if (row["set"], row["pace"]) == (name, pace) and row["kind"] in ("ordinary", "by domain")
            ]
            cells.append(f"{np.mean(found):.1f}" if found else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def real(rows: list[dict[str, Any]]) -> str:
    """How often the interval could be given at the end of a real stream, its width, and whether it held."""
    found = [(row["accuracy"] / 100, row["estimate"]) for row in rows if row["estimate"]]
    held = np.mean([each["low"] <= truth <= each["high"] for truth, each in found])
    half = np.mean([50 * (each["high"] - each["low"]) for _, each in found])
    return (
        f"At the end of the streams above it could be given for {len(found)} of {len(rows)}: ±{half:.0f} "
        f"points, and it covered {held:.0%} of these."
    )


def page(given: argparse.Namespace) -> None:
    """docs/results/pace.md."""
    rows = read_rows(given.out / "pace.jsonl")
    most = max(row["asked"] - row["budget"] for row in rows)
    text = (Path(__file__).parent / "pace_page.md").read_text()
    for name, value in {
        "GAINS": table(rows),
        "SETS": by_set(rows),
        "OVER": f"{most}",
        "FORECAST": forecast_lines(read_rows(given.out / "forecast.jsonl")),
        "WIDTHS": widths(),
        "REAL": real(rows),
        "STREAMS": f"{len(rows)}",
        "IMAGES": f"{LIMIT}",
        "ORDERS": f"{ORDERS}",
    }.items():
        text = text.replace("{" + name + "}", value)
    (given.docs / "results" / "pace.md").write_text(stamped(text, "recipes/pace.py page", given.made))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("run", "forecast", "page"))
    parser.add_argument("--features", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--made", help="page: commits, day and hardware of the rows; today's unless given")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    (page if given.what == "page" else run_all)(given)
