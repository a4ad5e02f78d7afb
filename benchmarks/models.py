"""One step of several methods on models of real size: seconds and memory, with random weights.

    python benchmarks/models.py --models ViT-B-16-SigLIP2,ViT-H-14 --classes 100 --views 64 --json out.json

On a GPU the models are in bfloat16 unless --dtype says otherwise.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch

from taps import Learner, load_clip
from taps.bench.measure import photo
from taps.clip import Clip
from taps.errors import TapsError
from taps.prompts import maple

METHODS = ("zero_shot", "tpt", "maple+tpt", "taps")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    models = "ViT-B-16,ViT-H-14,ViT-B-16-SigLIP2,ViT-SO400M-14-SigLIP2,PE-Core-L-14-336"
    parser.add_argument("--models", default=models)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16" if torch.cuda.is_available() else "float32")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def peak(device: torch.device) -> float:
    """The most memory that was in use, in GiB: of the GPU, or of this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(clip: Clip, method: str, args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a prediction, the first left out, and the memory at its highest."""
    settings = {} if method == "zero_shot" else {"views": args.views}
    if method in ("maple+tpt", "taps"):
        settings["prompts"] = maple.initial(clip, torch.Generator().manual_seed(0))
    if clip.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(clip.device)
    names = [f"thing number {index}" for index in range(args.classes)]
    learner, times = Learner(clip, names, method, **settings), []
    for _ in range(args.repeats + 1):
        start = time.perf_counter()
        learner.predict_one(photo(375, 500))
        times.append(time.perf_counter() - start)
    return {"seconds": sorted(times[1:])[(len(times) - 1) // 2], "memory_gib": peak(clip.device)}


def main() -> None:
    args = arguments()
    rows = {}
    for name in args.models.split(","):
        try:
            clip = load_clip(name, pretrained="random", dtype=getattr(torch, args.dtype))
        except TapsError as error:
            print(f"{name}: {error}")
            continue
        rows[name] = {"parameters": clip.config.parameters, "dtype": args.dtype, "views": args.views}
        for method in args.methods.split(","):
            rows[name][method] = measure(clip, method, args)
            print(name, method, rows[name][method], flush=True)
        del clip
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
