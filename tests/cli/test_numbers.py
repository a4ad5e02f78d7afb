"""Numbers on the command line that no option can mean end in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taps.cli import main
from taps.errors import TapsError

WRONG = ("nan", "inf", "-inf", "-1", "1e308", "1" + "0" * 400)


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands of a group, or the one there is, with the words that call it."""
    inner = getattr(command, "commands", {})
    for name, each in inner.items():
        yield from commands(each, (*path, name))
    if not inner:
        yield path, command


ALL = {
    words: command for name in main.COMMANDS for words, command in commands(main.load_command(name), (name,))
}


def is_number(parameter: Any) -> bool:
    """Whether a parameter of a command is one."""
    kind = str(getattr(parameter, "type_descriptor", None) or parameter.type)
    return re.search(r"<class '(int|float)'>", kind) is not None


def say(words: tuple[str, ...], command: Any, flag: str, value: str, place: Path) -> str:
    """What a command says to one value of an option; all that it needs besides is not there."""
    needed = [str(place / "nowhere") for each in command.params if each.param_type_name == "argument"]
    for each in command.params:
        if each.required and each.param_type_name == "option" and flag not in each.opts:
            needed += [each.opts[0], str(place / "nothing")]
    done = CliRunner().invoke(main.app, [*words, *needed, f"{flag}={value}"], prog_name="taps")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, TapsError), (words, flag, value, done.exception)
        return str(done.exception)
    assert done.exit_code == 2, (words, flag, value, done.output)
    return done.stderr


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_number_of_every_command_is_finite_and_in_its_range(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ALL[words]
    for each in command.params:
        if not is_number(each):
            continue
        flag = each.opts[0]
        for value in WRONG:
            assert flag in say(words, command, flag, value, tmp_path), (words, flag, value)


def test_commands_have_numbers_at_all() -> None:
    numbers = [each.opts[0] for command in ALL.values() for each in command.params if is_number(each)]
    assert {"--seed", "--sure", "--port", "--rate", "--days", "--minutes"} <= set(numbers)
    assert len(numbers) > 40
