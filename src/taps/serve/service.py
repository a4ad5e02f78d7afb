"""The service without HTTP: a store, a model, and one owner for each stream."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from taps.clip import Clip
from taps.errors import SettingsError, StateError
from taps.methods.registry import find_method
from taps.serve.errors import ConflictError, NotFoundError, StoreDownError
from taps.serve.hub import Hub
from taps.serve.keeper import Keeper
from taps.serve.learners import Places, Threads
from taps.serve.live import Live
from taps.serve.owner import Owner
from taps.serve.records import Stream
from taps.serve.store import RECENT, Store
from taps.stream.lock import locked

T = TypeVar("T")
MODEL = "model"
EXPORT = "export-"  # folders in which archives are made
PATIENCE = 2.5  # seconds streams get to finish what runs and save their learners when the service stops


@dataclass(frozen=True)
class Beginning:
    """How a new stream is to begin."""

    name: str
    classes: list[str]
    method: str
    settings: dict[str, Any]
    seed: int
    deadline: float | None
    hold: float


class Service:
    """All streams of a store. `with Service(...) as service:` opens it; leaving saves every learner.

    Args:
        store: Where everything is kept; one service at a time may use it.
        clip: The model, shared by all streams.
        queue: Messages that may wait for one stream.
        places: Where the learners live; in this process unless given.
    """

    def __init__(self, store: Store, clip: Clip, *, queue: int = 32, places: Places | None = None) -> None:
        self.store, self.clip, self.queue = store, clip, queue
        self.places = places or Threads(clip)
        self.hub = Hub()
        self.helpers = ThreadPoolExecutor(4, thread_name_prefix="files")
        self.owners: dict[str, Owner] = {}
        self.notices: dict[str, str] = {}  # by stream: what its page tells those who wait for a question
        self._lock = threading.Lock()
        self._closed = False
        self._stack = ExitStack()
        self._probed: tuple[float, str | None] = (0.0, None)

    def __enter__(self) -> Service:
        self._stack.enter_context(hold(self.store))
        try:
            self.store.open()
            self._check_model()
            self._tidy()
            for stream in self.store.streams():
                self._own(stream)
        except BaseException:
            self.store.close()
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def close(self) -> None:
        """Refuse what waits and what comes, let listeners go; what runs is finished."""
        self.hub.close()
        self._closed = True
        for owner in list(self.owners.values()):
            owner.stop()

    def stop(self) -> bool:
        """Finish what runs, save every learner; whether all came to an end in time."""
        self.close()
        end = time.monotonic() + PATIENCE
        done = True
        for owner in list(self.owners.values()):
            done &= owner.join(max(end - time.monotonic(), 0.01))
        self.helpers.shutdown(wait=done)
        self.store.close()
        self._stack.close()
        return done

    def _tidy(self) -> None:
        """Remove what a killed process left behind."""
        self.store.sweep()
        for folder in self.store.files.glob(f"{EXPORT}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _check_model(self) -> None:
        """A store goes on with the model it began with: other weights would replay to other states."""
        known = self.store.note(MODEL)
        if known is None:
            self.store.set_note(MODEL, self.clip.fingerprint)
        elif known != self.clip.fingerprint:
            raise StateError(
                f"The streams of this store began with another model ({known}, not {self.clip.fingerprint}); "
                "start the service with that one, or give another --store."
            )

    def _own(self, stream: Stream) -> None:
        place = self.places.place_of(stream.id)
        keeper = Keeper(stream, self.store, place, lambda event, row: self.hub.tell(stream.id, event, row))
        self.owners[stream.name] = owner = Owner(Live(keeper, self.helpers), self.queue)
        owner.start()
        if self._closed:  # `close` may not have seen it
            owner.stop()

    # Streams

    def create(self, beginning: Beginning, who: str) -> Stream:
        """Begin a stream. A learner is made and tried before, so that mistakes are told at once."""
        check_settings(beginning.settings)
        if "recent" in find_method(beginning.method).known:  # the page corrects what nobody was asked about
            beginning = replace(beginning, settings={"recent": RECENT, **beginning.settings})
        values = {
            name: getattr(beginning, name)
            for name in ("method", "classes", "settings", "seed", "deadline", "hold")
        }
        trial = Stream(id=0, name=beginning.name, created=0.0, **values)
        self.places.place_of(len(self.owners)).call("try_out", trial)
        with self._lock:
            stream = self.store.create_stream(beginning.name, values, who)
            self._own(stream)
        return stream

    def remove(self, name: str, who: str) -> None:
        """End a stream and remove all of it."""
        with self._lock:
            owner = self.owner(name)
            self.store.probe()
            owner.stop()
            if not owner.join(10):
                raise ConflictError("The stream is busy, and takes nothing new; try again to delete it.")
            try:
                self.store.remove_stream(owner.live.stream, who)
            except BaseException:
                self._own(owner.live.stream)  # it goes on
                raise
            del self.owners[name]
            self.hub.end(owner.live.stream.id)

    def owner(self, name: str) -> Owner:
        owner = self.owners.get(name)
        if owner is None:
            raise NotFoundError(f"There is no stream named {name!r}.")
        return owner

    def stream(self, name: str) -> Stream:
        return self.owner(name).live.stream

    def send(self, name: str, act: Callable[[Live], T]) -> Future[T]:
        """Have a stream's owner do something."""
        return self.owner(name).send(act)

    def troubles(self) -> list[str]:
        """What is wrong now, in sentences; the store is tried once a second at most."""
        at, said = self._probed
        if time.monotonic() - at > 1.0:
            try:
                self.store.probe()
                said = None
            except (StoreDownError, OSError) as error:
                said = str(error)
            self._probed = (time.monotonic(), said)
        found = [] if said is None else [said]
        for owner in list(self.owners.values()):
            trouble = owner.live.keeper.trouble
            if trouble is not None and trouble not in found:
                found.append(trouble)
        return found


@contextmanager
def hold(store: Store) -> Iterator[None]:
    """Be the one process that writes to a store, to its folder and to its database."""
    try:
        lock = locked(store.files)
        lock.__enter__()
    except StateError:
        raise StateError(
            f"Another process uses the store in {store.files}; stop it, or give another --store."
        ) from None
    except OSError as error:
        raise StateError(
            f"The store in {store.files} cannot be written ({error.strerror}); `taps doctor` and `taps "
            "backup` still read it."
        ) from error
    try:
        with store.database.claimed():
            yield
    finally:
        lock.__exit__(None, None, None)


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings that would make the service read files: who sends them is not the machine's user."""
    for name, value in settings.items():
        if isinstance(value, str) and ("/" in value or "\\" in value or os.path.lexists(value[:255])):
            raise SettingsError(f"The setting {name} is a path; over HTTP only names are taken.")
