"""Bearer tokens: created once, shown once, stored hashed, checked at every request.

A token is 256 random bits, so one SHA-256 of it cannot be turned back and no salt or stretching is needed.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, insert, select, update

from taps.data.names import shown
from taps.errors import SettingsError
from taps.plain_names import plain_name
from taps.serve import tables as t
from taps.serve.checksums import digest_of, seal
from taps.serve.errors import NotFoundError, SignInError, StoreDownError
from taps.serve.store import Store

ROLES = ("predict", "label", "admin")
PREFIX = "taps_"
FRESH = 1.0  # seconds a list of tokens is good for: a revocation counts after so long, at most
SESSION = 12 * 3600.0  # seconds a browser stays signed in
LONGEST = 1e9  # seconds a token is valid, at most: 31 years
NAME = 64  # characters of a name: it stands in the log with each answer
LINK = "link"  # the name of a token that several people share: each signs in with a name of his own


@dataclass(frozen=True)
class Token:
    """What is on record of a token; not the token itself.

    Attributes:
        id: Names it in lists, logs and records.
        name: What it is for, in its creator's words.
        roles: Out of predict, label, admin, separated by commas; admin may do everything.
        stream: The one stream it is for; None for every stream.
        parent: For a browser's session: the token it was opened with.
    """

    id: str
    name: str
    hash: str
    roles: str
    stream: str | None
    parent: str | None
    created: float
    expires: float | None
    revoked: float | None

    @property
    def share(self) -> str:
        """Whose share of requests and uploads it uses: a session uses that of its token."""
        return self.parent or self.id

    @property
    def annotator(self) -> str:
        """The name that answers carry; empty while there are no tokens."""
        return "" if self is ANYBODY else self.name

    def may(self, role: str, stream: str | None) -> bool:
        """Whether it allows a role for a stream; None asks for what concerns all streams."""
        allowed = role in self.roles.split(",") or "admin" in self.roles.split(",")
        return allowed and (self.stream is None or self.stream == stream)


ANYBODY = Token("local", "anybody on this machine", "", "admin", None, None, 0.0, None, None)
"""The caller while no token was ever made; the service then listens on loopback alone."""


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_of(secret: str) -> str:
    """The CSRF token of a session: follows from its secret and does not reveal it."""
    return digest(f"csrf:{secret}")


def check_new(name: str, roles: tuple[str, ...], seconds: float | None) -> None:
    """Refuse a token that cannot be made."""
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise SettingsError(f"A token's roles are some of {', '.join(ROLES)}; not {', '.join(unknown)!r}.")
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise SettingsError(
            f"A token is valid for more than 0 seconds and up to {LONGEST / 86400:,.0f} days, not "
            f"{seconds / 86400:,.0f} days; leave the time out for one that is valid until it is revoked."
        )
    if len(plain_name(name)) > NAME:
        raise SettingsError(
            f"A token's name has up to {NAME} characters, not {len(name)}; give a shorter one."
        )


class Tokens:
    """The tokens of a store. While the database cannot be read, those read last stay active."""

    def __init__(self, store: Store, fresh: float = FRESH) -> None:
        self.store, self.fresh = store, fresh
        self._known: dict[str, Token] = {}  # by hash
        self._closed = False  # once a token was made everybody needs one, whatever the table says later
        self._revoked: set[str] = set()  # ids; a session whose token is among them is over, too
        self._read_at = -float("inf")
        self._lock = threading.Lock()

    def create(
        self,
        name: str,
        roles: tuple[str, ...],
        *,
        stream: str | None = None,
        seconds: float | None = None,
        parent: str | None = None,
        who: str = "console",
    ) -> tuple[Token, str]:
        """A new token and its secret, which is stored nowhere."""
        check_new(name, roles, seconds)
        secret, now = PREFIX + secrets.token_urlsafe(32), time.time()
        ends = None if seconds is None else now + seconds
        words = ",".join(dict.fromkeys(roles))
        token = Token(secrets.token_hex(6), name, digest(secret), words, stream, parent, now, ends, None)
        with self.store.audited(who, "sign in" if parent else "create token", token.id) as connection:
            if stream is not None and parent is None:
                _check_stream(connection, stream)
            row = asdict(token)
            connection.execute(insert(t.tokens).values(**row, digest=digest_of(t.tokens, row)))
        self._forget()
        return token, secret

    def revoke(self, id: str, who: str = "console") -> None:
        """End a token, and the sessions that were opened with it."""
        with self.store.audited(who, "revoke token", id) as connection:
            mine = (t.tokens.c.id == id, t.tokens.c.revoked.is_(None))
            if not connection.execute(update(t.tokens).where(*mine).values(revoked=time.time())).rowcount:
                raise NotFoundError(f"No active token has the id {id!r}.")
            seal(connection, t.tokens, t.tokens.c.id == id)
        self._forget()

    def list(self) -> list[Token]:
        columns = [t.tokens.c[field.name] for field in fields(Token)]
        with self.store.database.read() as connection:
            return [Token(*row) for row in connection.execute(select(*columns).order_by(t.tokens.c.created))]

    def any(self) -> bool:
        """Whether a token was ever made: then everybody needs one."""
        self.refresh()
        return self._closed

    def check(self, secret: str) -> Token:
        """The active token with this secret; else raises `SignInError`."""
        self.refresh()
        token = self._known.get(digest(secret))
        if token is None or not self.counts(token):
            raise SignInError("This token is not known, was revoked or has expired; ask for another.")
        return token

    def counts(self, token: Token) -> bool:
        """Whether a token is active, by the tokens as they were last read."""
        if token is ANYBODY:
            return not self._closed
        over = token.expires is not None and token.expires <= time.time()
        return not over and not {token.id, token.parent} & self._revoked

    @property
    def stale(self) -> bool:
        """Whether `refresh` would read the database."""
        return time.monotonic() - self._read_at >= self.fresh

    def refresh(self) -> None:
        if not self.stale:
            return
        with self._lock:
            if not self.stale:  # another thread has read them meanwhile
                return
            try:
                found = self.list()
                self._closed = self._closed or bool(found) or self._ever_made()
                self._known = {token.hash: token for token in found}
                self._revoked = {token.id for token in found if token.revoked is not None}
            except StoreDownError:
                if self._read_at == -float("inf") and not self._known:
                    raise
            self._read_at = time.monotonic()

    def _ever_made(self) -> bool:
        """Whether the audit knows of a token, though the table of tokens may have been emptied."""
        made = select(t.audit.c.id).where(t.audit.c.action == "create token").limit(1)
        with self.store.database.read() as connection:
            return connection.scalar(made) is not None

    def _forget(self) -> None:
        """Have the next request read the tokens; the lock waits for a reading that has begun before."""
        with self._lock:
            self._read_at = -float("inf")


def _check_stream(connection: Connection, name: str) -> None:
    there = connection.scalars(select(t.streams.c.name).order_by(t.streams.c.id)).all()
    if name not in there:
        known = shown(there) or "none yet"
        raise SettingsError(f"No stream is named {name!r}; the store has: {known}.")
