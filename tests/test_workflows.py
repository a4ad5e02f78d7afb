"""The workflows, as far as they can be checked without running them: nothing here says that they run."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import taps

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FLOWS: dict[str, dict[Any, Any]] = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
JOBS = [(flow, name, job) for flow in FLOWS for name, job in FLOWS[flow]["jobs"].items()]
STEPS = [step for _, _, job in JOBS for step in job.get("steps", [])]


def test_there_are_checks_and_a_release() -> None:
    assert set(FLOWS) == {"checks", "release"}
    assert set(FLOWS["checks"]["jobs"]) == {"code", "tests", "wheel"}


def test_every_action_is_pinned_by_digest_and_names_its_version() -> None:
    lines = [line for path in FILES for line in path.read_text().splitlines() if "uses:" in line]
    others = [line for line in lines if "uses: ./" not in line]
    assert others
    for line in others:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    digests: dict[str, set[str]] = {}
    for step in STEPS:
        if "uses" in step:
            name, _, digest = step["uses"].partition("@")
            digests.setdefault(name, set()).add(digest)
    assert all(len(found) == 1 for found in digests.values()), digests


@pytest.mark.parametrize(("flow", "name", "job"), JOBS)
def test_a_job_may_read_and_ends(flow: str, name: str, job: dict[str, Any]) -> None:
    assert FLOWS[flow]["permissions"] == {"contents": "read"}
    assert job.get("permissions", {}) == ({"id-token": "write"} if name == "publish" else {})
    if "steps" in job:
        assert job["timeout-minutes"] <= 90
    needed = job.get("needs", [])
    assert set([needed] if isinstance(needed, str) else needed) <= set(FLOWS[flow]["jobs"])


def test_what_is_run_is_there() -> None:
    """Targets of the Makefile and scripts of the repository."""
    targets = {target for _, _, job in JOBS for target in strategy(job, "target")}
    for step in STEPS:
        words = step.get("run", "").split()
        if words[:1] == ["make"] and "$" not in words[1]:
            targets.add(words[1])
        elif words and words[0].startswith("recipes/"):
            assert (ROOT / words[0]).is_file(), words[0]
    for target in sorted(targets):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 0, target


def strategy(job: dict[str, Any], name: str) -> list[str]:
    found: list[str] = job.get("strategy", {}).get("matrix", {}).get(name, [])
    return found


def test_all_supported_pythons_are_tested() -> None:
    assert strategy(FLOWS["checks"]["jobs"]["tests"], "python") == ["3.11", "3.12", "3.13", "3.14"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"


def test_a_tag_of_another_version_is_refused() -> None:
    (line,) = [step["run"] for step in STEPS if "GITHUB_REF_NAME" in step.get("run", "")]
    for tag, status in ((f"v{taps.__version__}", 0), ("v99.0.0", 1)):
        env = {"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, check=False)
        assert done.returncode == status, tag
