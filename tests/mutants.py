"""Sum up what mutmut found: how many mutants of each module are killed, and which survive unexplained.

A mutant is a small change to one line; it is killed where some test fails. `make mutants` runs this last.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "mutants" / "src" / "taps"
REASONS = ROOT / "docs" / "mutants.md"
ENOUGH = 0.95  # of the mutants of each module
SURVIVED, UNTESTED = 0, 33  # exit codes of mutmut; any other means that a test noticed


def verdicts() -> dict[str, dict[str, int | None]]:
    """Exit code of each mutant by module; None where it has not been run."""
    found = {}
    for path in sorted(RESULTS.rglob("*.py.meta")):
        module = path.relative_to(RESULTS).as_posix().removesuffix(".py.meta")
        found[module] = json.loads(path.read_text())["exit_code_by_key"]
    return found


def changed_lines(mutant: str) -> tuple[str, str]:
    """What a mutant makes of which line."""
    shown = subprocess.run(
        [sys.executable, "-m", "mutmut", "show", mutant], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    old = [line[1:].strip() for line in shown if line.startswith("-") and not line.startswith("---")]
    new = [line[1:].strip() for line in shown if line.startswith("+") and not line.startswith("+++")]
    return " ".join(old), " ".join(new)


def main() -> int:
    reasons = REASONS.read_text() if REASONS.is_file() else ""
    missing, low = [], []
    print("| module | mutants | killed | share |\n|---|---:|---:|---:|")
    every = verdicts()
    for module, codes in every.items():
        alive = [name for name, code in codes.items() if code in (SURVIVED, UNTESTED, None)]
        killed = len(codes) - len(alive)
        print(f"| {module} | {len(codes)} | {killed} | {killed / max(len(codes), 1):.1%} |", flush=True)
        low += [module] if killed < ENOUGH * len(codes) else []
        for name in alive:
            old, new = changed_lines(name)
            if f"`{new}`" not in reasons:
                missing.append(f"{name.split('__mutmut_')[0]}:\n  - {old}\n  + {new}")
    total = sum(map(len, every.values()))
    print(f"{total} mutants, {len(missing)} survivors without a reason in docs/mutants.md.")
    print("\n".join(missing))
    for module in low:
        print(f"{module}: fewer than {ENOUGH:.0%} are killed.")
    return 1 if missing or low else 0


if __name__ == "__main__":
    sys.exit(main())
