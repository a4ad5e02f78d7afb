"""The command `taps`: one dict from command to the module that holds it, imported only when it is used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
import typer
from typer.core import TyperGroup

from taps.errors import TapsError

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module with a typer `app`, one line for `taps --help`)
    "data": ("taps.cli.data", "List data sets and check a copy of one before hours are spent on it."),
    "simulate": ("taps.cli.simulate", "Simulate the paper's two propositions."),
}


class LazyGroup(TyperGroup):
    """Imports a command's module when it is called, so that `taps --help` does not wait for torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


@app.callback()
def root() -> None:
    """TAPS: test-time active prompt learning for vision-language models on single-sample streams."""


def run() -> None:
    """Entry point. A mistake of the user's is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except TapsError as error:
        print(f"taps: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("taps: stopped.", file=sys.stderr)
        raise SystemExit(130) from None
