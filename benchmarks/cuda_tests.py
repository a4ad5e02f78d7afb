"""Run the tests that need a CUDA device, also where pytest or hypothesis is not installed.

    PYTHONPATH=src python benchmarks/cuda_tests.py --out results/

With pytest it runs pytest. Without, a stand-in understands the few things these tests use: marks, parameters,
approx, importorskip. hypothesis is needed by other tests of the same files and is stood in for as well.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
FILES = ("test_fast", "test_views")


class SkippedError(Exception):
    """Raised by a test that cannot run here."""


class Anything:
    """Stands in for a module: whatever is asked of it can be called and used as a decorator."""

    def __getattr__(self, name: str) -> Anything:
        return Anything()

    def __call__(self, *given: Any, **named: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) and not named else Anything()


def anything(key: str) -> Anything:
    if key.startswith("__"):  # whoever looks a module up asks for its file
        raise AttributeError(key)
    return Anything()


class Approx:
    def __init__(self, value: float, rel: float = 1e-6) -> None:
        self.value, self.rel = value, rel

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, int | float) and abs(other - self.value) <= self.rel * abs(self.value) + 1e-12
        )

    __hash__ = None  # type: ignore[assignment]


def parametrize(names: str | tuple[str, ...], values: Any) -> Callable[[Any], Any]:
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def mark(test: Any) -> Any:
        rows = [dict(zip(keys, each if len(keys) > 1 else (each,), strict=True)) for each in values]
        test.rows = [*getattr(test, "rows", []), rows]
        return test

    return mark


def skipif(condition: bool, reason: str = "") -> Callable[[Any], Any]:
    def mark(test: Any) -> Any:
        test.skipped = condition
        return test

    return mark


def importorskip(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SkippedError(name) from error


def stand_in_for_hypothesis() -> None:
    if importlib.util.find_spec("hypothesis") is None:
        for name in ("hypothesis", "hypothesis.strategies"):
            module = types.ModuleType(name)
            module.__getattr__ = anything  # type: ignore[method-assign]
            sys.modules[name] = module


def stand_in_for_pytest() -> None:
    module = types.ModuleType("pytest")
    module.mark = types.SimpleNamespace(  # type: ignore[attr-defined]
        parametrize=parametrize, skipif=skipif, slow=lambda test: test
    )
    module.approx, module.importorskip = Approx, importorskip  # type: ignore[attr-defined]
    module.__getattr__ = anything  # type: ignore[method-assign]
    sys.modules["pytest"] = module


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every CUDA test with each of its parameters."""
    sys.path.insert(0, str(TESTS))
    for file in FILES:
        for name, test in vars(importlib.import_module(file)).items():
            if not (name.startswith("test_") and "cuda" in name):
                continue
            for rows in itertools.product(*getattr(test, "rows", [])):
                values = {key: value for row in rows for key, value in row.items()}
                label = f"{file}::{name}[{'-'.join(str(value) for value in values.values())}]"
                if getattr(test, "skipped", False):
                    raise SystemExit("There is no CUDA device here.")
                yield label, lambda test=test, values=values: test(**values)


def run_here() -> dict[str, Any]:
    stand_in_for_hypothesis()
    stand_in_for_pytest()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures: dict[str, str] = {}
    for label, test in cases():
        try:
            test()
            counts["passed"] += 1
        except SkippedError:
            counts["skipped"] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            counts["failed"] += 1
            failures[label] = traceback.format_exc()[-3000:]
            print("FAILED", label, repr(error)[:300], flush=True)
    return {"runner": "stand-in", **counts, "failures": failures}


def run_pytest(seconds: int) -> dict[str, Any]:
    # Warnings are errors in the repository; those of another version of torch say nothing about it.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--maxfail=8",
        "-k",
        "cuda",
        "-W",
        "ignore",
        "--tb=short",
    ]
    command += ["-p", "no:cacheprovider", *(str(TESTS / f"{file}.py") for file in FILES)]
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
    parser.add_argument("--seconds", type=int, default=80, help="after which pytest is stopped")
    options = parser.parse_args()
    began = time.perf_counter()
    known = all(importlib.util.find_spec(name) for name in ("pytest", "hypothesis"))
    report = run_pytest(options.seconds) if known else run_here()
    report["seconds"] = round(time.perf_counter() - began, 1)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tests.json").write_text(json.dumps(report, indent=1) + "\n")
    print({key: value for key, value in report.items() if key not in ("output", "failures")}, flush=True)


if __name__ == "__main__":
    main()
