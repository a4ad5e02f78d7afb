"""What the order of a folder is worth: `taps label` as images come, against the most telling of all of them.

    PYTHONPATH=src:recipes python3 recipes/folder_order.py --features OUT --docs docs

OUT holds features that `recipes/label.py encode --views 4` made. Each set is cut to 300 images in a random
order. Both ways get the same number of true answers, and every image is predicted again at the end: the share
of right labels in the table that is handed over is what counts. The rule was chosen on `CHOSEN_ON`, with two
orders of each; the other sets had no say. Writes docs/results/folder-order.md, and goes on where it was
stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from label import load_once, read_rows, with_stored_features
from provenance import stamped

from taps.learner import Learner
from taps.serve.folder import pool_settings
from taps.serve.review import POWER, calibrated

IMAGES, RATE, VIEWS, SURE = 300, 0.1, 4, (0.7, 0.8, 0.9, 0.95)
CHOSEN_ON = ("art_painting", "sketch", "dtd")
COMMON: dict[str, Any] = {"views": VIEWS, "fraction": 0.5, "rate": RATE, "acquisition": "margin"}
PAGE = """# The order of a folder

`taps label` has all images from the beginning, so it may ask about any of them. This page compares two ways
to ask, at the same number of true answers ({images} images of each set, {rate:.0%} of them asked about, mean
of {orders} orders). **As they come** asks by the margin while images come in a random order. **The most
telling** encodes the images, asks about the one with the highest product of narrow margin, likeness to its
neighbours and unlikeness to what was answered, learns the answer, and chooses again. Both predict every
image again at the end. `recipes/folder_order.py` writes this page.

Shares of right labels in percent, answered images included, in the table that is handed over; *first* is what
was predicted when each image came.

| set | classes | first | as they come | the most telling | difference |
|---|---:|---:|---:|---:|---:|
{lines}

The rule was chosen on {chosen}: nine rules were tried on one order of the first, four of them on two orders
of the others. The mean over the sets that had no say is in the last row but one.

## What "about 3 wrong" is worth

The review says how many errors are expected among predictions above a threshold: the sum of one less the
probability. Answers are few, and the head is too sure of what it learned from them: its odds are raised to
the power of {power:g} first, as {chosen} want it ({best:g} has the least loss there).

| predictions without an answer above | images | errors expected, raw | errors expected | errors found |
|---|---:|---:|---:|---:|
{errors}

Over the sets that had no say. Where a set is unlike these, the number may be far off: look through some of
the images before you accept them.
"""


def folder_run(file: Path, order: int, settings: dict[str, Any], questions: int = 0) -> dict[str, Any]:
    """One folder labelled; what was right at first and in the end.

    Args:
        file: Of the features.
        order: Seed.
        settings: Of the learner.
        questions: How many are chosen among all images; 0 where the learner asks as images come.
    """
    pool = questions > 0
    held = np.load(file)
    labels, classes = held["labels"], held["classes"].tolist()
    features = F.normalize(torch.from_numpy(held["features"]).float(), dim=-1)
    places = np.random.default_rng(order).permutation(len(labels))[:IMAGES].tolist()
    clip = with_stored_features(load_once("pocket", "cpu"), features)
    learner = Learner(clip, classes, "view_ensemble+", seed=order, **COMMON | settings)
    answers: dict[int, int] = {}
    first = 0

    def answer(id: int) -> None:
        answers[id] = int(labels[places[id]])
        learner.learn_one(id, answers[id])

    for id, place in enumerate(places):
        said = learner.desk.conclude(learner.method.predict(views_of(place, features)), time.perf_counter())
        first += said.index == labels[place]
        if said.ask:
            answer(id)
    while len(answers) < questions:
        scores = learner.wanted_kept(range(len(places)))
        id = max(scores, key=lambda id: scores[id])
        learner.ask(id)
        answer(id)
    end = {
        id: probs_of(learner, id, places[id], features, pool)
        for id in range(len(places))
        if id not in answers
    }
    right = {id: int(probs.argmax()) == labels[places[id]] for id, probs in end.items()}
    return {
        "classes": len(classes),
        "answers": len(answers),
        "first": float(first / len(places)),
        "delivered": float((sum(right.values()) + len(answers)) / len(places)),
        "sure": [[round(float(probs.max()), 4), int(right[id])] for id, probs in end.items()],
    }


def views_of(place: int, features: torch.Tensor) -> torch.Tensor:
    begin = place * features.shape[1]
    return torch.arange(begin, begin + VIEWS).view(-1, 1, 1, 1)


def probs_of(learner: Learner, id: int, place: int, features: torch.Tensor, pool: bool) -> np.ndarray:
    """What is said of an image in the end: from what is kept, or by looking at it again."""
    if pool:
        return learner.repredict_kept([id])[id]
    with learner._unchanged():
        return learner.method.predict(views_of(place, features)).probs.numpy()


def run_all(given: argparse.Namespace) -> list[dict[str, Any]]:
    rows = read_rows(given.rows)
    done = {(row["set"], row["order"], row["pool"]) for row in rows}
    ways = {False: {}, True: pool_settings(round(RATE * IMAGES), IMAGES)}
    files = sorted(given.features.glob(f"*-{VIEWS}.npz"))
    jobs = [(file, order, pool) for order in range(given.orders) for file in files for pool in ways]
    for file, order, pool in jobs:
        name = file.stem.removesuffix(f"-{VIEWS}")
        if (name, order, pool) in done or (given.sets and name not in given.sets.split(",")):
            continue
        row = {"set": name, "order": order, "pool": pool}
        before = [each["answers"] for each in rows if (each["set"], each["order"]) == (name, order)]
        questions = before[0] if pool else 0  # as many as were asked as the images came
        rows.append(row | folder_run(file, order, ways[pool], questions))
        with given.rows.open("a") as out:
            out.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    return rows


def page(rows: list[dict[str, Any]]) -> str:
    """The page: a line for each set that was run both ways in every order."""
    runs = {(row["set"], row["order"], row["pool"]): row for row in rows}
    orders = max(row["order"] for row in rows) + 1
    whole = [
        name
        for name in sorted({row["set"] for row in rows})
        if all((name, order, pool) in runs for order in range(orders) for pool in (False, True))
    ]

    def mean(names: list[str], pool: bool, what: str) -> float:
        return 100 * float(
            np.mean([runs[name, order, pool][what] for name in names for order in range(orders)])
        )

    def line(title: str, names: list[str], classes: str) -> str:
        stream, telling = mean(names, False, "delivered"), mean(names, True, "delivered")
        cells = (mean(names, False, "first"), stream, telling)
        return f"| {title} | {classes} | {' | '.join(f'{x:.1f}' for x in cells)} | {telling - stream:+.1f} |"

    lines = [line(name, [name], str(runs[name, 0, True]["classes"])) for name in whole]
    lines.append(line("*not chosen on*", [name for name in whole if name not in CHOSEN_ON], ""))
    lines.append(line("**all**", whole, ""))
    pairs = {name: [p for order in range(orders) for p in runs[name, order, True]["sure"]] for name in whole}
    chosen = np.array([pair for name in whole if name in CHOSEN_ON for pair in pairs[name]])
    others = np.array([pair for name in whole if name not in CHOSEN_ON for pair in pairs[name]])
    best = min(np.arange(0.05, 1.5, 0.05), key=lambda power: loss(chosen, float(power)))
    return PAGE.format(
        images=IMAGES, rate=RATE, orders=orders, lines="\n".join(lines), chosen=", ".join(CHOSEN_ON),
        power=POWER, best=round(float(best), 2), errors="\n".join(errors(others, above) for above in SURE),
    )  # fmt: skip


def loss(pairs: np.ndarray, power: float) -> float:
    """Mean negative log-likelihood of being right [pairs: probability, right]."""
    probs = np.clip([calibrated(float(p), power) for p in pairs[:, 0]], 1e-6, 1 - 1e-6)
    return float(-np.where(pairs[:, 1] > 0, np.log(probs), np.log(1 - probs)).mean())


def errors(pairs: np.ndarray, above: float) -> str:
    """A line: what is expected and found among predictions whose calibrated probability is so high."""
    probs = np.array([calibrated(float(p)) for p in pairs[:, 0]])
    mine = probs >= above
    raw, expected = (1 - pairs[mine, 0]).sum(), (1 - probs[mine]).sum()
    return (
        f"| {above:.0%} | {mine.sum():,} | {raw:.0f} | {expected:.0f} | {int((1 - pairs[mine, 1]).sum())} |"
    )


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=Path, required=True, help="folder of NAME-4.npz")
    parser.add_argument("--rows", type=Path, default=Path("folder-order.jsonl"), help="what was run so far")
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), help="results/folder-order.md goes below it"
    )
    parser.add_argument("--orders", type=int, default=2)
    parser.add_argument("--sets", default="", help="these alone, separated by commas")
    given = parser.parse_args()
    rows = run_all(given)
    (given.docs / "results" / "folder-order.md").write_text(stamped(page(rows), "recipes/folder_order.py"))


if __name__ == "__main__":
    main()
