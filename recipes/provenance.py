"""Where figures come from: the line at the top of each page under docs/results."""

from __future__ import annotations

import datetime
import os
import subprocess

import torch


def made_by(command: str, made: str | None = None) -> str:
    """The command that makes a page, and the commit, day and hardware of its figures.

    Args:
        command: What is typed.
        made: Commit, day and hardware where the figures are older than the page; None for those of now.
    """
    return f"Made by `{command}` at {made or here()}.\n"


def stamped(page: str, command: str, made: str | None = None) -> str:
    """A page with `made_by` below its title."""
    title, rest = page.split("\n\n", 1)
    return f"{title}\n\n{made_by(command, made)}\n{rest}"


def here() -> str:
    """Commit, day and hardware of this moment."""
    asked = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return f"commit {commit or 'unknown'} ({datetime.date.today()}), {hardware()}"


def hardware() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
