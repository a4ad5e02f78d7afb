"""Snapshots: saved learners, the last two of each stream.

A snapshot is a folder named by the number of the last event it holds. It is written under another name with a
manifest (the SHA-256 of every file), fsynced, and renamed last. One that does not match its manifest is set
aside, and the older one is used.
"""

from __future__ import annotations

import json
import logging
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from taps import disk
from taps.disk import PART, make_durable_folder, sync_file, sync_folder
from taps.files import json_text, sha256_of, write_durably

if TYPE_CHECKING:
    from taps.serve.learners import RemoteLearner

log = logging.getLogger("taps.serve")

KEPT = 2
MANIFEST = "manifest.json"
_NAME = re.compile(r"([0-9]{12})(\.part)?")  # other names are somebody else's


class Snapshots:
    """The snapshots of one stream, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[int, list[Path]] = {}  # of those that are kept
        self._note()

    def place(self, seq: int) -> Path:
        return self.folder / f"{seq:012d}"

    def save(self, learner: RemoteLearner, seq: int) -> None:
        """Write a snapshot, then remove all but the newest two."""
        make_durable_folder(self.folder)
        place, part = self.place(seq), self.folder / f"{seq:012d}{PART}"
        disk.remove_tree(part)
        learner.save(part)
        files = sorted(path for path in part.iterdir() if path.is_file())
        for path in files:
            sync_file(path)
        sums = {path.name: sha256_of(path) for path in files}
        write_durably(part / MANIFEST, json_text({"seq": seq, "files": sums}).encode())
        disk.remove_tree(place)
        disk.move(part, place)
        sync_folder(self.folder)
        self._prune()

    def _prune(self) -> None:
        self._note()
        for part in self.folder.glob(f"*{PART}"):
            if _NAME.fullmatch(part.name):
                disk.remove_tree(part)
        for seq in self.seqs()[:-KEPT]:
            part = self.folder / f"{seq:012d}{PART}"
            disk.move(self.place(seq), part)  # so a reader finds it whole or not at all
            disk.remove_tree(part)

    def _note(self) -> None:
        self._files = {seq: list(self.place(seq).glob("*")) for seq in self.seqs()[-KEPT:]}

    def lost(self) -> Path | None:
        """A file of a snapshot that was deleted since the last one was saved."""
        for seq, paths in list(self._files.items()):
            for path in paths:
                if not path.exists() and seq in self._files:  # it was not set aside or replaced meanwhile
                    return path
        return None

    def seqs(self) -> list[int]:
        """The numbers of all, whole or not, the oldest first."""
        names = [path.name for path in self.folder.glob("*")]
        return sorted(int(name) for name in names if _NAME.fullmatch(name) and not name.endswith(PART))

    def check(self, seq: int, last: float = math.inf) -> str | None:
        """What is wrong with a snapshot, given the last event of the log; None where nothing is."""
        place = self.place(seq)
        try:
            manifest = json.loads((place / MANIFEST).read_bytes())
            if manifest["seq"] != seq:
                return f"The snapshot {place} is not the one its name says."
            for name, digest in manifest["files"].items():
                if sha256_of(place / name) != digest:
                    return f"The file {place / name} is damaged: its checksum does not match."
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"The snapshot {place} is damaged ({error!r})."
        return None if seq <= last else f"The snapshot {place} is newer than the log."

    def newest(self, last: int) -> int | None:
        """The newest whole snapshot that is not after event `last`; damaged ones are set aside."""
        for seq in reversed(self.seqs()):
            wrong = self.check(seq, last)
            if wrong is None:
                return seq
            log.error(wrong)
            self.set_aside(seq)
        return None

    def set_aside(self, seq: int) -> None:
        """Rename a damaged snapshot, so that it is not one of the two that are kept."""
        place = self.place(seq)
        self._files.pop(seq, None)
        with suppress(OSError):
            disk.move(place, place.with_name(f"{place.name}.damaged"))
