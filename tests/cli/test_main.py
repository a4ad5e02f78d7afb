"""The command itself."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_module_and_version(arguments):
    out = subprocess.run(
        [sys.executable, "-m", "taps", *arguments], capture_output=True, text=True, check=True
    ).stdout
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert (f"taps {project['version']}" in out) == (arguments == ["--version"])
    assert ("demo" in out) == (arguments == ["--help"])
