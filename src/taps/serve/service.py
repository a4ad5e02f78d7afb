"""The service without HTTP: a store, a model, and one worker a stream."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from taps import disk
from taps.default import ACQUISITION
from taps.errors import SettingsError, StateError
from taps.files import locked
from taps.methods.registry import find_method, method_settings
from taps.model.clip import Clip
from taps.model.prompts.families import FAMILIES
from taps.serve.errors import ConflictError, NotFoundError, StoreDownError
from taps.serve.event_bus import EventBus
from taps.serve.guards import ImageWatch
from taps.serve.learner_log import LearnerLog
from taps.serve.learners import Executors, Learners, Threads
from taps.serve.leases import Leases
from taps.serve.records import Stream, StreamConfig
from taps.serve.store import RECENT, Store
from taps.serve.stream_session import USED, StreamSession
from taps.serve.stream_worker import StreamWorker

if TYPE_CHECKING:
    from taps.serve.folder import Folder

T = TypeVar("T")
MODEL = "model"
DEPTH, VIEWS = 4, 1024  # the most of settings over HTTP: levels of nesting, views
STREAM_FIELDS = ("name", "classes", "method", "seed", "deadline", "hold")  # given beside the settings
EXPORT = ".export-"  # hidden folders in which archives are made
PATIENCE = 2.5  # seconds streams get to finish what runs and save their learners when the service stops


class Service:
    """All streams of a store. `with Service(...) as service:` opens it; leaving saves every learner.

    Args:
        store: One service at a time may use it.
        clip: The model, shared by all streams.
        queue: Messages that may wait for one stream.
        executors: Where the learners live; in this process unless given.
    """

    def __init__(
        self, store: Store, clip: Clip, *, queue: int = 32, executors: Executors | None = None
    ) -> None:
        self.store, self.clip, self.queue = store, clip, queue
        self.executors = executors or Threads(clip)
        self.bus = EventBus()
        self.helpers = ThreadPoolExecutor(4, thread_name_prefix="files")
        self.workers: dict[str, StreamWorker] = {}
        self.leases = Leases()
        self.folders: dict[str, Folder] = {}  # by stream: whose images all come from one folder
        self._lock = threading.Lock()
        self._closed = False
        self._stack = ExitStack()
        self._images, self._looking = ImageWatch(store), threading.Lock()
        self._probed: tuple[float, list[str]] = (0.0, [])

    def __enter__(self) -> Service:
        self._stack.enter_context(hold(self.store))
        try:
            self._open()
        except BaseException as error:
            self.store.close()
            self._stack.close()
            if isinstance(error, OSError):
                raise StateError(
                    f"The store in {self.store.files} cannot be used ({error}); see `taps doctor`."
                ) from error
            raise
        return self

    def _open(self) -> None:
        self.store.open()
        self.store.verify()
        self._check_model()
        self.store.sweep()
        for folder in self.store.files.glob(f"{EXPORT}*"):  # a killed process left them
            disk.remove_tree(folder)
        self.store.watch()
        for stream in self.store.streams():
            self._own(stream)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def close(self) -> None:
        """Refuse requests that wait or come, and end subscriptions; what runs is finished."""
        self.bus.close()
        self._closed = True
        for worker in list(self.workers.values()):
            worker.stop()

    def stop(self) -> bool:
        """Finish what runs and save every learner; whether all workers ended in time."""
        self.close()
        end = time.monotonic() + PATIENCE
        done = True
        for worker in list(self.workers.values()):
            done &= worker.join(max(end - time.monotonic(), 0.01))
        self.helpers.shutdown(wait=done)
        self.store.close(leave=done)
        self._stack.close()
        return done

    def _check_model(self) -> None:
        """Refuse another model than the store began with: its weights would replay to other states."""
        known = self.store.note(MODEL)
        if known is None:
            self.store.set_note(MODEL, self.clip.fingerprint)
        elif known != self.clip.fingerprint:
            raise StateError(
                f"The streams of this store began with another model ({known}, not {self.clip.fingerprint}); "
                "start the service with that one, or give another --store."
            )

    def _own(self, stream: Stream) -> None:
        executor = self.executors.executor_of(stream.id)
        learner_log = LearnerLog(stream, self.store, executor, partial(self.bus.publish, stream.id))
        worker = StreamWorker(StreamSession(learner_log, self.helpers), self.queue)
        self.workers[stream.name] = worker
        worker.start()
        if self._closed:  # `close` may not have seen it
            worker.stop()

    # Streams

    def create(self, beginning: StreamConfig, who: str, key: str | None = None) -> Stream:
        """Create a stream. A learner is made and tried first, so that wrong settings are refused."""
        check_settings(beginning.method, beginning.settings)
        # The page corrects images that were not asked about; today's defaults stay those of the stream.
        pinned = {"recent": RECENT, "acquisition": ACQUISITION}
        known = find_method(beginning.method).known
        pinned = {name: value for name, value in pinned.items() if name in known}
        beginning = replace(beginning, settings=pinned | dict(beginning.settings))
        trial = Stream(**vars(beginning), id=0, created=0.0)
        note = _key(key, who)
        if note is not None and (earlier := self._made(note, trial)):
            return earlier
        try:
            self.executors.executor_of(len(self.workers)).call(Learners.try_out, trial)
        except (TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            raise SettingsError(f"A stream cannot be made with these settings: {error}.") from error
        with self._lock:
            stream = self.store.create_stream(beginning, who, note)
            self._own(stream)
        return stream

    def _made(self, note: str, wanted: Stream) -> Stream | None:
        """The stream that was made under the same key; raises where the key was used for something else."""
        known = self.store.note(note)
        if known is None:
            return None
        worker = self.workers.get(wanted.name)
        made = None if worker is None else worker.stream
        same = made is not None and made == replace(wanted, id=made.id, created=made.created)
        if made is None or not same or known != f"create {made.id}":
            raise ConflictError(USED)
        return made

    def remove(self, name: str, who: str, key: str | None = None) -> None:
        """Delete a stream with everything of it."""
        note = _key(key, who)
        if note is not None and (known := self.store.note(note)):
            if known != f"delete {name}":
                raise ConflictError(USED)
            return
        with self._lock:
            worker = self.worker(name)
            self.store.probe()
            worker.stop()
            if not worker.join(10):
                raise ConflictError("The stream is busy, and takes nothing new; try again to delete it.")
            try:
                self.store.remove_stream(worker.stream, who, note)
            except BaseException:
                self._own(worker.stream)  # the stream continues
                raise
            del self.workers[name]
            self.bus.end(worker.stream.id)

    def worker(self, name: str) -> StreamWorker:
        worker = self.workers.get(name)
        if worker is None:
            raise NotFoundError(f"No stream is named {name!r}.")
        return worker

    def stream(self, name: str) -> Stream:
        return self.worker(name).stream

    def settings_of(self, name: str) -> Any:
        """The method's settings of a stream; with the budget that a folder has by now."""
        stream, folder = self.stream(name), self.folders.get(name)
        budget = folder.budget if folder is not None else None
        return method_settings(stream.method, stream.settings | ({"budget": budget} if budget else {}))

    def send(self, name: str, act: Callable[[StreamSession], T]) -> Future[T]:
        """Have a stream's worker do something."""
        return self.worker(name).send(act)

    def troubles(self) -> list[str]:
        """What is wrong now, in sentences; the store is probed at most once a second."""
        with self._looking:
            if time.monotonic() - self._probed[0] > 1.0:
                found = self._try_store()
                self._probed = (time.monotonic(), found)
            found = list(self._probed[1])
        for worker in list(self.workers.values()):
            trouble = worker.log.trouble
            if trouble is not None and trouble not in found:
                found.append(trouble)
        return found

    def _try_store(self) -> list[str]:
        """Problems with writing to the store, and files that were deleted."""
        try:
            self.store.probe()
            missing = self._images.missing()
        except (StoreDownError, OSError) as error:
            return [str(error)]
        found = []
        if missing:
            more = f" and {len(missing) - 1} more images were" if len(missing) > 1 else " was"
            found += [
                f"{missing[0]}{more} deleted. Put a backup in place; without one, stop the service and run "
                "`taps recover`."
            ]
        snapshots = [worker.log.snapshots.lost() for worker in list(self.workers.values())]
        found += [f"{path} was deleted; the next snapshot takes its place." for path in snapshots if path]
        found += [f"{path} was deleted, and is written again." for path in self.store.heads.put_back()]
        return found


@contextmanager
def hold(store: Store) -> Iterator[None]:
    """Be the owner of a store; its folder is made where it is missing."""
    with ExitStack() as stack:
        store.make_folders()
        try:
            stack.enter_context(locked(store.files))
        except StateError:
            raise StateError(
                f"Another process uses the store in {store.files}; stop it, or give another --store."
            ) from None
        except OSError as error:
            raise StateError(
                f"The store in {store.files} cannot be written ({error.strerror}); `taps doctor` and `taps "
                "backup` still read it."
            ) from error
        stack.enter_context(store.database.claimed())
        yield


def check_settings(method: str, settings: dict[str, Any]) -> None:
    """Refuse settings that would make the service read files: the sender is not the machine's user.

    A setting that may be a path takes only the words it knows, whatever files exist.
    """
    types = {each.name: str(each.type) for each in fields(find_method(method).settings)}
    for name, value in settings.items():
        if name in STREAM_FIELDS:
            raise SettingsError(f"{name} is no setting; give it beside the settings.")
        if name == "template" or (name == "texts" and isinstance(value, dict)):  # words: none is a path
            continue
        unknown = "Path" in types.get(name, "") and value not in (None, "hand", *FAMILIES)
        if name == "texts" and unknown:
            raise SettingsError(
                "Over HTTP texts are sentences by class, not a path: {class name: [sentences]}."
            )
        if unknown or _paths(value, DEPTH):
            raise SettingsError(f"The setting {name} is a path; over HTTP only names are taken.")
        if name == "views" and isinstance(value, int) and value > VIEWS:
            raise SettingsError(f"The setting views is {value}; over HTTP it is {VIEWS:,} at most.")


def _paths(value: Any, depth: int) -> bool:
    """Whether a value contains a path, or is nested too deeply."""
    if isinstance(value, dict | list):
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        return not depth or any(_paths(each, depth - 1) for each in inside)
    return isinstance(value, str) and ("/" in value or "\\" in value or value.startswith("~"))


def _key(key: str | None, who: str) -> str | None:
    """The name of the note that says what a caller's idempotency key was used for."""
    return None if key is None else "key:" + hashlib.sha256(f"{who} {key}".encode()).hexdigest()[:32]
