"""What answers have changed: the last images are predicted again, and compared with the time before."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from functools import partial

from taps.serve import schemas as s
from taps.serve.errors import GoneError, TooManyError
from taps.serve.live import Live
from taps.serve.records import Row
from taps.serve.service import Service

SECONDS = 3.0  # after which no further image is looked at
KNOWN = 200  # images of a stream whose last look is remembered


class SecondLooks:
    """What was said of the last images at the last look, by stream."""

    def __init__(self) -> None:
        self._said: defaultdict[int, OrderedDict[int, str]] = defaultdict(OrderedDict)
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def look(self, service: Service, name: str, rows: Sequence[Row]) -> s.SecondLook:
        """Predict images again, one message to the owner for each, so that no prediction waits for long."""
        stream = service.stream(name).id
        said, end, looked, changed = self._said[stream], time.monotonic() + SECONDS, 0, []
        async with self._locks[stream]:
            for row in rows:
                if looked and time.monotonic() > end:
                    break
                try:
                    said_now = await asyncio.wrap_future(
                        service.send(name, partial(Live.look_again, row=row))
                    )
                except GoneError:
                    continue
                except TooManyError:
                    break
                looked += 1
                before, now = said.pop(row.id, row.label), said_now.label
                said[row.id] = now
                if now != before:
                    changed.append(s.NowSaid(id=row.id, before=before, now=now))
            while len(said) > KNOWN:
                said.popitem(last=False)
        return s.SecondLook(looked=looked, changed=changed)
