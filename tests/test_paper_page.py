"""docs/paper.md names functions, settings and tests that exist."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

from taps.methods.presets import preset
from taps.methods.settings import AskSettings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
TABLES = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
NAMES = sorted(set(re.findall(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`", TABLES)))


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_the_tables_exist(name: str) -> None:
    parts = name.removeprefix("taps.").split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["taps", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return
    pytest.fail(f"there is no {name}")


def test_the_tables_name_something() -> None:
    assert "learning.losses.mean_entropy" in NAMES
    assert len(NAMES) > 15


def test_files_of_tests_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert len(named) > 3
    assert all((ROOT / name).exists() for name in named)


def test_settings_are_called_as_on_the_page() -> None:
    known = {field.name: field.default for field in fields(AskSettings)}
    for name in ("rate", "weight_ce", "weight_coarse", "weight_fine", "fraction", "buffer", "warmup", "tau0"):
        assert f"`{name}`" in PAGE
        assert name in known
    assert (known["warmup"], known["rate"], known["buffer"]) == (30, 0.05, 150)
    assert (known["tau0"], preset("taps", "imagenet")["tau0"]) == (None, 2.0)
    assert (known["align"], known["augmix"], known["reset"]) == ("promptalign", False, "sample")


def test_every_note_has_its_decision() -> None:
    decided = {int(number) for number in re.findall(r"\*\*D(\d+)\.", PAGE)}
    assert decided == set(range(1, max(decided) + 1))
    for first, last in re.findall(r"\| D(\d+)(?:–D(\d+))? \|", PAGE):
        assert {int(first), int(last or first)} <= decided
