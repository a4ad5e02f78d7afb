"""Run the tests that need a CUDA device, by pytest, and keep what it said.

PYTHONPATH=src python benchmarks/cuda_tests.py --out results/
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
FILES = (
    "learning/test_batch",
    "learning/test_graphs",
    "model/clip/test_cuda",
    "streams/test_pool",
    "model/kernels/test_cuda",
    "model/images/test_views",
    "methods/test_cuda",
    "head/test_on_device",
    "test_learner",
)
# Warnings are errors in the repository; those of another version of torch say nothing about it.
OPTIONS = (
    "-q",
    "--maxfail=8",
    "-k",
    "cuda or host_memory",
    "-W",
    "ignore",
    "--tb=short",
    "-p",
    "no:cacheprovider",
)


def run_pytest(seconds: int) -> dict[str, Any]:
    files = [str(TESTS / f"{file}.py") for file in FILES]
    command = [sys.executable, "-m", "pytest", *OPTIONS, *files]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        out, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        out, code = f"{late.stdout!s}\nnot done after {seconds} s", 124
    print(out[-4000:], flush=True)
    return {"runner": "pytest", "code": code, "output": out[-20000:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=int, default=150, help="after which pytest is stopped")
    options = parser.parse_args()
    began = time.perf_counter()
    report = run_pytest(options.seconds)
    report["seconds"] = round(time.perf_counter() - began, 1)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tests.json").write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(report["code"])


if __name__ == "__main__":
    main()
