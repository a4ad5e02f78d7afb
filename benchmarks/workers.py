"""How much faster two workers of a Ray cluster on this machine are than one; they take turns.

    PYTHONPATH=src python benchmarks/workers.py --data caltech101-test.zip --rounds 3 --json workers.json

The runs are those of `taps eval --ray`; a worker has one core. `seconds` is from the command to the last row,
with the start of the workers; `working` from the first prediction to the last row, most of long ones.
Efficiency is half of the ratio. Other programs should leave two cores alone: `load` is how many wanted one
when a round began.

With `--ray HOST:PORT` it is timed on a cluster as it is, such as one machine with one core, and then two of
them. `TMPDIR` is a folder that they share.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from taps.cluster.runs import run_on_ray
from taps.evaluate.evaluate import evaluate
from taps.evaluate.jobs import Job, ModelSpec, StreamSpec
from taps.evaluate.options import Execution


def timed_here(jobs: list[Job], workers: int) -> dict[str, float]:
    """One evaluation by so many workers of this machine."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": workers})
    try:
        return {"workers": workers, **timed(jobs, cluster.address)}
    finally:
        cluster.shutdown()


def timed(jobs: list[Job], address: str) -> dict[str, float]:
    """One evaluation on a cluster."""
    load = os.getloadavg()[0]
    out = Path(tempfile.mkdtemp())
    said: list[float] = []
    began = time.perf_counter()

    def watcher(left: Any) -> Any:
        return lambda what, index, value: said.append(time.perf_counter()) if what != "start" else None

    try:
        how = Execution(ray=address, device="cpu")
        outcome = evaluate(jobs, out, how, watcher=watcher, run=run_on_ray)
    finally:
        shutil.rmtree(out)
    assert not outcome.unfinished, outcome.unfinished
    return {"load": load, "seconds": said[-1] - began, "working": said[-1] - said[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--method", default="zero_shot")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--limit", type=int, default=300, help="Images of each run.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", help="A cluster, as it is.")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    stream = StreamSpec(str(Path(asked.data).resolve()), name="data")
    seeds = range(1, asked.runs + 1)
    jobs = [Job(stream, ModelSpec("pocket"), asked.method, seed, limit=asked.limit) for seed in seeds]
    rows: list[dict[str, float]] = []
    for _ in range(asked.rounds):
        for workers in (1, 2) if asked.ray is None else (0,):
            found = timed_here(jobs, workers) if workers else timed(jobs, asked.ray)
            rows.append({name: round(value, 2) for name, value in found.items()})
            print(rows[-1], flush=True)
    for name in ("seconds", "working") if asked.ray is None else ():
        one, two = ([row[name] for row in rows if row["workers"] == count] for count in (1, 2))
        ratios = [a / b for a, b in zip(one, two, strict=True)]
        every = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name}: two workers are {statistics.median(ratios):.2f}× as fast as one ({every})")
    if asked.json:
        about = {"data": Path(asked.data).name, "method": asked.method, "runs": asked.runs}
        about |= {"limit": asked.limit, "rounds": asked.rounds, "rows": rows}
        asked.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
