"""Keeps a learner and its log in step: loads, records, saves, and copes with a store that fails.

The log is the truth. A learner that was given an event which could not be recorded is dropped, and restored
from the last snapshot and the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from taps.errors import StateError
from taps.serve.errors import GoneError, LostError, StoreDownError
from taps.serve.learners import Executor, RemoteLearner
from taps.serve.records import Event, Stream
from taps.serve.replay import image_of, restore
from taps.serve.store import Store
from taps.streams.row import OPEN, Row

log = logging.getLogger("taps.serve")

EVERY = 20  # events between two snapshots, at least,
WORTH = 200  # and so many times the time a snapshot takes, so that saving costs 0.5 % at most;
AT_MOST = 200  # but never more events than this
SETTLE = 60.0  # seconds after which even few events get a snapshot
RETRY = 1.0  # seconds between two tries to reach a store that failed

Tell = Callable[[Event, Row | None], None]


class LearnerLog:
    """The learner of one stream and its log. Used only by the thread that owns the learner.

    Args:
        stream: How it began.
        store: Of the log.
        executor: Where the learner lives.
        tell: Called with each event once it is on record, and with its prediction where it has one.

    Attributes:
        trouble: Why nothing can be recorded now, as a sentence; None where all is well.
        seq: The last event the learner was given.
        open: When each open question expires, by its id; None for never.
    """

    def __init__(self, stream: Stream, store: Store, executor: Executor, tell: Tell) -> None:
        self.stream, self.store, self.executor, self.tell = stream, store, executor, tell
        self.snapshots = store.snapshots(stream.id)
        self.trouble: str | None = None
        self.notes: list[str] = []
        self.seq, self.replayed = 0, 0
        self.open: dict[int, float | None] = {}
        self._learner: RemoteLearner | None = None
        # Events since the older snapshot: enough to restore the learner without the database.
        self._tail: list[Event] | None = None
        self._stuck: Event | None = None
        self._tried = 0.0
        self._saved, self._saved_at, self._cost = 0, time.monotonic(), 0.0

    # The learner

    def learner(self) -> RemoteLearner:
        """The learner as the log says it is. A store that failed is tried again first."""
        if self.trouble:
            self._heal()
        else:  # before the learner is given what could not be recorded
            self._check_files()
        if self._learner is None:
            self._load()
        assert self._learner is not None
        return self._learner

    def writable(self) -> RemoteLearner:
        """The learner, where events can be recorded; raises otherwise."""
        learner = self.learner()
        if self.trouble:
            raise StoreDownError(f"Nothing was changed. {self.trouble}", retry_after=1)
        return learner

    @property
    def loaded(self) -> bool:
        return self._learner is not None

    def _load(self) -> None:
        began = time.monotonic()
        found = self._find()
        assert self._tail is not None
        if found is None:
            learner = RemoteLearner.begin(self.executor, self.stream)
        else:
            learner = RemoteLearner.load(self.executor, self.stream, self.snapshots.place(found))
        replayed = restore(self.stream, learner, found or 0, self.store.blobs, self._tail)
        self._learner = learner
        self.seq, self.replayed = replayed.seq, replayed.count
        self._saved, self._stuck, self.notes = replayed.seq - replayed.count, replayed.stuck, replayed.notes
        for note in replayed.notes:
            log.warning(note, extra={"stream": self.stream.name})
        if replayed.stuck:
            self.trouble = self._stands(replayed.why)
            log.error(self.trouble, extra={"stream": self.stream.name})
        seconds = round(time.monotonic() - began, 3)
        log.info("loaded", extra={"stream": self.stream.name, "replayed": self.replayed, "seconds": seconds})

    def _find(self) -> int | None:
        """The snapshot to load; reads the events after it.

        While nothing can be recorded, no events are read: another service may be writing the log.
        """
        if self.trouble is None or self._tail is None:
            try:
                found = self.snapshots.newest(self.store.last_seq(self.stream.id))
                self._tail = self.store.events(self.stream.id, min(self._older(), found or 0))
                self._read_open()
                return found
            except StoreDownError as error:
                if self._tail is None:
                    raise
                self.fail(error)
        return self.snapshots.newest(self.seq)

    def wake(self) -> None:
        """Read which questions are open; load the learner if the service was not stopped cleanly."""
        if self.unsaved():
            self.learner()
        else:
            self._read_open()

    def unsaved(self) -> bool:
        """Whether the log has events after the newest snapshot."""
        return self.store.last_seq(self.stream.id) > max(self.snapshots.seqs(), default=0)

    def _read_open(self) -> None:
        rows = self.store.predictions(self.stream.id, states=[OPEN])
        self.open = {row.id: row.deadline for row in rows}

    def _stands(self, why: str) -> str:
        return (
            f"Stream {self.stream.name!r} stands at event {self.seq} of its log: {why} Put the file back "
            "from a backup, or stop the service and run `taps recover`."
        )

    def _older(self) -> int:
        """The event of the older of two snapshots."""
        found = self.snapshots.seqs()
        return found[-2] if len(found) > 1 else 0

    # The log

    def record(self, event: Event, row: Row | None = None, *, new: bool = False, **changes: Any) -> None:
        """Put the next event on record; where that fails, the learner is dropped and the error raised.

        `row` is its prediction as it is afterwards: a `new` one, or one with `changes` to some columns.
        """
        try:
            self.store.append(self.stream.id, event, row if new else None, **changes)
        except StoreDownError as error:
            self.fail(error)
            raise
        except BaseException:
            self._learner = None
            raise
        assert self._tail is not None
        self.seq = event.seq
        self._tail.append(event)
        if row is not None:
            self.open.pop(row.id, None)
            if row.state == OPEN:
                self.open[row.id] = row.deadline
        self.tell(event, row)

    def drop(self) -> None:
        """Forget a learner that may have been changed half-way; it is restored at its next use."""
        self._learner = None

    # When the store fails

    def fail(self, error: Exception) -> None:
        """Record nothing from now on, and drop the learner, which may be ahead of the log."""
        self._learner = None
        self._set_trouble(error)
        self._check_files()  # a deleted part of the store is the better reason

    def _check_files(self) -> None:
        """See that no part of the store was deleted."""
        try:
            self.store.database.check()
        except StoreDownError as error:
            self._set_trouble(error)

    def _set_trouble(self, error: Exception) -> None:
        if self.trouble is None:
            log.error(f"The store failed: {error}", extra={"stream": self.stream.name})
        self.trouble = str(error)
        self._tried = time.monotonic()

    def _heal(self) -> None:
        """See whether the store is back. An event it took in while it failed is in the log, and counts."""
        if time.monotonic() - self._tried < RETRY:
            return
        self._tried = time.monotonic()
        try:
            self.store.probe()
            if self._stuck:
                image_of(self._stuck, self.store.blobs)
            late = self.store.events(self.stream.id, self.seq, 1)
        except (StoreDownError, OSError) as error:
            self.trouble = str(error)
            return
        except (StateError, GoneError) as error:
            self.trouble = self._stands(str(error))
            return
        self.trouble = None
        if late:
            self._learner = None
        log.warning("The store is back.", extra={"stream": self.stream.name})

    # Snapshots

    def snapshot_if_worth(self) -> None:
        """Save when enough has happened since the last snapshot, or when that was deleted."""
        if self.snapshots.lost():
            self._saved = 0
        behind, waited = self.seq - self._saved, time.monotonic() - self._saved_at
        enough = behind >= AT_MOST or (behind >= EVERY and waited >= WORTH * self._cost)
        if enough or (behind and waited >= SETTLE):
            self.snapshot()

    def snapshot(self) -> None:
        """Save the learner, and remove images that only a replay of older events would need."""
        if self._learner is None or self.trouble or self.seq == self._saved:
            return
        began = time.monotonic()
        try:
            self.store.database.check()
            self.snapshots.save(self._learner, self.seq)
            recent = self.stream.settings.get("recent", 0)  # the page shows them
            self.store.evict(self.stream.id, self._older(), time.time(), recent)
        except LostError:
            return self.drop()
        except (OSError, StateError, StoreDownError) as error:
            log.error(f"No snapshot could be saved: {error}", extra={"stream": self.stream.name})
            self._saved_at = time.monotonic() + 10 * RETRY  # the log has everything; try later
            return
        older = self._older()
        self._tail = [event for event in self._tail or [] if event.seq > older]
        self._saved, self._saved_at = self.seq, time.monotonic()
        self._cost = self._saved_at - began

    def unload(self) -> None:
        """Save and drop the learner; it is loaded again at its next use."""
        self.snapshot()
        if self._learner is not None and self._saved == self.seq and not self.trouble:
            self._learner.evict()
            self._learner, self._tail = None, None
