"""The command itself."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import taps
from taps.cli import main, panels

ROOT = Path(__file__).parents[2]
GROUP = get_command(main.app)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_module_and_version(arguments):
    out = subprocess.run(
        [sys.executable, "-m", "taps", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert (f"taps {taps.__version__}" in out) == (arguments == ["--version"])
    assert ("demo" in out) == (arguments == ["--help"])


def test_help_has_every_command_once_in_groups_and_the_everyday_ones_first():
    shown = CliRunner().invoke(main.app, ["--help"], prog_name="taps").output
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert titles == ["Options", "Everyday", "Research", "Service", "Look up"]
    listed = re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE)
    apps = {path.stem for path in Path(main.__file__).parent.glob("*.py") if "\napp = " in path.read_text()}
    assert len(listed) == len(set(listed))
    assert {main.MODULES.get(name, name) for name in listed} == apps - {"main"}


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_help_of_every_command_looks_alike(name):
    shown = CliRunner().invoke(main.app, [name, "--help"], prog_name="taps", catch_exceptions=False).output
    assert shown.startswith(f"Usage: taps {name} ")
    assert "--install-completion" not in shown


def help_of(name, flag):
    """The options that a command's help shows, each by its first long name."""
    shown = CliRunner().invoke(main.app, [name, flag], prog_name="taps", catch_exceptions=False).output
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE), shown


@pytest.mark.parametrize("name", ["demo", *panels.FIRST])
def test_an_everyday_command_shows_a_few_options_first(name):
    assert len(help_of(name, "--help")[0]) <= 12


@pytest.mark.parametrize("name", panels.FIRST)
def test_every_option_of_a_command_is_shown_once_on_demand(name):
    first, shown = help_of(name, "--help")
    everything, panelled = help_of(name, panels.ALL)
    command = GROUP.get_command(None, name)
    options = [each.opts for each in command.params if each.param_type_name == "option"]
    assert len(everything) == len(set(everything)) == len(options) + 1  # and --help itself
    assert everything[: len(first)] == first
    assert f"{len(everything) - len(first)} other options" in shown
    assert "Model and class texts:" in panelled


def test_the_panels_name_only_options_that_exist():
    commands = {name: GROUP.get_command(None, name) for name in panels.FIRST}
    known = {
        name: {flag for each in command.params for flag in each.opts} for name, command in commands.items()
    }
    for name, first in panels.FIRST.items():
        assert {f"--{each}" for each in first.split()} <= known[name]
    assert {f"--{each}" for names in panels.PANELS.values() for each in names.split()} <= set().union(
        *known.values()
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("predcit", "No such command 'predcit'. Did you mean 'predict'?"),
        ("xyz", "No such command 'xyz'."),
    ],
)
def test_a_mistyped_command_is_told_the_one_that_was_meant(typed, said):
    shown = CliRunner().invoke(main.app, [typed, "photos"], prog_name="taps")
    assert shown.exit_code == 2
    assert shown.stderr.splitlines()[-1] == f"Error: {said}"


def test_one_version_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    newest = re.search(r"^## (\d[\d.]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert cited == newest == taps.__version__


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "out/plots cannot be written: the disk is full."),
        (errno.EROFS, "out/plots cannot be written: the file system is read-only."),
        (errno.EACCES, "out/plots cannot be opened: permission denied."),
    ],
)
def test_a_file_that_the_system_refuses_is_a_sentence(monkeypatch, capsys, number, said):
    def refused():
        raise OSError(number, os.strerror(number), "out/plots")

    monkeypatch.setattr(main, "app", refused)
    with pytest.raises(SystemExit) as stopped:
        main.run()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"taps: {said}\n"


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("fastapi", ["label", "."], "label"),
        ("sqlalchemy", ["demo", "--serve"], "label"),
        ("sqlalchemy", ["predict", ".", "--learner", "."], "label"),
        ("sqlalchemy", ["doctor", "."], "label"),
        ("fastapi", ["serve"], "serve"),
        ("sqlalchemy", ["serve"], "serve"),
        ("httpx", ["serve", "--label-studio", "http://127.0.0.1:1"], "serve"),
        ("psycopg", ["serve", "--store", "postgresql://localhost/none", "--files", "files"], "postgres"),
    ],
)
def test_a_package_that_is_not_there_is_a_sentence_with_its_extra(missing, command, extra, tmp_path):
    without = f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {command!r}; "
    done = subprocess.run(
        [sys.executable, "-c", without + "from taps.cli.main import run; run()"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert missing in line
    assert line.endswith(f"pip install 'taps-vlm[{extra}]'.")
