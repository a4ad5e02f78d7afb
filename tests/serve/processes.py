"""Processes below another one, and the memory of them all."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path


def processes_of(pid: int) -> list[int]:
    """A process and those that came from it, itself first."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            for thread in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def memory_mb(pid: int) -> float:
    """Memory of a process and those below it; a page that several share counts once in all."""
    texts = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in processes_of(pid)]
    return sum(int(size) for text in texts for size in re.findall(r"^Pss:\s+(\d+) kB", text, re.M)) / 1024
