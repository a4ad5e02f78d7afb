"""Methods of one's own: docs/own-method.md as it stands, as a file, a module, and an installed package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from taps.errors import SettingsError
from taps.files import read_json, write_json
from taps.registry import PLUGINS, load_plugins

PAGE = (Path(__file__).parents[2] / "docs" / "own-method.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ taps (.*)$", PAGE, re.MULTILINE)
TAPS = "import sys; from taps.cli.main import run; sys.argv[0] = 'taps'; run()"
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """`taps` in a process of its own, in a folder that holds the page's file."""
    (tmp_path / "prototypes.py").write_text(CODE[0], encoding="utf-8")

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name != PLUGINS}
        return subprocess.run(
            [sys.executable, "-c", TAPS, *arguments],
            cwd=tmp_path,
            env={**clean, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **more},
            capture_output=True,
            text=True,
        )

    return call


def test_commands_of_the_page(call: Call, tmp_path: Path, pictures: Path) -> None:
    (tmp_path / "images").symlink_to(pictures)
    listed, ran, measured = (command.split() for command in COMMANDS)
    assert "pull" in call(*listed).stdout
    done = call(*ran, "--model", "tiny", "--limit", "4", "--json")
    assert json.loads(done.stdout)["method"] == "prototypes", done.stderr
    done = call("run", "--resume", "--limit", "6", "--json", "--plugin", "prototypes.py")
    assert (json.loads(done.stdout)["method"], json.loads(done.stdout)["n"]) == ("prototypes", 6), done.stderr
    [run] = (tmp_path / "runs").iterdir()
    done = call("predict", "images", "--learner", str(run), "--quiet", "--plugin", "prototypes.py")
    assert done.returncode == 0, done.stderr
    # Two worker processes, which start from nothing.
    done = call(*measured, "--model", "tiny", "--limit", "3", "--seeds", "1", "--no-baselines", "--json")
    assert {row["method"] for row in json.loads(done.stdout)} == {"prototypes", "zero_shot"}, done.stderr


def test_a_run_folder_runs_no_code(call: Call, tmp_path: Path, pictures: Path) -> None:
    """Whoever hands on a folder may name any file in it; only what is named on the command line is run."""
    (tmp_path / "images").symlink_to(pictures)
    own = ("--plugin", "prototypes.py", "--method", "prototypes", "--model", "tiny")
    assert call("run", "images", *own, "--limit", "4", "--out", "o").returncode == 0
    (tmp_path / "harm.py").write_text("open('harm', 'w')\n")
    for command in (("run", "--resume", "--out", "o"), ("predict", "images", "--learner", "o")):
        spec = read_json(tmp_path / "o" / "run.json")
        write_json(tmp_path / "o" / "run.json", spec | {"plugins": [str(tmp_path / "harm.py"), "harm"]})
        done = call(*command)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "'prototypes' of a plugin, which is code" in done.stderr
        assert "--plugin 'harm'" in done.stderr
        done = call(*command, "--plugin", "prototypes.py")
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "harm").exists()


def test_a_module_by_name_before_the_command_and_in_the_environment(call: Call) -> None:
    assert "prototypes" in json.loads(call("--plugin", "prototypes", "methods", "--json").stdout)
    assert "prototypes" in json.loads(call("methods", "--json", TAPS_PLUGINS="prototypes").stdout)
    assert "prototypes" not in json.loads(call("methods", "--json").stdout)


def test_an_installed_package_needs_no_option(call: Call, tmp_path: Path) -> None:
    site = tmp_path / "site"
    facts = site / "taps_prototypes-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "prototypes.py").write_text(CODE[0], encoding="utf-8")
    (site / "broken.py").write_text("import nothing_of_this_name\n")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: taps-prototypes\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[taps.methods]\nprototypes = prototypes\nbroken = broken\n")
    (tmp_path / "prototypes.py").unlink()
    paths = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    done = call("methods", "--json", PYTHONPATH=paths)
    assert "prototypes" in json.loads(done.stdout)
    assert "The plugin broken (broken) cannot be loaded: No module named" in done.stderr


def test_the_check_of_the_page_passes(call: Call, tmp_path: Path) -> None:
    code = f"import prototypes\n{CODE[1]}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "12 questions, 11 checks passed\n", done.stderr


def test_a_plugin_that_is_not_there_is_a_sentence(call: Call) -> None:
    done = call("methods", "--plugin", "nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("taps: The plugin 'nowhere' cannot be loaded (ModuleNotFoundError")
    assert len(done.stderr.splitlines()) == 1


def test_a_name_is_given_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(PLUGINS, raising=False)
    (tmp_path / "again.py").write_text(CODE[0].replace('"prototypes"', '"taps"'), encoding="utf-8")
    with pytest.raises(SettingsError, match="A method named 'taps' exists already"):
        load_plugins([str(tmp_path / "again.py")])
    assert PLUGINS not in os.environ
