"""What answers have changed: the last images are predicted again and compared with the time before."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pydantic import BaseModel

from taps.serve.errors import GoneError, TooManyError
from taps.serve.stream_session import StreamSession
from taps.serve.stream_worker import StreamWorker
from taps.streams.row import Row

SECONDS = 3.0  # after which no further image is predicted again
KNOWN = 200  # images of a stream whose last label is remembered


class Repredicted(BaseModel):
    id: int
    before: str
    now: str


class Repredictions(BaseModel):
    """Predictions that changed since the last call."""

    looked: int
    changed: list[Repredicted]


class Repredictor:
    """Remembers the labels of the last call, by stream."""

    def __init__(self) -> None:
        self._labels: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def compare(self, worker: StreamWorker, rows: Sequence[Row]) -> Repredictions:
        """Predict images again; which of them have another label than at the last call."""
        labels, changed = self._labels[worker.stream.id], []
        async with self._locks[worker.stream.id]:
            found = await _repredict(worker, rows)
            for row in rows:
                if (now := found.get(row.id)) is None:
                    continue
                before, labels[row.id] = labels.pop(row.id, row.label), now
                if now != before:
                    changed.append(Repredicted(id=row.id, before=before, now=now))
            for id in list(labels)[:-KNOWN]:  # those not predicted for longest
                del labels[id]
        return Repredictions(looked=len(found), changed=changed)


async def _repredict(worker: StreamWorker, rows: Sequence[Row]) -> dict[int, str]:
    """The classes that images are predicted as now, by id.

    Most methods predict from features that the learner keeps. Others encode the images again, one message to
    the worker for each: at least one image, and no more while other messages wait for the stream.
    """
    found: dict[int, str] = {}
    end = time.monotonic() + SECONDS
    with suppress(TooManyError):
        act = partial(StreamSession.repredict_kept, ids=[row.id for row in rows])
        kept = await asyncio.wrap_future(worker.send(act))
        found |= {id: top[0][0] for id, top in kept.items()}
        for row in (row for row in rows if row.id not in found):
            if found and (time.monotonic() > end or worker.waiting):
                break
            with suppress(GoneError):
                again = worker.send(partial(StreamSession.repredict, row=row))
                found[row.id] = (await asyncio.wrap_future(again)).label
    return found
