"""Commands in the documents have the options that are given to them there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from typer.main import get_command

from taps.cli.main import COMMANDS, app

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "recipes/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "results").glob("*.md")),
]
SCRIPT = re.compile(r"\bpython3? ((?:recipes|benchmarks)/[\w/]+\.py)\b")
SHOWN = re.compile(r"\btaps ([a-z]+)\b([^\n`|#]*)")


def options(command: Any, words: list[str]) -> set[str]:
    """Of a command, or of the one below it that the words name; all of those where they name none."""
    own = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {
        "--help",
        "--help-all",
    }
    below: dict[str, Any] = getattr(command, "commands", {})
    named = [below[words[0]]] if words and words[0] in below else list(below.values())
    return own.union(*(options(each, []) for each in named))


def test_options_in_the_documents_exist() -> None:
    group: Any = get_command(app)
    found = 0
    for page in PAGES:
        for name, rest in SHOWN.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
            if name not in COMMANDS:  # a sentence about TAPS
                continue
            command = group.get_command(None, name)
            given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
            assert given <= options(command, rest.split()), f"{page.name}: taps {name}{rest}"
            found += len(given)
    assert found > 150


def test_scripts_in_the_documents_exist() -> None:
    found = 0
    for page in PAGES:
        for script in SCRIPT.findall(page.read_text(encoding="utf-8")):
            assert (ROOT / script).is_file(), f"{page.name}: {script}"
            found += 1
    assert found > 5


def test_the_page_of_commands_has_a_section_for_each() -> None:
    hook = runpy.run_path(str(ROOT / "docs" / "reference" / "commands.py"))
    titles = re.findall(r"^## taps ([a-z]+)$", "".join(hook["_sections"]()), re.MULTILINE)
    assert titles == list(COMMANDS)
