"""Serves over HTTP until SIGTERM, or in a thread while a block runs."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from taps.errors import SettingsError, StateError
from taps.serve.app import make_app
from taps.serve.connections import HEAD_BYTES, KEEP_ALIVE, Connection, is_loopback
from taps.serve.dependencies import State
from taps.serve.labelstudio import LabelStudio
from taps.serve.options import Limits
from taps.serve.service import Service
from taps.serve.tokens import Tokens

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
GRACE = 2  # seconds requests under way get when the service is told to stop


def check_exposure(host: str, tokens: Tokens) -> None:
    """Refuse to be reached from other machines while no token exists."""
    if not tokens.any() and not is_loopback(host):
        raise SettingsError(
            f"Bound to {host} everybody who reaches this machine could use the service; make a token first "
            "(`taps token create STORE --role admin`), or stay on 127.0.0.1."
        )


def allowed_hosts(host: str, named: list[str]) -> tuple[str, ...]:
    """The names a request may call this service by: on loopback only its own, against DNS rebinding."""
    if named:
        return (*named, *LOOPBACK_NAMES)
    return (*LOOPBACK_NAMES, host) if is_loopback(host) else ()


def check_port(host: str, port: int) -> None:
    """Refuse an address that cannot be bound to; uvicorn would exit without an explanation."""
    if not 0 <= port <= 65_535:
        raise SettingsError(f"{port} is not a port; give --port one up to 65535, or 0 for any that is free.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        why = error.strerror or str(error)
        raise SettingsError(f"{host}:{port} cannot be used ({why}); choose another --port.") from error


class Server(uvicorn.Server):
    """Uvicorn that reports when it is ready, and ends event streams when it is to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self.service, self.ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for each in server.sockets:
                host, port = each.getsockname()[:2]
                self.ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.close()  # ends requests that wait in a queue, for events or for an annotator
        await super().shutdown(sockets)


def make_server(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    hosts: list[str] | None = None,
    studio: LabelStudio | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> Server:
    """A server for an open service; `run()` serves until SIGTERM or SIGINT.

    Args:
        service: Opened with `with`.
        host: Address to bind to; one that other machines reach needs a token to exist.
        port: 0 for any that is free.
        limits: Of requests, tokens and streams.
        hosts: Further names the service is called by.
        studio: The Label Studio whose projects are served.
        ready: Called with the URL once requests are answered.
    """
    tokens = Tokens(service.store)
    check_exposure(host, tokens)
    check_port(host, port)
    state = State(service, tokens, limits or Limits(), allowed_hosts(host, hosts or []), studio=studio)
    config = uvicorn.Config(
        make_app(state),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        loop="asyncio",  # whose transports say how much they read at a time
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE,
    )
    return Server(config, service, ready)


@contextmanager
def serving(service: Service, **options: Any) -> Iterator[str]:
    """Serve over HTTP while the block runs; yields the URL. Options are those of `make_server`."""
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
