"""Options made of dataclasses: names, helps, defaults and what is typed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from taps.cli.options import attribute_docs, with_options
from taps.errors import SettingsError
from taps.streams.options import RunOptions
from taps.study.evaluate.options import Execution, Setup


@dataclass(frozen=True)
class Trip:
    """Where to.

    Attributes:
        towns: Towns, separated
            by commas.
        days: How long each.
        fast: Take the train.
        extras: Anything else.
    """

    towns: tuple[str, ...] = field(metadata={"flags": ("--towns", "--to")})
    days: tuple[int, ...] = (1, 2)
    fast: bool = True
    extras: dict[str, Any] = field(default_factory=dict, metadata={"flags": ("--set",)})


def typed(*args: str) -> tuple[Trip, str]:
    app = typer.Typer(add_completion=False)
    made: list[tuple[Trip, str]] = []

    @app.command()
    @with_options
    def go(trip: Trip, name: Annotated[str, typer.Option(help="Yours.")] = "Ann") -> None:
        """Go."""
        made.append((trip, name))

    result = CliRunner().invoke(app, args, catch_exceptions=False)
    if not made:
        raise typer.BadParameter(result.output)
    return made[0]


def test_fields_become_options() -> None:
    assert typed("--to", "Ulm, Bern") == (Trip(("Ulm", "Bern")), "Ann")
    trip, name = typed(
        "--towns", "Ulm", "--days", "3", "--no-fast", "--set", "a=1", "--set", "b=x", "--name", "B"
    )
    assert (trip, name) == (Trip(("Ulm",), (3,), False, {"a": 1, "b": "x"}), "B")
    with pytest.raises(SettingsError, match="--days has 1 twice"):
        typed("--to", "Ulm", "--days", "1,2,01")
    with pytest.raises(SettingsError, match="--days 'two'"):
        typed("--to", "Ulm", "--days", "two")
    with pytest.raises(typer.BadParameter, match="--towns"):
        typed()


def test_help_comes_from_the_docstring() -> None:
    with pytest.raises(typer.BadParameter) as shown:
        typed("--help")
    text = " ".join(str(shown.value).replace("│", " ").split())
    for said in ("Towns, separated by commas.", "1,2", "Take the train.", "Yours."):
        assert said in text


@pytest.mark.parametrize("group", [RunOptions, Setup, Execution])
def test_every_option_says_what_it_does(group: Any) -> None:
    assert all(len(said) > 5 for said in attribute_docs(group).values())
