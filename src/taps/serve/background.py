"""Serve from a thread of its own, while the program does something else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taps.errors import StateError
from taps.serve.run import make_server
from taps.serve.service import Service


@contextmanager
def serving(service: Service, **options: Any) -> Iterator[str]:
    """The service over HTTP while the block runs.

    Args:
        service: Opened with `with`.
        **options: Of `make_server`; the port is any that is free unless given.

    Yields:
        Its URL.
    """
    found: queue.Queue[str] = queue.Queue()
    server = make_server(service, **{"port": 0, **options}, ready=found.put)
    thread = threading.Thread(target=_run, args=(server, found), name="http")
    thread.start()
    try:
        url = found.get()
        if not url:
            raise StateError("The port cannot be used; is another service there?")
        yield url
    finally:
        server.should_exit = True
        service.bus.close()
        thread.join()


def _run(server: Any, found: queue.Queue[str]) -> None:
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it cannot bind
        pass
    finally:
        found.put("")
