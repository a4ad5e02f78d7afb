"""The command itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import taps

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_module_and_version(arguments):
    out = subprocess.run(
        [sys.executable, "-m", "taps", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert (f"taps {taps.__version__}" in out) == (arguments == ["--version"])
    assert ("demo" in out) == (arguments == ["--help"])


def test_one_version_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    newest = re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert cited == newest == taps.__version__
