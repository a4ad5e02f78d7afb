"""Table 1 of the paper: does TPT gain when it does not learn from the most uncertain images?

    python recipes/table1.py --scale paper --root DATA --jobs 1
    python recipes/table1.py --scale pocket --data DIR --jobs 2

Zero-shot and the mean of the confident views stand beside it, as in every table.
"""

from __future__ import annotations

import argparse

from table_tools import arguments, main, named, run_table, zips

from taps.evaluate.jobs import StreamSpec

METHODS = ("tpt", "tpt_skip")
PAPER = ("dtd", "stanford_cars", "oxford_pets", "food101")
POCKET = (
    "caltech101-test.zip",
    "imagenette-val.zip",
    "pacs.zip/photo",
    "pacs.zip/art_painting",
    "pacs.zip/cartoon",
    "pacs.zip/sketch",
)


def streams(args: argparse.Namespace) -> list[StreamSpec]:
    return named(args, PAPER) if args.scale == "paper" else zips(args, POCKET)


def run() -> None:
    args = arguments(__doc__ or "", "results/table1").parse_args()
    run_table(args, streams(args), METHODS)


if __name__ == "__main__":
    main(run)
