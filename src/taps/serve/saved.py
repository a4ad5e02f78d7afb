"""The learner of a stream, read from a store: for whoever predicts with it elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path

from taps.errors import SettingsError, StateError
from taps.learner import Learner
from taps.serve.belonging import IDENTITY
from taps.serve.records import Stream
from taps.serve.replay import Replayed, apply
from taps.serve.store import Store


def is_store(folder: Path) -> bool:
    """Whether a folder is a store."""
    return (folder / IDENTITY).is_file()


def learner_of(folder: Path, stream: str | None = None) -> Learner:
    """A stream's learner as its log says it is: the newest whole snapshot, and what came after it.

    Nothing is written, so that a service may use the store meanwhile.

    Args:
        folder: Of the store.
        stream: Its name; may be left out where there is one alone.
    """
    with Store.existing(str(folder)) as store:
        found = chosen(store.streams(), stream, folder)
        snapshots, last = store.snapshots(found.id), store.last_seq(found.id)
        whole = (seq for seq in reversed(snapshots.seqs()) if snapshots.check(seq, last) is None)
        if (seq := next(whole, None)) is None:
            raise StateError(
                f"No learner of stream {found.name!r} is saved in {folder} yet; try again later."
            )
        replayed = Replayed(learner := Learner.load(snapshots.place(seq)), seq)
        for event in store.events(found.id, seq):
            apply(replayed, event, store.blobs)
    return learner


def chosen(streams: list[Stream], name: str | None, folder: Path) -> Stream:
    """The stream of that name; the only one where no name is given."""
    names = ", ".join(stream.name for stream in streams) or "none"
    if name is None and len(streams) != 1:
        raise SettingsError(f"The store {folder} holds the streams: {names}; choose one with --stream.")
    found = next((each for each in streams if name in (None, each.name)), None)
    if found is None:
        raise SettingsError(f"The store {folder} holds no stream {name!r}; it holds: {names}.")
    return found


def predict_command(folder: Path, stream: str | None = None) -> str:
    """What to type to predict other images with a store's learner.

    >>> predict_command(Path("my photos.taps"))
    "taps predict NEW_IMAGES --learner 'my photos.taps'"
    """
    which = "" if stream is None else f" --stream {shlex.quote(stream)}"
    return f"taps predict NEW_IMAGES --learner {shlex.quote(str(folder))}{which}"
