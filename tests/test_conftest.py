"""The line at the end of the tests that says what was skipped."""

from __future__ import annotations

import os
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
