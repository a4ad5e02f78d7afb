"""Folders of results as `taps eval` leaves them, made without any model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from taps.files import write_json
from taps.streams.record import COLUMNS
from taps.study.evaluate.jobs import slug

SKILL = {"zero_shot": 0.45, "view_ensemble": 0.48, "source": 0.47, "tpt": 0.475, "taps": 0.50}
TIME = {"zero_shot": 0.006, "view_ensemble": 0.04, "source": 0.007, "tpt": 0.1, "taps": 0.11}
CLASSES = [f"class {i}" for i in range(30)]


def made_up_folder(
    out: Path,
    *,
    methods: tuple[str, ...] = ("zero_shot", "view_ensemble", "tpt", "taps"),
    datasets: tuple[str, ...] = ("pets",),
    seeds: tuple[int, ...] = (1, 2, 3),
    n: int = 300,
    model: str = "pocket",
    full: bool = False,
    label: dict[str, dict[str, Any]] | None = None,
) -> Path:
    """Write runs whose accuracy, entropy and questions look like real ones."""
    for dataset in datasets:
        for method in methods:
            for seed in seeds:
                folder = out / "runs" / slug(dataset) / slug(method) / str(seed)
                folder.mkdir(parents=True)
                _write_run(folder, dataset, method, seed, n, model, full, (label or {}).get(method, {}))
    return out


def _write_run(
    folder: Path,
    dataset: str,
    method: str,
    seed: int,
    n: int,
    model: str,
    full: bool,
    settings: dict[str, Any],
) -> None:
    order = np.random.default_rng(seed).permutation(n)
    hardness = np.random.default_rng(0).random(n)[order]
    rng = np.random.default_rng([seed, len(method)])
    skill = SKILL.get(method, 0.49)
    correct = (hardness + 0.1 * rng.normal(size=n) < skill).astype(int)
    probability = np.clip(0.9 - 0.6 * hardness + 0.1 * rng.normal(size=n), 0.05, 1.0)
    asks = method.startswith("taps")
    entropy = np.clip(0.4 + 2.5 * hardness**2 + 0.2 * rng.normal(size=n), 0, 3.4)
    threshold = np.where(np.arange(n) < 30, 2.0, 2.6) if asks else np.full(n, np.inf)
    asked = entropy > threshold
    with (folder / "predictions.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for t in range(n):
            name = CLASSES[order[t] % len(CLASSES)]
            seconds = TIME.get(method, 0.1) * rng.lognormal(0, 0.1)
            right = correct[t] or rng.random() < 0.5
            of_truth = probability[t] if correct[t] else 0.5 * (1 - probability[t])
            cells = {
                "path": f"{name}/{order[t]}.jpg",
                "predicted": name if correct[t] else "class x",
                "probability": f"{probability[t]:.6g}",
                "truth": name,
                "correct": correct[t],
                "asked": int(asked[t]),
                "t": t,
                "score": f"{entropy[t]:.6g}",
                "threshold": f"{threshold[t]:.6g}",
                "view_entropy": f"{entropy[t]:.6g}",
                "reject": 0,
                "seconds": f"{seconds:.6f}",
                "top5": int(right),
                "of_truth": f"{of_truth:.6g}",
                "squares": f"{probability[t] ** 2:.6g}",
                "outside": 0,
                "phase": 0,
                "truth_index": order[t] % len(CLASSES),
            }
            writer.writerow([cells.get(name, "") for name in COLUMNS])
    with (folder / "events.jsonl").open("w") as file:
        for t in np.flatnonzero(asked):
            file.write(json.dumps({"event": "answered", "id": int(t), "t": int(t), "answer": 0}) + "\n")
    kept = {name: int(c) for name, c in zip(CLASSES, rng.integers(1, 8, len(CLASSES)), strict=True)}
    row = {
        **{"dataset": dataset, "method": method, "seed": seed, "n": n, "broken": 0},
        **{
            "top1": float(correct.mean()),
            "top5": 0.8,
            "asked": int(asked.sum()),
            "answered": int(asked.sum()),
        },
        **{
            "rate": float(asked.mean()),
            "buffer_fill": sum(kept.values()) if asks else 0,
            "buffer_full": full,
        },
        **{"buffer_classes": kept if asks else {}, "ms_p50": 1000 * TIME.get(method, 0.1), "ms_p95": 150.0},
        **{"peak_mem_mb": 400.0, "ece": 0.05, "overhead": 0.01},
    }
    spec = {
        "stream": {"dataset": dataset, "root": None, "corrupt": None, "severity": 3, "name": dataset},
        "model": {"name": model, "pretrained": None},
        **{"method": method.split("[")[0], "seed": seed, "settings": settings, "label": "", "limit": None},
        **{"noise": 0.0, "delay": 0, "fingerprint": "x"},
    }
    write_json(folder / "row.json", row)
    write_json(folder / "run.json", spec)
