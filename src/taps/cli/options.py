"""Options of commands: one option for each field of a dataclass, with the help of its docstring."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from taps.disk import check_free
from taps.errors import SettingsError
from taps.files import check_tensors_place
from taps.study.evaluate.options import check_distinct

LARGEST = 1e15  # number that an option may be


def new_app(**more: Any) -> typer.Typer:
    """A command, or a group of them, with plain help and nothing that typer would add by itself."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **more)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: typer sees the fields of each in its place.

    A field may say more in its metadata: `flags` (names of the option), `envvar`, `metavar`, `min`, `max`, or
    `argument` where it is none. Fields of type `tuple[str, ...]` and `tuple[int, ...]` are typed separated by
    commas, a `dict` as repeated name=value.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types, helps = get_type_hints(groups[name]), attribute_docs(groups[name])
            parameters += [
                _parameter(each, types[each.name], helps[each.name]) for each in fields(groups[name])
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, kind in groups.items():
            types = get_type_hints(kind)
            own = {item.name: values.pop(item.name) for item in fields(kind)}
            values[name] = kind(**{key: _parsed(key, value, types[key]) for key, value in own.items()})
        command(**values)

    del flat.__wrapped__  # type: ignore[attr-defined]
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def check_numbers(command: Any) -> None:
    """Let every option of a command, and of those in a group, refuse numbers that none of them can mean."""
    for each in getattr(command, "commands", {}).values():
        check_numbers(each)
    for parameter in command.params:
        if parameter.callback is None:
            parameter.callback = _checked


def _checked(context: Any, parameter: Any, value: Any) -> Any:
    if isinstance(value, int | float) and not 0 <= value <= LARGEST:  # neither is NaN
        raise SettingsError(
            f"{parameter.opts[0]} is {str(value)[:40]}; it must be a number from 0 to {LARGEST:g}."
        )
    return value


def _parameter(item: Field[Any], kind: Any, help: str) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty
    if item.default is not MISSING:
        default = item.default
    elif item.default_factory is not MISSING:
        default = item.default_factory()
    if get_origin(kind) is dict:
        kind, default = list[str], []
    elif get_origin(kind) is tuple:
        kind = str
        default = ",".join(map(str, default)) if isinstance(default, tuple) else default
    more: dict[str, Any] = {name: item.metadata.get(name) for name in ("envvar", "metavar", "min", "max")}
    made: Any = (
        typer.Argument(help=help)
        if item.metadata.get("argument")
        else typer.Option(*item.metadata.get("flags", ()), help=help, **more)
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(item.name, keyword, default=default, annotation=Annotated[kind, made])


def _parsed(name: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is dict:
        return parse_settings(value)
    if get_origin(kind) is tuple:
        return parse_numbers(f"--{name}", value) if int in kind.__args__ else parse_list(value)
    return value


def attribute_docs(group: Any) -> dict[str, str]:
    """What the section "Attributes" of a dataclass's docstring, or of its base's, says of each field."""
    texts = [inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2] for each in group.__mro__]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", "\n".join(reversed(texts)), re.MULTILINE)
    docs = {name: " ".join(text.split()) for name, text in found}
    return {item.name: docs[item.name] for item in fields(group)}


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs; a value is a number, a Python literal, or else the text itself.

    >>> parse_settings(["tau0=0.05", "reset=never", "layers=(0, 1)"])
    {'tau0': 0.05, 'reset': 'never', 'layers': (0, 1)}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise SettingsError(f"--set {pair!r} is not of the form name=value.")
        value: Any = text.strip()
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
        values[name.strip().replace("-", "_")] = value
    return values


def parse_list(text: str) -> tuple[str, ...]:
    """Things separated by commas.

    >>> parse_list("taps, tpt,taps")
    ('taps', 'tpt')
    """
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_numbers(flag: str, text: str) -> tuple[int, ...]:
    """Whole numbers of 0 or more, separated by commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise SettingsError(f"{flag} {text!r} is not a list of whole numbers such as 1,2,3.")
    numbers = tuple(map(int, parts))
    check_distinct(flag, numbers)
    return numbers


def fill_bare(args: Sequence[str], flag: str, value: str) -> list[str]:
    """The arguments, with a value behind a flag that has none.

    >>> fill_bare(["eval", "--ray", "--resume"], "--ray", "default")
    ['eval', '--ray', 'default', '--resume']
    """
    filled: list[str] = []
    for arg, following in zip(args, [*args[1:], "-"], strict=True):
        filled += [arg, value] if arg == flag and following.startswith("-") else [arg]
    return filled


def check_new(out: Path) -> None:
    """Refuse to overwrite something."""
    if os.path.lexists(out):
        raise SettingsError(f"{out} exists already; give another --out, or remove it.")


def unfinished_beside(out: Path, what: str, *, resume: bool) -> Path:
    """The file or folder beside `out` with the progress so far; one that is left over needs --resume."""
    check_new(out)
    unfinished = out.with_name(out.name + ".unfinished")
    if unfinished.exists() and not resume:
        raise SettingsError(
            f"{unfinished} holds an interrupted {what}; add --resume, or remove it to start anew."
        )
    if unfinished.is_dir():
        check_free(unfinished)
    else:
        check_tensors_place(unfinished)
    return unfinished
