from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taps.cli.bench import app
from taps.errors import SettingsError

runner = CliRunner()


def bench(*arguments: str) -> str:
    done = runner.invoke(app, [*arguments, "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_step_measures_both_ways_and_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "figures" / "step.json"
    output = bench("step", "--model", "tiny", "--classes", "3", "--buffer", "0,3", "--reset", "sample,never",
                   "--views", "4", "--quick", "--json", str(file))  # fmt: skip
    assert "published" in output
    written = json.loads(file.read_text())
    assert [(row["case"]["reset"], row["case"]["buffer"]) for row in written["steps"]] == [
        ("sample", 0), ("sample", 3), ("never", 0), ("never", 3),
    ]  # fmt: skip
    for row in written["steps"]:
        assert row["ours"]["median"] > 0
        assert row["speedup"] == pytest.approx(row["reference"]["median"] / row["ours"]["median"])
    assert written["machine"]["torch"]


def test_what_cannot_be_measured_is_said() -> None:
    for wrong in (["step", "--classes", "many"], ["step", "--dtype", "fp8"]):
        with pytest.raises(SettingsError):
            runner.invoke(app, [*wrong, "--device", "cpu"], catch_exceptions=False)
