"""Table 2 of the paper: ten data sets that the prompts were not trained on; no alignment.

    python recipes/table2.py --scale paper --root DATA --prompts PROMPTS --source STATS --jobs 1
    python recipes/table2.py --scale pocket --data DIR --jobs 2

PROMPTS holds maple/, coop/, cocoop/ and proda/, each made by `taps train` on ImageNet (or imported from a
public checkpoint); methods whose prompts are missing are left out, and said to be.
"""

from __future__ import annotations

import argparse

from table_tools import arguments, clean_streams, main, run_table

from taps.study.evaluate.jobs import StreamSpec

METHODS = ("tpt", "coop", "cocoop", "proda", "maple+tpt", "promptalign", "taps")
PAPER = (
    *("caltech101", "oxford_pets", "oxford_flowers", "food101", "fgvc_aircraft"),
    *("sun397", "dtd", "stanford_cars", "eurosat", "ucf101"),
)


def streams(args: argparse.Namespace) -> list[StreamSpec]:
    return clean_streams(args, PAPER)


def run() -> None:
    args = arguments(__doc__ or "", "results/table2").parse_args()
    run_table(args, streams(args), METHODS)


if __name__ == "__main__":
    main(run)
