"""`taps token`: who may use a service."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taps.cli.options import StoreFiles, StorePlace, new_app

if TYPE_CHECKING:
    from taps.serve.tokens import Tokens

app = new_app(no_args_is_help=True)


@app.callback()
def token() -> None:
    """Make, list and revoke the tokens of a store. A running service takes notice within a second."""


@app.command()
def create(
    store: StorePlace,
    role: Annotated[list[str], typer.Option(help="predict, label or admin. May be repeated.")],
    name: Annotated[str, typer.Option(help="What it is for.")] = "",
    stream: Annotated[
        str | None, typer.Option(help="The only stream it is valid for; by default all.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days it is valid; by default until revoked.")] = None,
    files: StoreFiles = None,
) -> None:
    """Make a token and print it, this once. With the first one, everybody needs one."""
    seconds = None if days is None else days * 86400
    with _tokens(store, files) as tokens:
        made, secret = tokens.create(name or "/".join(role), tuple(role), stream=stream, seconds=seconds)
    print(f"Token {made.id}, shown this once:", file=sys.stderr)
    print(secret)


@app.command(name="list")
def list_tokens(store: StorePlace, files: StoreFiles = None) -> None:
    """Show the tokens, not their secrets."""
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "name", "roles", "stream", "made", "expires", "state")
    with _tokens(store, files, there=True) as tokens:
        found = tokens.list()
    for token in found:
        if token.parent is None:
            over = token.expires is not None and token.expires <= time.time()
            state = "revoked" if token.revoked else "expired" if over else "counts"
            table.add_row(
                token.id,
                token.name,
                token.roles,
                token.stream or "all",
                _day(token.created),
                _day(token.expires),
                state,
            )
    Console().print(table, markup=False)


@app.command()
def revoke(
    store: StorePlace,
    id: Annotated[str, typer.Argument(help="As `list` shows it.")],
    files: StoreFiles = None,
) -> None:
    """End a token, and the browser sessions opened with it."""
    with _tokens(store, files, there=True) as tokens:
        tokens.revoke(id)
    print(f"Token {id} counts no more.")


@contextmanager
def _tokens(store: str, files: Path | None, *, there: bool = False) -> Iterator[Tokens]:
    """The tokens of a store. The first ones may be made before a service is started; others are `there`."""
    from taps.serve.store import Store
    from taps.serve.tokens import Tokens

    with (Store.existing if there else Store)(store, files) as opened:
        yield Tokens(opened.open())


def _day(at: float | None) -> str:
    return "never" if at is None else time.strftime("%Y-%m-%d", time.localtime(at))
