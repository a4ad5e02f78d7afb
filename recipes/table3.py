"""Table 3 of the paper: the source's own classes under another distribution, coarse and fine alignment on.

    python recipes/table3.py --scale paper --root DATA --prompts PROMPTS --source STATS --jobs 1
    python recipes/table3.py --scale pocket --data DIR --jobs 2

At paper scale: ImageNet-V2, -Sketch, -A and -R, each with its own published weights (presets).
At pocket scale: the validation images of the 200 classes the prompts were trained on, seen through two
corruptions and two filters, all at severity 3, with every weight at 1; TAPS without alignment stands beside
TAPS with it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from table_tools import Entry, arguments, main, named, run_table, zips

from taps.study.evaluate.jobs import StreamSpec

METHODS = ("tpt", "coop", "cocoop", "cocoop+tpt", "promptalign")
PAPER = ("imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r")
POCKET = "tiny-imagenet-val.zip"
CORRUPTIONS = ("gaussian_noise", "contrast", "cartoon", "sketch")
ALIGNED = {"weight_coarse": 1.0, "weight_fine": 1.0}


def streams(args: argparse.Namespace) -> list[StreamSpec]:
    if args.scale == "paper":
        return named(args, PAPER)
    [clean] = zips(args, [POCKET])
    return [replace(clean, corrupt=kind, severity=3, name=f"tiny-imagenet/{kind}") for kind in CORRUPTIONS]


def methods(args: argparse.Namespace) -> list[Entry]:
    if args.scale == "paper":  # the presets hold the weights of each set
        return [*METHODS, "taps"]
    return [*METHODS, ("taps without alignment", "taps", {}), ("taps", "taps", ALIGNED)]


def run() -> None:
    args = arguments(__doc__ or "", "results/table3").parse_args()
    run_table(args, streams(args), methods(args))


if __name__ == "__main__":
    main(run)
