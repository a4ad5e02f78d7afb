"""The line at the end of the tests that says what was skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import skips_line

ROOT = Path(__file__).parents[1]


def test_one_command_brings_all_packages() -> None:
    browser = "Skipped: there is no chromium here (Debian: apt-get install chromium)"
    database = "Skipped: PostgreSQL is not installed (Debian: apt-get install postgresql)"
    line = skips_line([browser, database, browser, "Skipped: needs a GPU"])
    assert line == (
        "Skipped: 4. `apt-get install chromium postgresql` brings 3 of them. The rest: 1 × needs a GPU."
    )
    assert skips_line(["Skipped: needs a GPU"]) == "Skipped: 1. Why: 1 × needs a GPU."


def test_a_run_ends_with_it(tmp_path: Path) -> None:
    """Where no program is on the path, curl is missed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/serve/test_docs.py"]
    env = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "`apt-get install curl` brings" in done.stdout.splitlines()[-2], done.stdout


def test_what_debian_can_bring_is_installed_before_all_is_tested() -> None:
    """Every package that a reason to skip names, but for this file's own examples."""
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name]
    files += (ROOT / "tests").rglob("conftest.py")
    named = {found for path in files for found in re.findall(r"apt-get install (\w+)", path.read_text())}
    brought = re.findall(r"wanted\+=\(\"?([\w -]+)", (ROOT / ".ci" / "run").read_text())
    assert {"postgresql"} <= named <= {word for words in brought for word in words.split()}
