"""The command `taps`: one dict from command to the module that holds it, imported only when it is used."""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Any

import typer
from typer.core import TyperGroup

import taps
from taps.cli.options import fill_bare
from taps.errors import TapsError
from taps.stream.threads import sleep_while_waiting

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module with a typer `app`, one line for `taps --help`)
    "demo": ("taps.cli.demo", "See it work, offline, in minutes: a bundled stream, and a report."),
    "run": ("taps.cli.run", "Stream a folder of images: predict, ask an expert now and then, learn."),
    "predict": ("taps.cli.predict", "Predict a folder of images into a CSV: no questions, in batches."),
    "watch": ("taps.cli.watch", "Predict images as they come into a folder."),
    "label": ("taps.cli.label", "Label a folder in the browser: you answer a few, the model does the rest."),
    "serve": ("taps.cli.serve", "Serve predictions over HTTP, and learn from the experts' answers."),
    "token": ("taps.cli.token", "Make, list and revoke the tokens of a service."),
    "doctor": ("taps.cli.doctor", "Check a service's store, and say what is wrong with it."),
    "recover": ("taps.cli.recover", "Make a damaged store usable again."),
    "backup": ("taps.cli.backup", "Copy a store while the service runs."),
    "models": ("taps.cli.models", "List the models that load, fetch one, or import a file of weights."),
    "methods": ("taps.cli.methods", "List the methods with one line each, or the settings of one."),
    "train": ("taps.cli.train", "Train prompts on a few images of each class."),
    "stats": ("taps.cli.stats", "Source statistics for alignment: collect them, merge them."),
    "prompts": ("taps.cli.prompts", "Look at trained prompts, or import public checkpoints."),
    "eval": ("taps.cli.eval", "Measure methods on streams: predict first, label afterwards."),
    "compare": ("taps.cli.compare", "Compare methods over data sets: a leaderboard with ranks and costs."),
    "report": ("taps.cli.report", "Tables, plots and comparisons from the results of an evaluation."),
    "ablate": ("taps.cli.ablate", "Repeat one of the paper's ablations."),
    "plan": ("taps.cli.plan", "What evaluations, statistics or many cameras take, from measured times."),
    "bench": ("taps.cli.bench", "Measure speed and memory here, beside the published way."),
    "data": ("taps.cli.data", "List data sets and check a copy of one before hours are spent on it."),
    "simulate": ("taps.cli.simulate", "Simulate the paper's two propositions."),
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
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        if cmd_name in TAKE_PLUGINS:
            command.params += [each for each in self.params if each.name == "plugin"]
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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
    except TapsError as error:
        print(f"taps: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in SERVE:
            raise
        print(f"taps: This command needs {error.name}: pip install 'taps-vlm[serve]'.", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        print(f"taps: {error.filename or 'A file'} cannot be {REFUSALS[error.errno]}.", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("taps: stopped.", file=sys.stderr)
        raise SystemExit(130) from None
