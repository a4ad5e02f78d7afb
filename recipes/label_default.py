"""Which acquisition the default method has: `density` or `margin` (docs/results/default.md).

    PYTHONPATH=src python3 recipes/label.py encode --data DIR --out OUT --views 4 --limit 1200
    PYTHONPATH=src python3 recipes/label_default.py --out OUT --views 4 --limit 1200

Both run on the same streams of stored features. Two figures are measured for each: the accuracy of the
stream, and the accuracy when the final state predicts all images again. The second command goes on where it
was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from label import DRAWN, FAR, feature_file, key, read_rows, run_stream
from provenance import stamped

from taps.default import ACQUISITION, METHOD, VIEWS

RATES = (0.05, 0.1)
RULES = ("density", "margin")
SETS = (*FAR, *DRAWN, "flowers102", "cub200", "food101")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "default.md"
FIGURES = ("accuracy", "final")
HEAD = """# The default acquisition

`taps.Learner`, `taps run`, `taps label`, `taps serve` and the adapters share one default: `{method}` with
{views} views, and questions by `{acquisition}` (`src/taps/default.py`). This page compares `density` with
`margin`.

Each row is the mean over {orders} order(s) of a stream of at most {limit} images with {seen} views each, of
the embedded model; {streams} streams in all. *Stream*: each image is predicted before its label is known.
*Final*: when the stream is over, the final state predicts every image again.

| set | rate | stream, density | stream, margin | final, density | final, margin |
|---|---|---|---|---|---|
"""
FOOT = """
Margin − density, mean of the sets: {gains}.

`python recipes/label.py encode --data DIR --out OUT --views {seen} --limit 1200` makes the features.
`python recipes/label_default.py --out OUT --views {seen} --limit {limit} --orders {orders} --sets
{sets}` runs the streams and writes this page.
"""


def plans(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for order in range(given.orders):
        for name in given.sets.split(","):
            for rate in RATES:
                for rule in RULES:
                    settings = {"rate": rate, "acquisition": rule, "views": given.views, "fraction": 0.25}
                    job = {"set": name, "order": order, "method": "view_ensemble+", "settings": settings}
                    yield job | {"noise": 0.0, "sorted": False, "limit": given.limit, "again": True}


def run_all(given: argparse.Namespace) -> None:
    """Every stream whose set is encoded and which has no row yet, one after the other."""
    rows, began = given.rows, time.monotonic()
    done = {key(row) for row in read_rows(rows)}
    for job in plans(given):
        file = feature_file(job["set"], given.out, given.views)
        late = time.monotonic() - began > given.seconds
        if late or key(job) in done or not file.exists():
            continue
        row = job | run_stream(job, str(file), given.model)
        with rows.open("a") as out:
            out.write(json.dumps(row) + "\n")


def mean(rows: list[dict[str, Any]], figure: str, rule: str) -> float:
    """Over sets, each the mean of its orders."""
    found = [row for row in rows if row["settings"]["acquisition"] == rule]
    by_set = {name: [row[figure] for row in found if row["set"] == name] for name in SETS}
    return float(np.mean([np.mean(values) for values in by_set.values() if values]))


def line(title: str, rate: float, rows: list[dict[str, Any]]) -> str:
    cells = [f"{mean(rows, figure, rule):.1f}" for figure in FIGURES for rule in RULES]
    return f"| {' | '.join([title, f'{rate:g}', *cells])} |\n"


def paired(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of streams that both rules ran on."""
    ran = Counter((row["set"], row["order"], row["settings"]["rate"]) for row in rows)
    return [row for row in rows if ran[row["set"], row["order"], row["settings"]["rate"]] == len(RULES)]


def page(rows: list[dict[str, Any]], given: argparse.Namespace) -> str:
    facts = {"method": METHOD, "views": VIEWS, "acquisition": ACQUISITION, "orders": given.orders}
    facts |= {"limit": given.limit, "seen": given.views, "streams": len(rows), "sets": given.sets}
    lines, gains = [], []
    for rate in RATES:
        at = [row for row in rows if row["settings"]["rate"] == rate]
        named = [name for name in SETS if any(row["set"] == name for row in at)]
        lines += [line(name, rate, [row for row in at if row["set"] == name]) for name in named]
        lines.append(line(f"**mean of {len(named)} sets**", rate, at))
        for figure, word in zip(FIGURES, ("stream", "final"), strict=True):
            gain = mean(at, figure, "margin") - mean(at, figure, "density")
            gains.append(f"{gain:+.2f} ({word}, rate {rate:g})")
    return HEAD.format(**facts) + "".join(lines) + FOOT.format(**facts, gains=", ".join(gains))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where the features are")
    parser.add_argument("--rows", type=Path, help="where the rows go; OUT/default.jsonl unless given")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--limit", type=int, default=1200)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--sets", default=",".join(SETS), help="these alone, separated by commas")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no stream after these")
    given = parser.parse_args()
    given.rows = given.rows or given.out / "default.jsonl"
    run_all(given)
    rows = [row for row in read_rows(given.rows) if row["order"] < given.orders]
    PAGE.write_text(stamped(page(paired(rows), given), "recipes/label_default.py"), encoding="utf-8")


if __name__ == "__main__":
    main()
