"""The command `taps`: each of its commands is a module of this room, imported only when it is used."""

from __future__ import annotations

import errno
import importlib
import sys
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

import taps
from taps.cli.options import fill_bare, new_app
from taps.errors import TapsError
from taps.stream.threads import sleep_while_waiting

COMMANDS = {  # name, and the module below taps.cli: one line for `taps --help`
    "demo": "See it work, offline, in minutes: a bundled stream, and a report.",
    "run": "Stream a folder of images: predict, ask an expert now and then, learn.",
    "predict": "Predict a folder of images into a CSV: no questions, in batches.",
    "watch": "Predict images as they come into a folder.",
    "label": "Label a folder in the browser: you answer a few, the model does the rest.",
    "serve": "Serve predictions over HTTP, and learn from the experts' answers.",
    "token": "Make, list and revoke the tokens of a service.",
    "doctor": "Check a service's store, and say what is wrong with it.",
    "recover": "Make a damaged store usable again.",
    "backup": "Copy a store while the service runs.",
    "models": "List the models that load, fetch one, or import a file of weights.",
    "methods": "List the methods with one line each, or the settings of one.",
    "train": "Train prompts on a few images of each class.",
    "stats": "Source statistics for alignment: collect them, merge them.",
    "prompts": "Look at trained prompts, or import public checkpoints.",
    "eval": "Measure methods on streams: predict first, label afterwards.",
    "compare": "Compare methods over data sets: a leaderboard with ranks and costs.",
    "report": "Tables, plots and comparisons from the results of an evaluation.",
    "ablate": "Repeat one of the paper's ablations.",
    "plan": "What evaluations, statistics or many cameras take, from measured times.",
    "bench": "Measure speed and memory here, beside the published way.",
    "data": "List data sets and check a copy of one before hours are spent on it.",
    "simulate": "Simulate the paper's two propositions.",
}

REFUSALS = {
    errno.ENOSPC: "written: the disk is full",
    errno.EDQUOT: "written: the disk is full",
    errno.EROFS: "written: the file system is read-only",
    errno.EACCES: "opened: permission denied",
}
SERVE = {"alembic", "fastapi", "httpx", "psycopg", "python_multipart", "sqlalchemy", "starlette", "uvicorn"}
# They take methods, so they take modules with methods of one's own.
TAKE_PLUGINS = {"demo", "run", "methods", "eval", "compare", "ablate", "bench", "serve", "label"}


def load_plugins(names: list[str] | None) -> None:
    if names:
        from taps.methods.registry import load_plugins

        load_plugins(names)


class LazyGroup(TyperGroup):
    """Imports a command's module when it is called, so that `taps --help` does not wait for torch."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, fill_bare(args, "--ray", "default"))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            if meant := get_close_matches(cmd_name, COMMANDS, 1):
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {meant[0]!r}?")
            return None
        module = importlib.import_module(f"taps.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        if cmd_name in TAKE_PLUGINS:
            command.params += [each for each in self.params if each.name == "plugin"]
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = new_app(cls=LazyGroup, no_args_is_help=True)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"taps {taps.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Show it."),
    plugin: list[str] | None = typer.Option(
        None,
        metavar="MODULE",
        callback=load_plugins,
        expose_value=False,
        help="A module, or a .py file, that registers methods of your own; may be repeated.",
    ),
) -> None:
    """TAPS: test-time active prompt learning for vision-language models on single-sample streams."""


def run() -> None:
    """Entry point. A mistake of the user's is one sentence and exit code 2, never a traceback."""
    sleep_while_waiting()
    try:
        app()
    except KeyboardInterrupt:
        print("taps: stopped.", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        sentence = said(error)
        if sentence is None:
            raise
        print(f"taps: {sentence}", file=sys.stderr)
        raise SystemExit(2) from None


def said(error: Exception) -> str | None:
    """What to tell the user; None where it is no mistake of the user's."""
    if isinstance(error, TapsError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in SERVE:
        return f"This command needs {error.name}: pip install 'taps-vlm[serve]'."
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return f"{error.filename or 'A file'} cannot be {REFUSALS[error.errno]}."
    return None
