"""Whether the head of a Ray cluster answers at an address: one question put to it as gRPC does.

Ray itself would try for minutes, and then exit.
"""

from __future__ import annotations

import os
import socket
from queue import Empty, Queue
from threading import Thread

from taps.errors import SettingsError

PATIENCE = 5.0  # seconds for name, connection and answer together
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, LAST_KIND = 0, 1, 4, 9  # kinds of HTTP/2's frames
END_STREAM, END_HEADERS = 1, 4
QUESTION = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": b"/ray.rpc.NodeInfoGcsService/GetClusterId",
    b":authority": b"taps",
    b"content-type": b"application/grpc",
    b"te": b"trailers",
}
GOOD, LOCKED = b"grpc-status\x010", b"InvalidAuthToken"


def check_reachable(address: str, *, token: bool = True) -> None:
    """Refuse an address at which no head answers.

    Args:
        address: HOST:PORT.
        token: Whether Ray will send its token, should the cluster want one.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        raise SettingsError(f"--ray {address!r} is neither auto nor local nor of the form HOST:PORT.")
    answer: Queue[bytes | Exception] = Queue()
    Thread(target=_ask, args=(host.strip("[]"), int(port), answer), daemon=True).start()
    try:
        said = answer.get(timeout=PATIENCE)
    except Empty:  # the system's own limits for names and connections are longer
        said = TimeoutError("timed out")
    if isinstance(said, bytes) and LOCKED in said and not token:
        raise SettingsError(
            f"The Ray cluster at {address} wants its token: set RAY_AUTH_MODE=token, and have the cluster's "
            "~/.ray/auth_token here as well."
        )
    if isinstance(said, Exception) or not (GOOD in said or LOCKED in said):
        why = said if isinstance(said, Exception) else "what listens there is not Ray"
        raise SettingsError(
            f"No Ray cluster answers at {address} ({why}); check the address, or use --ray local."
        )


def _ask(host: str, port: int, answer: Queue[bytes | Exception]) -> None:
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as line:
            # What is said over TLS is left to Ray.
            answer.put(GOOD if os.environ.get("RAY_USE_TLS", "0") != "0" else _answer(line))
    except (OSError, OverflowError) as error:
        answer.put(error)


def _answer(line: socket.socket) -> bytes:
    """What the other side says to the question for its cluster's id; what is not HTTP/2 says nothing."""
    fields = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in QUESTION.items()
    )
    line.sendall(
        PREFACE
        + _frame(SETTINGS)
        + _frame(HEADERS, END_HEADERS, 1, fields)
        + _frame(DATA, END_STREAM, 1, bytes(5))
    )
    said = b""
    with line.makefile("rb") as replies:
        while len(head := replies.read(9)) == 9 and head[3] <= LAST_KIND:
            said += replies.read(int.from_bytes(head[:3]))
            if head[3] == HEADERS and head[4] & END_STREAM:
                break
    return said


def _frame(kind: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body
