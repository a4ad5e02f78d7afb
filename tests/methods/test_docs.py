"""The examples in docs/methods.md and docs/training.md run, and their tables are complete."""

import re
from pathlib import Path

import pytest

from taps.methods.presets import VARIANTS
from taps.methods.registry import all_methods, list_methods
from taps.model.prompts.families import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    name: (DOCS / name).read_text(encoding="utf-8")
    for name in ("methods.md", "training.md", "class-texts.md")
}
EXAMPLES = [
    (name, code)
    for name, page in PAGES.items()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
]


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_example_runs(page, example, capsys):
    exec(compile(example, page, "exec"), {})
    assert capsys.readouterr().out


def test_every_method_and_variant_is_in_a_table():
    named = set(
        re.findall(r"`([\w+]+)`", "\n".join(re.findall(r"^\| (`.*?) \|", PAGES["methods.md"], re.MULTILINE)))
    )
    assert named == set(list_methods()) | set(VARIANTS)


def test_every_method_has_one_sentence():
    for name, method in all_methods().items():
        assert method.line.endswith("."), name
        assert len(method.line) > 15, name


def test_the_table_of_recipes():
    rows = re.findall(
        r"^\| `(\w+)` \| .*? \| (\d+) \| (\d+) \| (\S+) \|$", PAGES["training.md"], re.MULTILINE
    )
    assert {name: (int(epochs), int(batch), float(lr)) for name, epochs, batch, lr in rows} == {
        name: (each.recipe.epochs, each.recipe.batch, each.recipe.lr) for name, each in FAMILIES.items()
    }
