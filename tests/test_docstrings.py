"""Every example in a docstring does what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import taps

# Modules that start a program, or that need what is not installed, when they are imported.
LEFT_OUT = {"taps.serve.migrations.env"}
MODULES = [
    found.name for found in pkgutil.walk_packages(taps.__path__, "taps.") if found.name not in LEFT_OUT
]
# Scripts outside the package that have examples.
SCRIPTS = ["balance", "pool", "rate"]


@pytest.mark.parametrize("name", [*MODULES, *SCRIPTS])
def test_examples_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] == "taps":
            raise
        pytest.skip(f"needs {error.name}")
    results = doctest.testmod(module)
    assert results.failed == 0


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder()
    with_examples = [
        test.name
        for name in (
            "taps.learning.losses",
            "taps.model.clip.load",
            "taps.learner",
            "taps.asking.dynamic",
            "taps.checks.check",
        )
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(with_examples) >= 5
