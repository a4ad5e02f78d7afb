"""One step of several methods on models of real size: seconds and memory, with random weights.

    python benchmarks/models.py --models ViT-B-16-SigLIP2,ViT-H-14 --classes 100 --views 64 --json out.json
    python benchmarks/models.py --table out.json    # as Markdown, for docs/results/speed.md

On a GPU the models are in bfloat16 unless --dtype says otherwise. Prompts are untrained, PromptAlign's
statistics come from a few pictures of noise, and methods with a head are answered after every image. A method
that cannot be run is reported, and the next one follows.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch
from methods import Noise

from taps import Learner, load_clip
from taps.bench.measure import photo
from taps.clip import Clip
from taps.clip.model import count_parameters
from taps.methods.registry import find_method
from taps.prompts import maple
from taps.training.stats import collect_stats

VISION = ("maple+tpt", "promptalign")
METHODS = ("zero_shot", "tpt", "maple+tpt", "promptalign", "taps", "view_ensemble+", "taps+")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    models = (
        "ViT-B-16,ViT-L-14,ViT-H-14,ViT-bigG-14,ViT-B-16-SigLIP2,ViT-SO400M-14-SigLIP2,EVA02-L-14,"
        "PE-Core-L-14-336,convnext_base_w,MobileCLIP2-S0"
    )
    parser.add_argument("--models", default=models)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16" if torch.cuda.is_available() else "float32")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="Print the table of a JSON made before; measure nothing.")
    return parser.parse_args()


def peak(device: torch.device) -> float:
    """The most memory that was in use, in GiB: of the GPU, or of this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def settings(clip: Clip, name: str, views: int) -> dict[str, Any]:
    """Many views where the method takes them; MaPLe's prompts where it can have some and the tower, too."""
    given: dict[str, Any] = {"views": views} if "views" in find_method(name).known else {}
    if name in VISION or (name.startswith("taps") and not clip.config.stages):
        given["prompts"] = maple.initial(clip, torch.Generator().manual_seed(0))
        if name == "promptalign":
            given["source"] = collect_stats(clip, given["prompts"], Noise(8))
    return given | ({"rate": 1.0} if name.endswith("+") else {})


def measure(clip: Clip, method: str, args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a prediction, the first left out, and the memory at its highest."""
    given = settings(clip, method, args.views)
    if clip.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(clip.device)
    names = [f"thing number {index}" for index in range(args.classes)]
    learner, times = Learner(clip, names, method, **given), []
    for turn in range(args.repeats + 1):
        start = time.perf_counter()
        prediction = learner.predict_one(photo(375, 500))
        times.append(time.perf_counter() - start)
        if prediction.ask and method.endswith("+"):
            learner.learn_one(prediction.id, names[turn % len(names)])
    return {"seconds": sorted(times[1:])[(len(times) - 1) // 2], "memory_gib": peak(clip.device)}


def measure_model(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """All methods on one model; what went wrong stands in place of its figures."""
    clip = load_clip(name, pretrained="random", dtype=args.dtype)
    row: dict[str, Any] = {
        "parameters": count_parameters(clip.config),
        "dtype": args.dtype,
        "views": args.views,
        "classes": args.classes,
    }
    for method in args.methods.split(","):
        try:
            row[method] = measure(clip, method, args)
        except Exception as error:
            row[method] = {"error": f"{type(error).__name__}: {error}"}
        print(name, method, row[method], flush=True)
    return row


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Milliseconds and GiB of every method on every model, as Markdown."""
    shown = [method for method in METHODS if any(method in row for row in rows.values())]
    lines = ["| model | weights, GiB | " + " | ".join(shown) + " |", "|---" * (2 + len(shown)) + "|"]
    for name, row in sorted(rows.items(), key=lambda each: each[1]["parameters"]):
        weights = row["parameters"] * getattr(torch, row["dtype"]).itemsize / 2**30
        cells = [_cell(row.get(method, {})) for method in shown]
        lines.append(f"| {name} | {weights:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(found: dict[str, Any]) -> str:
    return f"{1e3 * found['seconds']:.1f} ({found['memory_gib']:.1f})" if "seconds" in found else "–"


def main() -> None:
    args = arguments()
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return
    rows = {}
    for name in args.models.split(","):
        try:
            rows[name] = measure_model(name, args)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
