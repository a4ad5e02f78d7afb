"""The store: streams, their event logs, and what the logs say. Written by the owners alone."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from taps.errors import StateError
from taps.serve import tables as t
from taps.serve.blobs import Blobs
from taps.serve.database import Database, database_url, is_url
from taps.serve.disk import make_folder, write_durably
from taps.serve.errors import ConflictError, NotFoundError, StoreDownError
from taps.serve.records import ANSWERED, LABELLED, OPEN, Event, Row, Stream
from taps.serve.snapshots import Snapshots

IDENTITY = "identity"  # the same in the database and in the folder: they belong together
RECENT = 100  # the newest images of a stream are kept, whatever became of them
RETENTION = 7 * 24 * 3600.0  # and those of questions that were skipped or expired, so long

_STREAM = [t.streams.c[field.name] for field in fields(Stream)]
_ROW = [t.predictions.c[field.name] for field in fields(Row)]
_EVENT = [t.events.c[field.name] for field in fields(Event) if field.name not in ("image", "said")]
_NAMES = [column.name for column in _EVENT]
# What every prediction runs, made once: making a statement takes longer than SQLite does.
_ADD_EVENT, _ADD_PREDICTION = insert(t.events), insert(t.predictions)
_BY_KEY = select(t.events.c.seq).where(
    t.events.c.stream == bindparam("stream"), t.events.c.key == bindparam("key")
)


class Store:
    """Tables in a database, images and snapshots in a folder.

    Args:
        place: A folder (SQLite), or the URL of a PostgreSQL database.
        files: The folder of images and snapshots; the same folder unless `place` is a URL.
    """

    def __init__(self, place: str, files: Path | None = None) -> None:
        if is_url(place) and files is None:
            raise StateError("Images and snapshots need a folder beside the database; give one with --files.")
        self.files = Path(place) if files is None else files
        try:
            make_folder(self.files.absolute())
            make_folder((self.files / "images").absolute())
            make_folder((self.files / "snapshots").absolute())
        except OSError as error:
            raise StateError(
                f"The folder {self.files} cannot be used ({error}); choose another place for it."
            ) from error
        self.database = Database(database_url(place))
        self.blobs = Blobs(self.files / "images")

    def open(self) -> Store:
        """Bring the tables to this version's form, and see that folder and database belong together."""
        self.database.migrate()
        known, file = self.note(IDENTITY), self.files / IDENTITY
        if known is None and not file.is_file():
            write_durably(file, uuid.uuid4().hex.encode())
        here = file.read_text().strip() if file.is_file() else None
        if known is None and here is not None:
            self.set_note(IDENTITY, here)
        elif here is None:
            raise StateError(f"{self.files} is not the folder this database began with; give that one.")
        elif here != known:
            raise StateError(f"The folder {self.files} belongs to another database; give its own.")
        return self

    @classmethod
    def existing(cls, place: str, files: Path | None = None) -> Store:
        """One that is there already; a mistyped name makes no new one."""
        folder = Path(place) if files is None else files
        if not (folder / IDENTITY).is_file():
            raise StateError(f"There is no store in {folder}; check its name.")
        return cls(place, files)

    def close(self) -> None:
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
            connection.execute(delete(t.meta).where(t.meta.c.name == name))
            connection.execute(insert(t.meta).values(name=name, value=value))

    def probe(self) -> None:
        """Write to the database and to the folder; raises where either cannot be written."""
        self.set_note("probe", str(time.time()))
        self.blobs.probe()

    # Streams

    def create_stream(self, name: str, values: dict[str, Any], who: str) -> Stream:
        try:
            with self.database.write() as connection:
                taken = connection.scalar(select(t.streams.c.id).where(t.streams.c.name == name))
                if taken is not None:
                    raise ConflictError(f"There is a stream named {name!r} already; choose another name.")
                row = {**values, "name": name, "created": time.time()}
                key = connection.execute(insert(t.streams).values(row)).inserted_primary_key
                assert key is not None
                self.audit(connection, who, "create stream", name)
        except IntegrityError:
            raise ConflictError(f"There is a stream named {name!r} already; choose another name.") from None
        return Stream(id=key[0], **row)

    def remove_stream(self, stream: Stream, who: str) -> None:
        """The log, the predictions, the snapshots, and the images no other stream needs."""
        with self.database.write() as connection:
            images = connection.scalars(
                select(t.predictions.c.image).distinct().where(t.predictions.c.stream == stream.id)
            ).all()
            connection.execute(delete(t.predictions).where(t.predictions.c.stream == stream.id))
            connection.execute(delete(t.events).where(t.events.c.stream == stream.id))
            connection.execute(delete(t.streams).where(t.streams.c.id == stream.id))
            self.audit(connection, who, "delete stream", stream.name)
        with suppress(OSError, StoreDownError):  # files that are left are swept at the next start
            self.snapshots(stream.id).remove()
            for image in images:
                self.blobs.remove(image, self.needs)

    def streams(self) -> list[Stream]:
        with self.database.read() as connection:
            rows = connection.execute(select(*_STREAM).order_by(t.streams.c.id)).all()
        return [Stream(*row) for row in rows]

    # Events

    def append(self, stream: int, event: Event, row: Row | None = None, **changes: Any) -> None:
        """Put an event on record, in one transaction with what it changes about its prediction.

        Args:
            stream: Its number.
            event: The next one.
            row: The prediction, where the event makes one.
            **changes: Columns of the event's prediction.
        """
        values = {name: getattr(event, name) for name in _NAMES}
        with self.database.write() as connection:
            connection.execute(_ADD_EVENT, {"stream": stream, **values})
            if row is not None:
                connection.execute(_ADD_PREDICTION, {"stream": stream, **vars(row)})
            if changes:
                connection.execute(
                    update(t.predictions)
                    .where(t.predictions.c.stream == stream, t.predictions.c.id == event.prediction)
                    .values(changes)
                )

    def events(self, stream: int, after: int = 0, limit: int | None = None) -> list[Event]:
        """The log, from the event after `after` on."""
        e, p = t.events.c, t.predictions.c
        mine = (p.stream == e.stream) & (p.id == e.prediction) & (e.kind == "predict")
        query = (
            select(*_EVENT, p.image, p.kept, p.label, p.entropy)
            .select_from(t.events.outerjoin(t.predictions, mine))
            .where(e.stream == stream, e.seq > after)
            .order_by(e.seq)
            .limit(limit)
        )
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        return [
            Event(
                **dict(zip(_NAMES, values, strict=True)),
                image=image if kept else None,
                said=None if label is None else (label, entropy),
            )
            for *values, image, kept, label, entropy in rows
        ]

    def last_seq(self, stream: int) -> int:
        with self.database.read() as connection:
            found = connection.scalar(select(func.max(t.events.c.seq)).where(t.events.c.stream == stream))
        return found or 0

    def by_key(self, stream: int, key: str) -> Event | None:
        """The event that was recorded under an idempotency key."""
        with self.database.read(single=True) as connection:
            seq = connection.scalar(_BY_KEY, {"stream": stream, "key": key})
        return None if seq is None else self.events(stream, seq - 1, 1)[0]

    # Predictions

    def prediction(self, stream: int, id: int) -> Row:
        with self.database.read() as connection:
            query = select(*_ROW).where(t.predictions.c.stream == stream, t.predictions.c.id == id)
            row = connection.execute(query).first()
        if row is None:
            raise NotFoundError(f"There is no prediction {id} in this stream.")
        return Row(*row)

    def predictions(
        self, stream: int, *, states: Sequence[str] = (), ids: Sequence[int] = (), after: int = -1,
        limit: int | None = None, newest: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Predictions by id, those of some states or ids only where such are given."""
        p = t.predictions.c
        where = [p.stream == stream, p.id > after]
        where += [column.in_(given) for column, given in ((p.state, states), (p.id, ids)) if given]
        order = p.id.desc() if newest else p.id
        with self.database.read() as connection:
            rows = connection.execute(select(*_ROW).where(*where).order_by(order).limit(limit)).all()
        return [Row(*row) for row in rows]

    def alike(self, stream: int, label: str) -> tuple[int, int]:
        """Labelled images that the model took for a class, and how many of them it was right about."""
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

    def needs(self, image: str) -> bool:
        """Whether any stream still needs an image."""
        with self.database.read() as connection:
            query = select(t.predictions.c.id).where(t.predictions.c.image == image, t.predictions.c.kept)
            return connection.execute(query.limit(1)).first() is not None

    def let_go(self, stream: int, covered: int, now: float) -> int:
        """Remove the images of a stream that the rules no longer keep; how many files went.

        Kept are the images of predictions after event `covered` (they may have to be replayed), of open
        questions, of labelled images, of questions that ended less than `RETENTION` ago, and of the newest
        `RECENT`.
        """
        p = t.predictions.c
        with self.database.write() as connection:
            newest = connection.scalar(select(func.max(p.id)).where(p.stream == stream)) or 0
            gone = [
                p.stream == stream,
                p.kept,
                p.seq <= covered,
                p.id <= newest - RECENT,
                p.state.not_in([OPEN, *LABELLED]),
                func.coalesce(p.ended_at, 0) < now - RETENTION,
            ]
            images = connection.scalars(select(p.image).distinct().where(*gone)).all()
            if images:
                connection.execute(update(t.predictions).where(*gone).values(kept=False))
        return sum(self.blobs.remove(image, self.needs) for image in images)

    def sweep(self) -> int:
        """Remove files that no record speaks of, and snapshots of no stream; how many files."""
        known = {str(stream.id) for stream in self.streams()}
        for folder in (self.files / "snapshots").iterdir():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)
        return self.blobs.sweep(self.needs)

    # Who did what

    def audit(self, connection: Connection, who: str, action: str, subject: str) -> None:
        connection.execute(insert(t.audit).values(at=time.time(), who=who, action=action, subject=subject))
