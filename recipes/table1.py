"""Table 1 of the paper: does TPT gain when it does not learn from the most uncertain images?

    python recipes/table1.py --scale paper --root DATA --jobs 1
    python recipes/table1.py --scale pocket --data DIR --jobs 2

Zero-shot and the mean of the confident views stand beside it, as in every table.
"""

from __future__ import annotations

from table_tools import arguments, clean_streams, main, run_table

METHODS = ("tpt", "tpt_skip")
PAPER = ("dtd", "stanford_cars", "oxford_pets", "food101")


def run() -> None:
    args = arguments(__doc__ or "", "results/table1").parse_args()
    run_table(args, clean_streams(args, PAPER), METHODS)


if __name__ == "__main__":
    main(run)
