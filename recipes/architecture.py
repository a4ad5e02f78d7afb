"""The table of docs/architecture.md, from the docstrings of the packages: python -m recipes.architecture."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ROOT / "src" / "taps"
HEAD = "| package | what is here | read first |\n|---|---|---|\n"


def rows() -> list[str]:
    """A row for each package, those inside another one after it."""
    found = []
    for path in sorted(PACKAGES.rglob("__init__.py")):
        name = path.parent.relative_to(PACKAGES).as_posix()
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if name == "." or text is None or "Read first:" not in text:
            continue
        what, _, rest = text.partition("\n\n")
        first = rest.partition("Must not know:")[0].removeprefix("Read first:")
        found.append(f"| `{name}/` | {' '.join(what.split())} | {' '.join(first.split())} |")
    return found


def page() -> str:
    """The page with the table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    after = rest.partition("\n\n")[2]
    return before + HEAD + "\n".join(rows()) + "\n\n" + after


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
