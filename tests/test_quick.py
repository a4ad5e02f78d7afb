"""`make check` runs some tests of every package."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUICK = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").split()


def test_the_files_exist() -> None:
    assert [name for name in QUICK if not (ROOT / name.partition("::")[0]).is_file()] == []


def test_every_package_that_has_tests_is_among_them() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "taps").glob("*/__init__.py")}
    tested = {name for name in packages if any((ROOT / "tests" / name).glob("test_*.py"))}
    assert tested == {Path(name.partition("::")[0]).parent.name for name in QUICK} - {"tests"}
