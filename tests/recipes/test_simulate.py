"""`recipes/theory/simulate.py` as a user calls it."""

import csv
import json
import sys

import pytest
from PIL import Image
from simulate import app
from typer.testing import CliRunner

from taps.errors import SettingsError, StateError
from taps.files import read_json

SMALL = ["--streams", "8", "--length", "200"]


def simulate(*arguments: str):
    return CliRunner().invoke(app, [*arguments, *SMALL])


def test_tables_go_to_the_terminal_and_everything_to_the_folder(tmp_path):
    pytest.importorskip("matplotlib")
    result = simulate("all", "--out", str(tmp_path / "a" / "b"))
    assert result.exit_code == 0, result.output
    assert "Proposition 1" in result.output
    assert "Proposition 2" in result.output
    names = {path.name for path in (tmp_path / "a" / "b").iterdir()}
    figures = {f"theory-{name}.png" for name in ("balance", "datasets", "rate", "shapes")}
    assert figures <= names
    for name in figures:
        with Image.open(tmp_path / "a" / "b" / name) as image:
            assert image.width == 800
            assert len(image.convert("L").getcolors()) > 10
    whole = read_json(tmp_path / "a" / "b" / "simulate.json")
    assert whole["settings"] == {"streams": 8, "length": 200, "seed": 0, "rate": 0.05}
    for name, rows in whole["tables"].items():
        with (tmp_path / "a" / "b" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            written = list(csv.DictReader(file))
        assert len(written) == len(rows)
        assert list(written[0]) == list(rows[0])


def test_json_goes_to_the_terminal():
    result = simulate("rate", "--json")
    assert result.exit_code == 0, result.output
    tables = {"convergence", "shapes", "limits", "warmup", "first_question"}
    assert json.loads(result.output)["tables"].keys() == tables


def test_without_a_folder_no_matplotlib_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert simulate("rate").exit_code == 0


def test_missing_matplotlib_is_said_before_anything_is_computed(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = simulate("rate", "--out", str(tmp_path))
    assert isinstance(result.exception, SettingsError)
    assert "need matplotlib" in str(result.exception)
    assert simulate("rate", "--out", str(tmp_path), "--no-figures").exit_code == 0
    assert (tmp_path / "shapes.csv").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    result = simulate("rate", "--out", str(tmp_path / "file"))
    assert isinstance(result.exception, StateError)


def test_unknown_propositions_are_refused():
    assert simulate("third").exit_code == 2
