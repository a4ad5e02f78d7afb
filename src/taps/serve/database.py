"""SQLite in a folder, or PostgreSQL by URL: connections, transactions, the right to write."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from taps import disk
from taps.disk import sync_folder
from taps.errors import StateError
from taps.files import sha256_of, write_durably
from taps.serve.errors import StoreDownError

FILE = "store.sqlite"
LEFT = f"{FILE}.sha256"  # the file's checksum, from a clean stop until the next write
PATIENCE = 5  # seconds for a lock, a connection, a server that does not answer
GONE = 3  # seconds until the server has noticed that an earlier process was killed
SURE = 1.0  # seconds for which a claim that was checked is taken to hold
# One service for each schema of a database, for each has tables of its own.
CLAIM = "SELECT pg_try_advisory_lock(hashtext('taps ' || coalesce(current_schema(), '')))"
LAST_START = "SELECT value FROM meta WHERE name = 'start'"
# So the server notices within a minute, and not after hours, that a machine is gone.
KEEPALIVE = [f"SET tcp_keepalives_{name}" for name in ("idle = 30", "interval = 10", "count = 3")]


def database_url(place: str) -> URL:
    """The URL of the tables: PostgreSQL's as it is given, or that of SQLite's file in a folder."""
    if "://" not in place:
        return URL.create("sqlite", database=str(Path(place) / FILE))
    try:
        url = make_url(place)
    except ArgumentError as error:
        raise StateError(f"The store's URL cannot be read ({error}).") from None
    if url.get_backend_name() != "postgresql":
        raise StateError(
            f"A store at {url.get_backend_name()}:// is not known; give a folder or postgresql://…"
        )
    return url.set(drivername="postgresql+psycopg")


class Database:
    """Transactions on one database, given by the result of `database_url`."""

    def __init__(self, url: URL) -> None:
        self.url, self.file = url, Path(url.database or "")
        self.sqlite = url.get_backend_name() == "sqlite"
        self.engine = _sqlite(url) if self.sqlite else _postgresql(url)
        self._writing = self.engine.execution_options(begin="BEGIN IMMEDIATE")
        # SQLite has one writer at a time: waiting for a lock here is fairer than polling the file.
        self._writer = threading.Lock() if self.sqlite else nullcontext()
        self._claim: Claim | None = None
        self.check: Callable[[], None] = lambda: None  # raises where nothing may be written
        self._open: PoolProxiedConnection | None = None
        self.start: str | None = None  # the mark of the service's start, as the database must have it
        self._left = self.file.with_name(LEFT) if self.sqlite else None

    def exists(self) -> bool:
        """Whether SQLite's file exists and is not empty; always true of PostgreSQL."""
        return not self.sqlite or (self.file.is_file() and self.file.stat().st_size > 0)

    def log_alone(self) -> bool:
        """Whether SQLite's write-ahead log is there without its database; SQLite would delete it."""
        return not self.exists() and Path(f"{self.file}-wal").is_file()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Be the only service that writes to it; for SQLite the lock of its folder sees to that."""
        if self.sqlite:
            yield
            return
        with closing(Claim(self)) as claim:
            with self._explained():
                claim.take(GONE)
            self._claim = claim
            yield

    def hold_files(self) -> list[Path]:
        """Keep SQLite's files open, so that it removes none of them by itself; their paths."""
        if not self.sqlite:
            return []
        self._open = self.engine.raw_connection()
        self._open.cursor().execute("SELECT count(*) FROM meta").fetchall()
        return [self.file, Path(f"{self.file}-wal"), Path(f"{self.file}-shm")]

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is on the disk when the block ends without an error."""
        with self._writer, self._explained():
            self.check()
            if self._left and self._left.is_file():  # from the first write on, the file is another one
                disk.remove(self._left)
                sync_folder(self._left.parent)
            if self._claim is not None:
                self._claim.check()
            with self._writing.begin() as connection:
                yield connection
            self.check()  # a commit to a file that was deleted meanwhile is lost

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._explained(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def read_all(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database however long it takes."""
        level = {} if self.sqlite else {"isolation_level": "REPEATABLE READ"}
        engine = self.engine.execution_options(**level)
        with self._explained(), engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what a driver raises when the database is out of reach into one sentence and 503."""
        try:
            yield
        except IntegrityError:
            raise  # the database is well; the request is not
        except (SQLAlchemyError, OSError) as error:
            cause = error.orig or error if isinstance(error, DBAPIError) else error
            reason = " ".join(str(cause).split()).rstrip(".") or type(cause).__name__
            url = self.url.render_as_string(hide_password=True)
            raise StoreDownError(f"The store ({url}) cannot be used now: {reason}.", retry_after=1) from error

    def structure(self) -> list[str]:
        """What SQLite finds wrong with its pages and indexes."""
        if not self.sqlite:
            return []
        with self.read() as connection:
            found = connection.execute(text("PRAGMA integrity_check")).scalars().all()
        return [] if found == ["ok"] else [f"SQLite says: {found[0]}."]

    def leave(self) -> None:
        """Note the closed file's checksum: so a flipped bit is found even where no row has it."""
        if self._left and self.exists() and not Path(f"{self.file}-wal").exists():
            with suppress(StateError):  # the folder has lost its identity
                write_durably(self._left, f"{sha256_of(self.file)}  {FILE}\n".encode())

    def unlike_left(self) -> list[str]:
        """A sentence where the file is not the one that a clean stop left."""
        if not self._left or not self._left.is_file():
            return []
        # Whoever closes a file loses the locks of its process on it, those of SQLite's connections, too:
        # the next program to close the database would take itself for the last one, and delete its log.
        self.engine.dispose()
        noted = self._left.read_text(errors="replace").split()[:1]
        return (
            []
            if noted == [sha256_of(self.file)]
            else [f"The file {self.file} has changed since the service was stopped."]
        )

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self.check, self.start = lambda: None, None  # a store may be opened again
        self.engine.dispose()


class Claim:
    """The right to write to a PostgreSQL database: an advisory lock, held while one connection lives.

    A killed service loses it with its connection. A service that loses its connection takes the lock again
    before its next write, unless another has it. In the second that may pass unnoticed, the log's numbers,
    each of which can be given once, keep two services apart.
    """

    def __init__(self, database: Database) -> None:
        self._database, self._lock = database, threading.Lock()
        self._connection: Connection | None = None
        self._seen = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def take(self, patience: float = 0.0) -> None:
        """Take the lock; raises where another service keeps it for longer than `patience` seconds."""
        end = time.monotonic() + patience
        connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # when closed it does not return to the pool, and the server frees the lock
        name, start = self._database.url.database, self._database.start
        try:
            for line in KEEPALIVE:
                connection.execute(text(line))
            while not connection.scalar(text(CLAIM)):
                if time.monotonic() >= end:
                    raise StoreDownError(
                        f"Another service uses the database {name!r}; stop it, or give another --store.",
                        retry_after=1,
                    )
                time.sleep(0.1)
            found = str(connection.scalar(text(LAST_START))) if start else start
            if found != start:
                raise StoreDownError(
                    f"Another service took the database {name!r} over, with the files in "
                    f"{str(found).partition(' ')[2]}; what was recorded since is there. Stop this service.",
                    retry_after=1,
                )
        except BaseException:
            connection.close()
            raise
        self._connection, self._seen = connection, time.monotonic()

    def check(self) -> None:
        """See that the lock is still held, or take it again."""
        with self._lock:
            if time.monotonic() - self._seen < SURE:
                return
            try:
                if self._connection is not None:
                    self._connection.execute(text("SELECT 1"))
                    self._seen = time.monotonic()
                    return
            except DBAPIError:
                self._connection = None
            self.take()


def _sqlite(url: URL) -> Engine:
    place, pragmas = Path(url.database or ""), ["journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"]
    if place.is_file() and not os.access(place.parent, os.W_OK):
        url, pragmas = _unchanging(place), []
    engine = create_engine(url, connect_args={"timeout": PATIENCE, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _settle(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions of its own
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _unchanging(place: Path) -> URL:
    """A file on a read-only disk: nobody writes to it, so it is opened without SQLite's lock files."""
    log = place.with_name(f"{place.name}-wal")
    if log.is_file() and log.stat().st_size:
        raise StateError(
            f"{place.parent} cannot be written, and its database was not closed cleanly: copy the folder to "
            "where it can be written."
        )
    return URL.create(
        "sqlite", database=f"file:{quote(str(place.absolute()))}", query={"immutable": "1", "uri": "true"}
    )


def _postgresql(url: URL) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise StateError("A PostgreSQL store needs psycopg: pip install 'taps-vlm[postgres]'.") from None
    return create_engine(
        url,
        pool_pre_ping=True,  # a connection that died while idle is opened anew
        pool_size=8,
        max_overflow=8,
        pool_timeout=PATIENCE,
        connect_args={
            "connect_timeout": PATIENCE,
            "tcp_user_timeout": 1000 * PATIENCE,
            "options": f"-c statement_timeout={1000 * PATIENCE} -c lock_timeout={1000 * PATIENCE}",
        },
    )
