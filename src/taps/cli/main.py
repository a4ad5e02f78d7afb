"""The command `taps`: the module of each of its commands is imported when it is used."""

from __future__ import annotations

import errno
import importlib
import sys
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

import taps
from taps.cli.options import check_numbers, fill_bare, new_app
from taps.cli.panels import ALL, SHOWN, in_panels
from taps.errors import TapsError
from taps.process import keep_freed_memory, sleep_while_waiting

GROUPS = {  # sections of `taps --help`: each command and one line
    "Everyday": {
        "label": "Label a folder in the browser: you answer a few, the model does the rest.",
        "run": "Stream a folder of images: predict, ask an annotator now and then, learn.",
        "predict": "Predict a folder of images into a CSV: no questions, in batches.",
        "watch": "Predict images as they come into a folder.",
        "serve": "Serve predictions over HTTP, and learn from the annotators' answers.",
        "demo": "See it work, offline, in minutes: a bundled stream, and a report.",
    },
    "Research": {
        "eval": "Measure methods on streams: predict first, label afterwards.",
        "features": "Encode data sets once, for all evaluations that follow.",
        "compare": "Compare methods over data sets: a leaderboard with costs.",
        "report": "Tables, plots and comparisons from the results of an evaluation.",
        "train": "Train prompts on a few images of each class.",
        "stats": "Source statistics for alignment: collect them, merge them.",
        "paper": "Repeat the paper: its tables and ablations beside its numbers.",
        "bench": "Measure the step's speed and memory here, beside the published way.",
    },
    "Service": {
        "token": "Make, list and revoke the tokens of a service.",
        "backup": "Copy a store while the service runs.",
        "doctor": "Check a service's store, and say what is wrong with it.",
        "recover": "Make a damaged store usable again.",
    },
    "Look up": {
        "methods": "List the methods with one line each, or the settings of one.",
        "models": "List the models that load, fetch one, or import a file of weights.",
        "data": "List data sets, or check a copy of one.",
        "prompts": "Look at trained prompts, or import public checkpoints.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
WIDEST = max(map(len, COMMANDS))
# Modules below taps.cli with several commands; the others have the name of their one command.
MODULES = {
    **{"watch": "predict", "stats": "train", "compare": "eval", "report": "eval"},
    **dict.fromkeys(GROUPS["Service"], "store"),
    **dict.fromkeys(GROUPS["Look up"], "lookup"),
}
# These commands take methods or families, and so modules with some of one's own.
TAKE_PLUGINS = {
    *("demo", "run", "predict", "watch", "label", "train"),
    *("methods", "eval", "compare", "report", "serve"),
}
ENCODE = {"run", "predict", "label"}  # image after image, as fast as they can

REFUSALS = {
    errno.ENOSPC: "written: the disk is full",
    errno.EDQUOT: "written: the disk is full",
    errno.EROFS: "written: the file system is read-only",
    errno.EACCES: "opened: permission denied",
    errno.ENAMETOOLONG: "opened: the name is too long",
}
EXTRAS = {  # which extra brings a package
    **dict.fromkeys(("fastapi", "sqlalchemy", "starlette", "uvicorn"), "label"),
    "httpx": "serve",
}


def load_plugins(names: list[str] | None) -> None:
    if names:
        from taps.registry import load_plugins

        load_plugins(names)


def load_command(name: str) -> Any:
    """A command as click has it."""
    module = importlib.import_module(f"taps.cli.{MODULES.get(name, name)}")
    command: Any = typer.main.get_command(module.app)
    command = getattr(command, "commands", {}).get(name, command)
    command.name = name
    check_numbers(command)
    return in_panels(command)


class LazyGroup(TyperGroup):
    """Imports a command's module when it is called, so that `taps --help` does not wait for torch."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[SHOWN] = ALL in args
        return super().parse_args(ctx, fill_bare(args, "--ray", "default"))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            if meant := get_close_matches(cmd_name, COMMANDS, 1):
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {meant[0]!r}?")
            return None
        command = load_command(cmd_name)
        if cmd_name in TAKE_PLUGINS:
            command.params += [each for each in self.params if each.name == "plugin"]
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(WIDEST), line) for name, line in group.items()])


app = new_app(cls=LazyGroup, no_args_is_help=True)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"taps {taps.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=show_version, is_eager=True, help="Show the version."
    ),
    plugin: list[str] | None = typer.Option(
        None,
        metavar="MODULE",
        callback=load_plugins,
        expose_value=False,
        help="A module, or a .py file, with methods, families or annotators of your own; may be repeated.",
    ),
) -> None:
    """TAPS: test-time active prompt learning for vision-language models on single-sample streams."""


def run(command: typer.Typer | None = None) -> None:
    """Run `taps`, or the command of a script. A mistake of the user's is one sentence and exit code 2."""
    sleep_while_waiting()
    if sys.argv[1:2] and sys.argv[1] in ENCODE:
        keep_freed_memory()
    try:
        (command or app)()
    except KeyboardInterrupt:
        print("taps: stopped.", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        sentence = user_error(error)
        if sentence is None:
            raise
        print(f"taps: {sentence}", file=sys.stderr)
        raise SystemExit(2) from None


def lacking(package: str) -> str | None:
    """Which extra to install for a package that is missing; `taps serve` needs all of its own anyway."""
    extra = "serve" if package in EXTRAS and "serve" in sys.argv[1:2] else EXTRAS.get(package)
    return extra and f"This command needs {package}: pip install 'taps-vlm[{extra}]'."


def user_error(error: Exception) -> str | None:
    """The sentence for the user; None where the error is not the user's mistake."""
    if isinstance(error, TapsError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return lacking((error.name or "").partition(".")[0])
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return f"{error.filename or 'A file'} cannot be {REFUSALS[error.errno]}."
    return None
