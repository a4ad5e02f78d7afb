"""`taps token`, `backup`, `doctor` and `recover`: the store of a service."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taps.cli.options import new_app

if TYPE_CHECKING:
    from taps.serve.tokens import Tokens

app = new_app()
token = new_app(no_args_is_help=True)
app.add_typer(token, name="token")

Place = Annotated[str, typer.Argument(help="The store: a folder, or postgresql://…")]
Files = Annotated[Path | None, typer.Option(help="Folder of images beside a PostgreSQL store.")]


@app.command()
def backup(
    store: Place,
    place: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    files: Files = None,
) -> None:
    """Copy a store while the service runs; the copy is a store of its own (`taps serve --store PLACE`)."""
    from taps.serve.backup import backup as copy
    from taps.serve.store import Store

    with Store.existing(store, files) as opened:
        copy(opened, place)
    print(f"The copy in {place} is whole.")


@app.command()
def doctor(store: Place, files: Files = None) -> None:
    """Check the tables, the logs, every snapshot and every image; say what is wrong and what to do.

    Changes nothing, and may be run beside a running service. Exits with 1 where something is wrong.
    """
    from taps.serve.doctor import examine
    from taps.serve.store import Store

    with Store.existing(store, files) as opened:
        findings = list(examine(opened))
    for finding in findings:
        print(finding.sentence if finding.bad else f"(Good to know: {finding.sentence})")
    if any(finding.bad for finding in findings):
        raise typer.Exit(1)
    print("Everything acknowledged is there, and whole.")


@app.command()
def recover(
    store: Place,
    files: Files = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Continue with an old copy of the folder; what it lacks is lost.")
    ] = False,
) -> None:
    """Set damaged snapshots aside and give up images that are lost, so that the service can go on.

    After a crash nothing needs to be done: `taps serve` recovers by itself. This is for damaged files, when
    there is no backup to put them back from. The service must not be running.
    """
    from taps.serve.doctor import recover as repair
    from taps.serve.service import hold
    from taps.serve.store import Store

    with Store.existing(store, files) as opened, hold(opened):
        opened.pairing.check(copies=yes)
        done = list(repair(opened))
        opened.pairing.mark()
    for sentence in done or ["There was nothing to repair."]:
        print(sentence)


@token.callback()
def tokens() -> None:
    """Make, list and revoke the tokens of a store. A running service takes notice within a second."""


@token.command()
def create(
    store: Place,
    role: Annotated[list[str], typer.Option(help="predict, label or admin. May be repeated.")],
    name: Annotated[str, typer.Option(help="What it is for.")] = "",
    stream: Annotated[
        str | None, typer.Option(help="The only stream it is valid for; by default all.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days it is valid; by default until revoked.")] = None,
    files: Files = None,
) -> None:
    """Make a token and print it, this once. With the first one, everybody needs one."""
    from taps.serve.tokens import check_new

    roles = tuple(dict.fromkeys(role))
    name, seconds = name or "/".join(roles), None if days is None else days * 86400
    check_new(name, roles, seconds)  # before a store is made
    with _tokens(store, files, new=stream is None) as tokens:
        made, secret = tokens.create(name, roles, stream=stream, seconds=seconds)
    print(f"Token {made.id}, shown this once:", file=sys.stderr)
    print(secret)


@token.command(name="list")
def list_tokens(store: Place, files: Files = None) -> None:
    """Show the tokens, not their secrets."""
    from rich.console import Console
    from rich.table import Table

    from taps.plain_names import seen_letters

    table = Table("id", "name", "roles", "stream", "made", "expires", "state")
    with _tokens(store, files) as tokens:
        found = [each for each in tokens.list() if each.parent is None]
    for each in found:
        over = each.expires is not None and each.expires <= time.time()
        state = "revoked" if each.revoked else "expired" if over else "active"
        dates = _day(each.created), _day(each.expires)
        table.add_row(each.id, seen_letters(each.name), each.roles, each.stream or "all", *dates, state)
    Console().print(table, markup=False)


@token.command()
def revoke(
    store: Place,
    id: Annotated[str, typer.Argument(help="As `list` shows it.")],
    files: Files = None,
) -> None:
    """End a token, and the browser sessions opened with it."""
    with _tokens(store, files) as tokens:
        tokens.revoke(id)
    print(f"Token {id} counts no more.")


@contextmanager
def _tokens(store: str, files: Path | None, *, new: bool = False) -> Iterator[Tokens]:
    """The tokens of a store, which a service may be using; `new`: made where no service has made it yet."""
    from taps.serve.guards import is_store
    from taps.serve.service import hold
    from taps.serve.store import Store
    from taps.serve.tokens import Tokens

    if not new or is_store(files or Path(store)):
        with Store.existing(store, files) as opened:
            yield Tokens(opened.visit())
        return
    with Store(store, files) as opened:
        opened.pairing.check()  # before a folder is made
        with hold(opened):
            tokens = Tokens(opened.open())
            print(f"A new store was made in {opened.files}, for there was none.", file=sys.stderr)
            yield tokens


def _day(at: float | None) -> str:
    try:
        return "never" if at is None else time.strftime("%Y-%m-%d", time.localtime(at))
    except (OverflowError, ValueError, OSError):  # earlier versions took any number of days
        return "never"
