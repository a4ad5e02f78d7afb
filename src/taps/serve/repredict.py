"""What answers have changed: the last images are predicted again, and compared with the time before."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from taps.serve import schemas as s
from taps.serve.errors import GoneError, TooManyError
from taps.serve.stream_session import StreamSession
from taps.serve.stream_worker import StreamWorker
from taps.session.row import Row

SECONDS = 3.0  # after which no further image is looked at
KNOWN = 200  # images of a stream whose last look is remembered


class Repredictor:
    """What was said of the last images at the last look, by stream."""

    def __init__(self) -> None:
        self._said: defaultdict[int, OrderedDict[int, str]] = defaultdict(OrderedDict)
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def look(self, worker: StreamWorker, rows: Sequence[Row]) -> s.Repredictions:
        """Predict images again; which of them are predicted as something else than at the last look."""
        said, changed = self._said[worker.stream.id], []
        async with self._locks[worker.stream.id]:
            found = await repredicted(worker, rows)
            for row in rows:
                if (now := found.get(row.id)) is None:
                    continue
                before, said[row.id] = said.pop(row.id, row.label), now
                if now != before:
                    changed.append(s.Repredicted(id=row.id, before=before, now=now))
            while len(said) > KNOWN:
                said.popitem(last=False)
        return s.Repredictions(looked=len(found), changed=changed)


async def repredicted(worker: StreamWorker, rows: Sequence[Row]) -> dict[int, str]:
    """The classes that images are predicted as now, by id.

    What the learner keeps of them is enough for most methods. The others look at images again, one message
    to the worker for each: at one at least, and at no more while anybody waits for the stream.
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
