"""Links to a labelling page, with tokens: one for its owner, one for phones and colleagues."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from rich.console import Console

    from taps.serve.service import Service

EVERYWHERE = ("0.0.0.0", "::")
DAYS = 7.0  # after which a link is void, also where the command was killed


@dataclass(frozen=True)
class Links:
    """What follows the address of the page: `#token=…`.

    Attributes:
        own: For the owner, who may do everything; empty while nobody needs a token.
        others: For those who may label; empty where no other machine reaches the page.
    """

    own: str = ""
    others: str = ""

    def show(self, console: Console, url: str, stream: str) -> str:
        """Print the addresses, with a QR code where there is room for one; returns the owner's."""
        path = f"/?stream={stream}"
        mine = f"{_with_host(url, '127.0.0.1')}{path}{self.own}"
        console.print(f"Label at {mine}", soft_wrap=True, highlight=False)
        if self.others:
            theirs = f"{reachable(url)}{path}{self.others}"
            console.print(f"Phones and colleagues: {theirs}", soft_wrap=True, highlight=False)
            show_code(console, theirs)
        return mine


@contextmanager
def linked(service: Service, stream: str, host: str) -> Iterator[Links]:
    """Make tokens for the links to a stream's page at a host, where any are needed; revoked at the end."""
    from taps.serve.connections import is_loopback
    from taps.serve.tokens import LINK, Tokens

    tokens, alone = Tokens(service.store), is_loopback(host)
    roles = [] if alone and not tokens.any() else ["admin"] if alone else ["admin", "label"]
    made = [tokens.create(LINK, (role,), stream=stream, seconds=86400 * DAYS) for role in roles]
    try:
        yield Links(*(f"#token={secret}" for _, secret in made))
    finally:
        for token, _ in made:
            tokens.revoke(token.id)


def reachable(url: str) -> str:
    """A URL as other machines know it.

    >>> reachable("http://192.168.1.20:8000")
    'http://192.168.1.20:8000'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried, suppress(OSError):
        tried.connect(("192.0.2.1", 9))  # nothing is sent: it says from which address that would be
        return _with_host(url, str(tried.getsockname()[0]))
    return _with_host(url, socket.gethostname())


def _with_host(url: str, host: str) -> str:
    """A URL with a host in the place of "all addresses"."""
    parts = urlsplit(url)
    return f"http://{host}:{parts.port}" if parts.hostname in EVERYWHERE else url


def show_code(console: Console, text: str) -> None:
    """Draw a QR code, where the terminal has room for it and segno is installed."""
    from rich.text import Text

    try:
        import segno
    except ModuleNotFoundError:  # the address is printed
        return
    drawn = io.StringIO()
    segno.make_qr(text, error="L").terminal(drawn, compact=True)
    code = drawn.getvalue().rstrip("\n")
    if console.is_terminal and console.width > code.index("\n"):
        # segno draws the light modules: they must be light in whatever colours the terminal has.
        console.print(Text(code, style="#ffffff on #000000"), soft_wrap=True)
