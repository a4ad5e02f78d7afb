"""The store: streams, their event logs, and the predictions that follow from the logs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from taps.disk import make_durable_folder
from taps.errors import StateError
from taps.serve import tables as t
from taps.serve.blobs import NUMBER, Bin, Blobs
from taps.serve.checksums import (
    AUDIT,
    BEHIND,
    Heads,
    changed,
    digest_of,
    form_of,
    seal,
    seal_all,
    title_of,
)
from taps.serve.database import Database, database_url
from taps.serve.errors import ConflictError, NotFoundError, StoreDownError
from taps.serve.guards import IDENTITY, STARTS, Pairing, Watch, is_store
from taps.serve.migrations import known_version, migrate
from taps.serve.records import Event, Stream, StreamConfig
from taps.serve.snapshots import Snapshots
from taps.streams.log import ANSWERED, PREDICTED
from taps.streams.row import LABELLED, OPEN, Row

log = logging.getLogger("taps.serve")

FOLDERS = ("images", "snapshots")
FORM = "form"  # the note with the digest of how the tables are made
RECENT = 100  # newest images of a stream that are kept in any case
RETENTION = 7 * 24 * 3600.0  # seconds that images of skipped and expired questions are kept

_STREAM = [t.streams.c[field.name] for field in fields(Stream)]
_ROW = [t.predictions.c[field.name] for field in fields(Row)]
_EVENT = [t.events.c[field.name] for field in fields(Event) if field.name not in ("image", "said")]
_NAMES = [column.name for column in _EVENT]
# Statements of every prediction, made once: that takes longer than SQLite does.
_ADD_EVENT, _ADD_PREDICTION = insert(t.events), insert(t.predictions)
_BY_KEY = select(t.events.c.seq).where(
    t.events.c.stream == bindparam("stream"), t.events.c.key == bindparam("key")
)


class Store:
    """Tables in a database, images and snapshots in a folder.

    It has one owner, the process that holds its lock and calls `open`: the service. Others are guests: they
    read, or write in short transactions (`visit`), and leave no mark.

    Args:
        place: A folder (SQLite), or the URL of a PostgreSQL database.
        files: The folder of images and snapshots; the same folder unless `place` is a URL.
        anew: Whether `open` sets files aside whose database is gone, for a new store.
    """

    def __init__(self, place: str, files: Path | None = None, *, anew: bool = False) -> None:
        if "://" in place and files is None:
            raise StateError("Images and snapshots need a folder beside the database; give one with --files.")
        self.files = Path(place) if files is None else files
        self.anew = anew
        self.database = Database(database_url(place))
        self.bin = Bin(self.files / "bin")
        self.blobs = Blobs(self.files / "images", self.bin)
        self.pairing = Pairing(self)
        self.heads = Heads((self.files / "heads", self.files / "images" / ".heads"), self.database)
        self._ends: dict[int, tuple[int, str]] = {}  # by stream: its last event, and that one's digest
        self.pairing.refuse_strangers()

    def make_folders(self, *inner: str) -> None:
        """Make the folder, and those in it, where they are missing."""
        try:
            for name in ("", *inner):
                make_durable_folder((self.files / name).absolute())
        except OSError as error:
            raise StateError(
                f"The folder {self.files} cannot be used ({error}); choose another place for it."
            ) from error

    def open(self) -> Store:
        """As the owner: see that folder and database belong together, bring the tables to today's form."""
        if self.anew:
            self.pairing.set_aside()
        self.pairing.check()
        self.make_folders()
        self.pairing.claim()
        self.make_folders(*FOLDERS)
        for sentence in self.database.unlike_left():  # no error: `verify` checks all that is used of it
            log.warning(f"{sentence} A bit of its disk may have flipped.")
        self.migrate()
        self.pairing.begin()
        self.database.start = self.pairing.mark()
        return self

    def visit(self) -> Store:
        """As a guest: see that folder and database belong together, and are of this version."""
        self.pairing.check()
        with self.database.read() as connection:
            if known_version(connection) is None:
                raise StateError(f"The store in {self.files} has no tables yet; start its service once.")
        return self

    def watch(self) -> None:
        """From now on refuse to write once a part of the store was deleted or replaced."""
        inner = [self.files / name for name in ("images", "snapshots", "heads", IDENTITY, STARTS, ".lock")]
        self.database.check = Watch([self.files, *self.database.hold_files(), *inner]).check

    def migrate(self) -> None:
        """Make the tables where there are none; those of another version are refused."""
        with self.database.write() as connection:
            done = migrate(connection)
            if done:
                self.note_form(connection)
        if done:
            self.heads.renew()

    @classmethod
    def existing(cls, place: str, files: Path | None = None) -> Store:
        """A store that exists; a mistyped name makes no new one."""
        folder = Path(place) if files is None else files
        if not is_store(folder):
            raise StateError(f"No store found in {folder}; check its name.")
        store = cls(place, files)
        if not store.database.exists():
            raise StateError(
                f"No database found in {place}; put it back, or check its name (a store with PostgreSQL is "
                "given by the URL of its database)."
            )
        return store

    def close(self, *, leave: bool = False) -> None:
        """Close the database; with `leave`, where nobody else uses it, note its file's checksum."""
        with suppress(StoreDownError, OSError):
            self.database.check()
            self.heads.put_back()
            self.database.close()
            if leave:
                self.database.leave()
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshots(self, stream: int) -> Snapshots:
        return Snapshots(self.files / "snapshots" / str(stream))

    def note(self, name: str) -> str | None:
        with self.database.read() as connection:
            return connection.scalar(select(t.meta.c.value).where(t.meta.c.name == name))

    def set_note(self, name: str, value: str) -> None:
        with self.database.write() as connection:
            self._put_note(connection, name, value)

    def _put_note(self, connection: Connection, name: str, value: str) -> None:
        row = {"name": name, "value": value}
        connection.execute(delete(t.meta).where(t.meta.c.name == name))
        connection.execute(insert(t.meta).values(**row, digest=digest_of(t.meta, row)))

    def probe(self) -> None:
        """Write to the database and to the folder; raises where either cannot be written."""
        self.set_note("probe", str(time.time()))
        self.blobs.probe()

    # Checksums

    def damage(self) -> Iterator[str]:
        """What is not as it was written, in sentences."""
        noted = self.heads.read()  # before the logs: those only grow
        saved = {int(name): self.snapshots(int(name)).seqs() for name in noted if name != AUDIT}
        with self.database.read_all() as connection:
            known = connection.scalar(select(t.meta.c.value).where(t.meta.c.name == FORM))
            if known != form_of(connection):
                yield "The tables are not made as they were."
            yield from changed(connection)
            yield from self.heads.unlike(connection, noted)
            for stream, seqs in saved.items():
                mine = t.events.c.stream == stream
                last = connection.scalar(select(func.max(t.events.c.seq)).where(mine)) or 0
                if seqs and seqs[-1] > last:
                    place = self.snapshots(stream).place(seqs[-1])
                    yield f"{title_of(str(stream))} ends at {last}, {place} is newer than the log: {BEHIND}"

    def verify(self) -> None:
        """Refuse a database that is not what was written to it."""
        found = [*self.database.structure(), *self.damage()]
        if found:
            more = f" (and {len(found) - 1} things more)" if len(found) > 1 else ""
            raise StateError(
                f"The database is damaged{more}: {found[0]} `taps doctor` names all. Put a backup in its "
                "place; without one, `taps recover` goes on with what is there."
            )
        self.heads.note_all()

    def seal(self) -> None:
        """Take what the database holds for right, as after a repair."""
        with self.database.write() as connection:
            seal_all(connection)
            self.note_form(connection)
        self.heads.renew()
        self._ends.clear()

    def note_form(self, connection: Connection) -> None:
        """Take the tables as they are made for right."""
        self._put_note(connection, FORM, form_of(connection))

    # Streams

    def create_stream(self, config: StreamConfig, who: str, note: str | None = None) -> Stream:
        """Put a new stream on record, and its number in the note of that name."""
        try:
            with self.audited(who, "create stream", config.name) as connection:
                row = {**vars(config), "created": time.time()}
                key = connection.execute(insert(t.streams).values(row)).inserted_primary_key
                assert key is not None
                seal(connection, t.streams, t.streams.c.id == key[0])
                self.note_form(connection)  # it covers the last number given to a stream
                if note is not None:
                    self._put_note(connection, note, f"create {key[0]}")
        except IntegrityError:
            raise ConflictError(
                f"A stream named {config.name!r} exists already; choose another name."
            ) from None
        return Stream(id=key[0], **row)

    def remove_stream(self, stream: Stream, who: str, note: str | None = None) -> None:
        """Remove a stream's log, predictions and snapshots, and the images that no other stream needs."""
        with self.audited(who, "delete stream", stream.name) as connection:
            images = connection.scalars(
                select(t.predictions.c.image).distinct().where(t.predictions.c.stream == stream.id)
            ).all()
            connection.execute(delete(t.predictions).where(t.predictions.c.stream == stream.id))
            connection.execute(delete(t.events).where(t.events.c.stream == stream.id))
            connection.execute(delete(t.streams).where(t.streams.c.id == stream.id))
            if note is not None:
                self._put_note(connection, note, f"delete {stream.name}")
        with suppress(OSError, StoreDownError):  # files that are left are swept at the next start
            self.heads.remove(str(stream.id))
            for image in images:
                self.blobs.remove(image, self.needs)
            self.bin.put(self.snapshots(stream.id).folder, "snapshots")

    def streams(self) -> list[Stream]:
        with self.database.read() as connection:
            rows = connection.execute(select(*_STREAM).order_by(t.streams.c.id)).all()
        return [Stream(*row) for row in rows]

    # Events

    def append(self, stream: int, event: Event, row: Row | None = None, **changes: Any) -> None:
        """Put the next event on record, in one transaction with its new prediction or the changes to it."""
        values = {"stream": stream, **{name: getattr(event, name) for name in _NAMES}}
        with self.database.write() as connection:
            digest = digest_of(t.events, values, self._before(connection, stream, event.seq))
            connection.execute(_ADD_EVENT, {**values, "digest": digest})
            if row is not None:
                made = {"stream": stream, **vars(row)}
                connection.execute(_ADD_PREDICTION, {**made, "digest": digest_of(t.predictions, made)})
            if changes:
                mine = (t.predictions.c.stream == stream, t.predictions.c.id == event.prediction)
                connection.execute(update(t.predictions).where(*mine).values(changes))
                seal(connection, t.predictions, *mine)
        self._ends[stream] = (event.seq, digest)
        self.heads.note(str(stream), event.seq, digest)

    def _before(self, connection: Connection, stream: int, seq: int) -> str:
        """The digest of the event before this one."""
        known, digest = self._ends.get(stream, (-1, ""))
        if known == seq - 1:
            return digest
        mine = (t.events.c.stream == stream, t.events.c.seq == seq - 1)
        return connection.scalar(select(t.events.c.digest).where(*mine)) or ""

    def events(
        self, stream: int, after: int = 0, limit: int | None = None, kind: str | None = None
    ) -> list[Event]:
        """The log after event `after`; only events of one kind where that is given."""
        e, p = t.events.c, t.predictions.c
        mine = (p.stream == e.stream) & (p.id == e.prediction) & (e.kind == PREDICTED)
        query = (
            select(*_EVENT, p.image, p.kept, p.label, p.entropy)
            .select_from(t.events.outerjoin(t.predictions, mine))
            .where(e.stream == stream, e.seq > after, *([] if kind is None else [e.kind == kind]))
            .order_by(e.seq)
            .limit(limit)
        )
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        return [_event(*row) for row in rows]

    def last_seq(self, stream: int) -> int:
        with self.database.read() as connection:
            found = connection.scalar(select(func.max(t.events.c.seq)).where(t.events.c.stream == stream))
        return found or 0

    def by_key(self, stream: int, key: str) -> Event | None:
        """The event that was recorded under an idempotency key."""
        with self.database.read() as connection:
            seq = connection.scalar(_BY_KEY, {"stream": stream, "key": key})
        return None if seq is None else self.events(stream, seq - 1, 1)[0]

    # Predictions

    def prediction(self, stream: int, id: int) -> Row:
        with self.database.read() as connection:
            query = select(*_ROW).where(t.predictions.c.stream == stream, t.predictions.c.id == id)
            row = connection.execute(query).first()
        if row is None:
            raise NotFoundError(f"The stream has no prediction {id}.")
        return Row(**row._mapping)

    def predictions(
        self, stream: int, *, states: Sequence[str] = (), ids: Sequence[int] = (), after: int = -1,
        limit: int | None = None, newest: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Predictions in the order of their ids; only those of some states or ids where such are given."""
        p = t.predictions.c
        where = [p.stream == stream, p.id > after]
        where += [column.in_(given) for column, given in ((p.state, states), (p.id, ids)) if given]
        order = p.id.desc() if newest else p.id
        with self.database.read() as connection:
            rows = connection.execute(select(*_ROW).where(*where).order_by(order).limit(limit)).all()
        return [Row(**row._mapping) for row in rows]

    def alike(self, stream: int, label: str) -> tuple[int, int]:
        """How many labelled images were predicted as a class, and how many of these predictions are right."""
        p = t.predictions.c
        mine = [p.stream == stream, p.label == label, p.answer.is_not(None)]
        with self.database.read() as connection:
            all = connection.scalar(select(func.count()).where(*mine)) or 0
            right = connection.scalar(select(func.count()).where(*mine, p.answer == p.label)) or 0
        return all, right

    def counts(self, stream: int) -> dict[str, int]:
        """How many predictions there are in each state, and how many answers agreed with the model."""
        p = t.predictions.c
        with self.database.read() as connection:
            by_state = select(p.state, func.count()).where(p.stream == stream).group_by(p.state)
            found = {state: int(count) for state, count in connection.execute(by_state)}
            agreed = select(func.count()).where(p.stream == stream, p.state == ANSWERED, p.answer == p.label)
            found["agreed"] = connection.scalar(agreed) or 0
        return found

    # Images

    def needs(self, image: str) -> bool | None:
        """Whether any record still needs an image; None where no record mentions it."""
        p = t.predictions.c
        with self.database.read() as connection:
            return connection.scalar(select(p.kept).where(p.image == image).order_by(p.kept.desc()).limit(1))

    def kept_images(self, begin: str = "") -> set[str]:
        """Images that records need and whose names begin so."""
        p = t.predictions.c
        mine = [p.kept, p.image >= begin, p.image < f"{begin}g"]  # names are hexadecimal
        with self.database.read() as connection:
            return set(connection.scalars(select(p.image).distinct().where(*mine)))

    def evict(self, stream: int, covered: int, now: float, recent: int = 0) -> int:
        """Remove the images of a stream that the rules no longer keep; how many files went.

        Kept are the images of predictions after event `covered` (they may have to be replayed), of open
        questions, of labelled images, of questions that ended less than `RETENTION` ago, and of the newest
        `recent`, or `RECENT` where that is more.
        """
        p, recent = t.predictions.c, max(RECENT, recent)
        with self.database.write() as connection:
            newest = connection.scalar(select(func.max(p.id)).where(p.stream == stream)) or 0
            gone = [
                p.stream == stream,
                p.kept,
                p.seq <= covered,
                p.id <= newest - recent,
                p.state.not_in([OPEN, *LABELLED]),
                func.coalesce(p.ended_at, 0) < now - RETENTION,
            ]
            found = connection.execute(select(p.id, p.image).where(*gone)).all()
            images = {image for _, image in found}
            if found:
                connection.execute(update(t.predictions).where(*gone).values(kept=False))
                ids = [id for id, _ in found]
                seal(connection, t.predictions, p.stream == stream, p.id.between(min(ids), max(ids)))
        self.heads.sync(str(stream))
        self.bin.empty()
        return sum(self.blobs.remove(image, self.needs) for image in images)

    def sweep(self, *, orphans: bool = False) -> int:
        """Move files that are needed no longer to the bin, and back what is needed again; how many went.

        With `orphans`, files go that no record mentions: of a killed process, or of another database.
        """
        snapshots, known = self.files / "snapshots", {str(stream.id) for stream in self.streams()}
        self.bin.bring_back("images", lambda name: self.blobs.path(name) if self.needs(name) else None)
        self.bin.bring_back("snapshots", lambda name: snapshots / name if name in known else None)
        self.bin.empty()
        gone = [folder for folder in self.snapshot_folders() if orphans and folder.name not in known]
        for folder in gone:
            self.bin.put(folder, "snapshots")
        return len(gone) + self.blobs.sweep(self.needs, orphans=orphans)

    def snapshot_folders(self) -> list[Path]:
        """The folders of streams' snapshots; what somebody else put beside them is not among them."""
        found = (path for path in (self.files / "snapshots").glob("*") if NUMBER.fullmatch(path.name))
        return sorted(path for path in found if path.is_dir())

    # Who did what

    @contextmanager
    def audited(self, who: str, action: str, subject: str) -> Iterator[Connection]:
        """A transaction that also records who did what."""
        with self.database.write() as connection:
            yield connection
            row = {"at": time.time(), "who": who, "action": action, "subject": subject}
            key = connection.execute(insert(t.audit).values(row)).inserted_primary_key
            assert key is not None
            digest = seal(connection, t.audit, t.audit.c.id == key[0])
        self.heads.note(AUDIT, key[0], digest)


def _event(*row: Any) -> Event:
    """An event with its prediction's image, label and entropy."""
    *values, image, kept, label, entropy = row
    named = dict(zip(_NAMES, values, strict=True))
    said = None if label is None else (label, entropy)
    return Event(**named, image=image if kept else None, said=said)
