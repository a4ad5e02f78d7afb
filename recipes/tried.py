"""Values and variants that were tried before a choice was made: docs/results/tried.json.

    PYTHONPATH=src python3 recipes/label.py encode --data DIR --out FEATURES --views 8 --limit 1000
    PYTHONPATH=src python3 recipes/tried.py --features FEATURES --jobs 2

Learning rates of `bitta`, kernels and penalties of `proker`, on streams of `rivals.py` at 5 % of the images,
two orders of each development set; and what the authors of `stata` do otherwise, on the sets of `rivals.py`,
one order. Accuracy in the stream, in per cent: means over orders of each set, and over sets.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import rivals
import torch
import torch.nn.functional as F
from label import CHOOSING, FILES, feature_file, load_once
from torch import Tensor

from taps.methods.registry import method_settings
from taps.rivals.stata import StatA, log_density, squared_distances
from taps.rivals.window import neighbours

SETS = tuple(name for name in CHOOSING if name in FILES)
RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
SHARPNESS, PENALTIES = (1.0, 5.5, 20.0), (0.01, 0.1, 1.0, 10.0)
STATA = ("ours", "shares", "updates")


class Variant(StatA):
    """StatA with images that count for every class by probability, or eleven passes of five updates."""

    def __init__(self, variant: str, classes: tuple[str, ...]) -> None:
        super().__init__(load_once("pocket", "cpu"), classes, method_settings("stata", {}), 0)  # type: ignore[arg-type]
        self.variant, (self.passes, self.updates) = variant, (11, 5) if variant == "updates" else (10, 1)

    def assign(self, features: Tensor, zero_shot: Tensor) -> Tensor:
        near, means, logits = neighbours(features), self.text, zero_shot
        variances = first = self.spread(features, zero_shot.exp()).expand_as(means)
        for _ in range(self.passes):
            density = log_density(features, means, variances) / self.settings.temperature
            for _ in range(self.updates):
                logits = zero_shot + density + near @ torch.softmax(logits, dim=-1)
            means, variances = self.gaussians(features, torch.softmax(logits, dim=-1), first)
        return logits

    def gaussians(self, features: Tensor, probs: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        if self.variant != "shares":
            return super().gaussians(features, probs, first)
        anchor, text = self.settings.anchor, self.text
        counts = (probs.sum(dim=0) + anchor)[:, None]
        means = F.normalize(probs.T @ features + anchor * text, dim=-1)
        apart = squared_distances(features, probs, means) + anchor * (first + (text - means).square())
        return means, (apart / counts).clamp_min(1e-8)


def plans() -> Iterator[dict[str, Any]]:
    for order in (0, 1):
        for name in SETS:
            for lr in RATES:
                for rule in ("random", "confidence"):
                    yield {"method": "bitta", "rule": rule, "set": name, "order": order, "more": {"lr": lr}}
            for sharp in SHARPNESS:
                for penalty in PENALTIES:
                    more = {"sharpness": sharp, "penalty": penalty}
                    yield {"method": "proker", "rule": "random", "set": name, "order": order, "more": more}
    for name in FILES:
        yield from ({"method": "stata", "set": name, "order": 0, "more": {"variant": v}} for v in STATA)


def tried(job: dict[str, Any], features: Path) -> dict[str, Any]:
    """One stream: accuracy, and milliseconds of processor time an image."""
    torch.set_num_threads(1)
    file = feature_file(job["set"], features, 8)
    if job["method"] == "stata":
        return job | stream_of_stata(job, file)
    usual, whole = rivals.settings_of, {"rate": rivals.USUAL, "case": "", "views": 8, "limit": None}
    rivals.settings_of = lambda each: usual(each) | job["more"]
    try:
        row = rivals.run_stream(job | whole, str(file), "pocket")
    finally:
        rivals.settings_of = usual
    return job | {name: row[name] for name in ("accuracy", "milliseconds")}


def stream_of_stata(job: dict[str, Any], file: Path) -> dict[str, Any]:
    held = np.load(file)
    whole = {"method": "stata", "views": 8, "case": "", "limit": None, "order": job["order"]}
    places = rivals.stream_of(held["labels"], whole)
    method = Variant(job["more"]["variant"], tuple(held["classes"].tolist()))
    began, right = time.process_time(), []
    for seen, label in zip(
        rivals.shown(held["features"][places], whole), held["labels"][places], strict=True
    ):
        right.append(int(method.predict(torch.empty(0), seen).probs.argmax()) == label)
    taken = time.process_time() - began
    return {"accuracy": 100 * float(np.mean(right)), "milliseconds": 1000 * taken / len(right)}


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each value: accuracy by set, and over all sets."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        kind = {name: row[name] for name in ("method", "rule", "more") if name in row}
        found.setdefault(json.dumps(kind), {**kind, "by_set": {}, "ms": []})
        found[json.dumps(kind)]["by_set"].setdefault(row["set"], []).append(row["accuracy"])
        found[json.dumps(kind)]["ms"].append(row["milliseconds"])
    for each in found.values():
        each["by_set"] = {name: round(float(np.mean(v)), 2) for name, v in each["by_set"].items()}
        each["accuracy"] = round(float(np.mean(list(each["by_set"].values()))), 2)
        each["ms"] = round(float(np.mean(each["ms"])), 1)
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=Path, required=True, help="where `label.py encode` wrote to")
    parser.add_argument("--to", type=Path, default=Path("docs/results/tried.json"))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    jobs = list(plans())
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(tried, jobs, [given.features] * len(jobs)))
    held = {"commit": rivals.commit_of_code(), "date": f"{datetime.now(UTC):%Y-%m-%d}", "tried": means(rows)}
    given.to.write_text(json.dumps(held, indent=1) + "\n")
    for each in held["tried"]:
        print(each["method"], each.get("rule", ""), each["more"], each["accuracy"], f"{each['ms']} ms")


if __name__ == "__main__":
    main()
