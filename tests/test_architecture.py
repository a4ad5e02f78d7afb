"""docs/architecture.md and the import contract name what there is: every package, in the same order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from recipes import architecture

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
LAYERS = next(each for each in CONTRACTS["contracts"] if each["type"] == "layers")


def packages() -> set[str]:
    """Packages and modules right under src/taps."""
    found = [path for path in (ROOT / "src" / "taps").iterdir() if not path.name.startswith("__")]
    return {path.stem for path in found if path.suffix == ".py" or (path / "__init__.py").is_file()}


def layers(lines: list[str]) -> list[set[str]]:
    """The packages and modules of each layer that exist; those in brackets are optional."""
    return [there for line in lines if (there := set(re.findall(r"\w+", line)) & packages())]


def test_the_contract_names_every_package() -> None:
    assert set().union(*layers(LAYERS["layers"])) == packages()
    assert LAYERS["exhaustive"]
    assert LAYERS["exhaustive_ignores"] == ["__main__"]


def test_the_page_is_made_of_the_packages_docstrings() -> None:
    assert architecture.page() == PAGE, "run: python -m recipes.architecture"
    first_cells = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    ground = re.search(r"The ground, .*?\n\n", PAGE, re.DOTALL)
    assert ground is not None
    named = {name for cell in first_cells for name in re.findall(r"`(\w+)/`", cell)}
    assert named | (packages() & set(re.findall(r"`(\w+)`", ground[0]))) == packages()


def test_the_page_draws_the_contracts_layers() -> None:
    drawing = re.search(r"```\n(cli\n.*?)```", PAGE, re.DOTALL)
    assert drawing is not None
    assert layers(drawing[1].splitlines()) == layers(LAYERS["layers"])


def test_modules_named_on_the_page_exist() -> None:
    for package, text in re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", PAGE, re.MULTILINE):
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert (ROOT / "src" / "taps" / package / name).is_file(), f"{package}/{name}"
