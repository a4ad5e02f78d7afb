"""One module writes, moves and removes; it touches nothing that is not ours."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import taps

SOURCES = Path(taps.__file__).parent
WRITER = SOURCES / "disk.py"
ANY = {  # calls that write, whatever they are called on
    *(
        "unlink",
        "rmdir",
        "removedirs",
        "rmtree",
        "rename",
        "renames",
        "move",
        "copyfile",
        "copy2",
        "copytree",
    ),
    *("copyfileobj", "symlink", "symlink_to", "hardlink_to", "link_to", "write_text", "write_bytes", "touch"),
    *("savez", "savetxt", "tofile", "extractall", "to_csv", "mkstemp", "mkdtemp", "chmod"),
}
OF_MODULES = {"os", "shutil", "Path", "pathlib"}  # "x".replace(…) and tensor.copy_(…) are other things
IMPORTED = {"open", "rmtree", "unlink", "copyfile", "copytree"}
OURS = {"disk"}  # calls of this module's own functions


def writes(source: str) -> Iterator[tuple[int, str]]:
    """Lines with calls that write, move or remove, and what they call."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        on = function.value if isinstance(function, ast.Attribute) else None
        module = on.id if isinstance(on, ast.Name) else ""
        if module in OURS or (
            on is None and name not in ("open", "rmtree", "unlink", "copyfile", "copytree")
        ):
            continue
        of_path = name == "replace" and len(node.args) == 1 and not node.keywords
        of_module = module in OF_MODULES and name in ("replace", "remove", "link", "copy", "save", "open")
        opens = name in ("open", "fdopen") and any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) and set(each.value) & set("wax+")
            for each in [*node.args[:2], *(key.value for key in node.keywords if key.arg == "mode")]
            if isinstance(each, ast.Constant) and len(str(each.value)) <= 3
        )
        if name in ANY or of_path or (of_module and name != "open") or opens:
            yield node.lineno, ast.unparse(node)[:80]


@pytest.mark.parametrize(
    "line",
    [
        "path.unlink()", "os.replace(a, b)", "os.remove(a)", "a.replace(b)", "shutil.copy(a, b)",
        "open(p, 'w')",
        "p.open('ab+')", "p.open(mode='x')", "shutil.rmtree(p)", "p.write_text('')", "open(p, mode='r+b')",
        "Path(p).symlink_to(q)", "p.touch()",
    ],
)  # fmt: skip
def test_a_call_that_writes_is_found(line: str) -> None:
    assert list(writes(line))


@pytest.mark.parametrize(
    "line",
    [
        "text.replace('a', 'b')",
        "open(p)",
        "p.open('rb')",
        "x.copy()",
        "mine.copy_(x)",
        "disk.remove(p)",
        "l.remove(x)",
    ],
)
def test_another_call_is_not(line: str) -> None:
    assert not list(writes(line))


# Below /proc there are no files, and the help is written to the terminal.
ELSEWHERE = {"process.py": "CLEAR.write_text", "cli/panels.py": "formatter.write_text"}


def test_one_module_writes() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{number}: {call}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path != WRITER
        for number, call in writes(path.read_text(encoding="utf-8"))
        if not call.startswith(ELSEWHERE.get(path.relative_to(SOURCES).as_posix(), "("))
    ]
    assert found == []
