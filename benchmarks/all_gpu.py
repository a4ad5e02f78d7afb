"""Everything there is to measure on a GPU within a given time, the most important first.

    python benchmarks/all_gpu.py --out results/ --seconds 265 --data tiny-imagenet-val.zip

Each part is a process with a time of its own; what one does not use the next may. A part that is stopped or
fails leaves what it had written. Files in the folder: one JSON for each part, summary.json, log.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
CASES = (
    "1000:150:sample,1000:150:never,100:150:never,1000:0:sample,1000:1500:sample,100:150:sample,"
    "1000:0:never,100:0:sample,1000:1500:never"
)
# Name, share of the time in seconds of 265, and the command.
PARTS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("tests", 100, ("cuda_tests.py", "--seconds", "95")),
    ("steps", 85, ("gpu.py", "--only", "steps", "--cases", CASES, "--repeats", "5", "--file", "steps.json")),
    ("views", 16, ("gpu.py", "--only", "views", "--file", "views.json")),
    ("profile", 28, ("gpu.py", "--only", "profile", "--file", "profile.json")),
    ("accuracy", 36, ("gpu.py", "--only", "accuracy", "--file", "accuracy.json")),
)


def run_part(command: list[str], seconds: float, log: TextIO) -> str:
    """Run a command in a group of its own; how it ended."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]),
        "PYTHONUNBUFFERED": "1",
    }
    log.flush()
    started = subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
    )
    try:
        code = started.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        return f"stopped after {seconds:.0f} s"
    return "done" if code == 0 else f"failed with {code}"


def read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def median(timing: Any) -> str:
    return f"{timing['median']:.1f}" if timing else "–"


def show(out: Path) -> None:
    """A short account of all files."""
    if tests := read(out / "tests.json"):
        print("tests", {key: value for key, value in tests.items() if key not in ("output", "failures")})
        for name in tests.get("failures", {}):
            print("  FAILED", name)
        if tests.get("runner") == "pytest":
            print("\n".join(tests["output"].strip().splitlines()[-6:]))
    print("mode      classes labels  published   ours  ratio | + views: published   ours  ratio | GiB learn")
    for row in (read(out / "steps.json") or {}).get("steps", []):
        case = row["case"]
        ratios = [f"{row[name]:.1f}" if row[name] else "–" for name in ("speedup", "speedup_views")]
        print(
            f"{case['reset']:<9} {case['classes']:>7} {case['buffer']:>6} {median(row['reference']):>10} "
            f"{median(row['ours']):>6} {ratios[0]:>6} | {median(row['reference_views']):>18} "
            f"{median(row['ours_views']):>6} {ratios[1]:>6} | {row['ours_mib'] / 1024:.2f} "
            f"{median(row['learn'])}"
        )
    for shape, row in ((read(out / "views.json") or {}).get("views") or {}).items():
        figures = {
            f"{state} {way}": round(timing["median"], 2)
            for state in ("cold", "warm")
            for way, timing in row.get(state, {}).items()
        }
        print("views", shape, "fused" if row["fused"] else "NOT FUSED", figures, end=" ")
        print(f"host {row['host_ms']:.2f} draws {row['draw_ms']:.2f} pillow {row['pillow']['median']:.1f} ms")
    for row in (read(out / "profile.json") or {}).get("profile", []):
        for streams in (1, 2):
            stages = {name: round(ms, 2) for name, ms in row[f"stages_ms_{streams}"].items()}
            print("stages", row["case"]["reset"], streams, "streams", stages)
    for batch, row in ((read(out / "profile.json") or {}).get("attention") or {}).items():
        print("attention", batch, row)
    print("accuracy", (read(out / "accuracy.json") or {}).get("accuracy"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "results")))
    parser.add_argument("--seconds", type=float, default=265)
    parser.add_argument("--data", default="", help="data set of the accuracy; left out without one")
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--only", default="", help="these parts alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    only = set(options.only.split(",")) - {""}
    parts = [
        part for part in PARTS if (not only or part[0] in only) and (part[0] != "accuracy" or options.data)
    ]
    pace = options.seconds / sum(part[1] for part in parts)
    began, due, summary = time.perf_counter(), 0.0, {}
    with (options.out / "log.txt").open("w") as log:
        for name, share, (script, *given) in parts:
            due += share * pace
            given += ["--out", str(options.out)]
            if script == "gpu.py":
                given += ["--model", options.model, "--data", options.data]
            begun = time.perf_counter()
            left = began + due - begun
            log.write(f"==== {name}, at most {left:.0f} s\n")
            ended = run_part([sys.executable, str(HERE / script), *given], left, log)
            summary[name] = {"ended": ended, "seconds": round(time.perf_counter() - begun, 1)}
            print(name, summary[name], flush=True)
            (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    lines = (options.out / "log.txt").read_text(errors="replace").splitlines()
    if any(part["ended"] != "done" for part in summary.values()):
        print("---- end of the log", *lines[-40:], sep="\n")
    print("----")
    show(options.out)


if __name__ == "__main__":
    main()
