"""JPEG, PNG and GIF files made to be slow: many scans, each over all pixels, or very many small pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from taps.serve.errors import TooLargeError

MAX_SCANS = 50
"""Programs write about ten at most; each takes as long as all pixels do, however few bytes it has."""
MAX_PACKED = 20
"""Compressed profiles and texts in a PNG; each may unpack to a megabyte."""
FEW, USUAL = 1000, 1024
"""A file may have so many pieces, and one more for every so many bytes."""

MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # no escaped byte, filling or restart inside a scan
ALONE = (b"\x01", b"\xd8")  # markers without a segment
SCANS: tuple[bytes, ...] = (b"\xda",)
END = b"\xd9"
PNG = b"\x89PNG\r\n\x1a\n"
EXTENSION = b"!"
COMPRESSED = (b"iCCP", b"zTXt", b"iTXt")


def check_pieces(data: bytes) -> None:
    """Refuse a JPEG, PNG or GIF whose pieces would take very long to read; other formats pass."""
    if data.startswith(b"\xff\xd8"):
        what, slow, most, pieces = "scans", SCANS, MAX_SCANS, _markers(data)
    elif data.startswith(PNG):
        what, slow, most, pieces = "compressed texts", COMPRESSED, MAX_PACKED, _chunks(data)
    elif data.startswith(b"GIF8"):
        what, slow, most, pieces = "", (), 0, _blocks(data)
    else:
        return
    left, room = most, FEW + len(data) // USUAL
    for kind in pieces:
        left, room = left - (kind in slow), room - 1
        if left < 0 or room < 0:
            found = f"more than {most} {what}" if left < 0 else "very many tiny pieces"
            raise TooLargeError(f"The image has {found}; open it in a program and save it again.")


def _markers(data: bytes) -> Iterator[bytes]:
    at = 2
    while (found := MARKER.search(data, at)) and (kind := found[0][1:]) != END:
        yield kind
        at = found.end()
        if kind not in ALONE:
            at += max(int.from_bytes(data[at : at + 2]), 2)


def _chunks(data: bytes) -> Iterator[bytes]:
    at = len(PNG)
    while at + 8 <= len(data):
        yield data[at + 4 : at + 8]
        at += 12 + int.from_bytes(data[at : at + 4])


def _blocks(data: bytes) -> Iterator[bytes]:
    """What stands before a GIF's first image: extensions in blocks, and single bytes that are skipped."""
    at = 13 + (3 * 2 ** ((data[10] & 7) + 1) if data[10:11] >= b"\x80" else 0)
    while at < len(data) and (kind := data[at : at + 1]) != b",":
        yield kind
        at += 2 if kind == EXTENSION else 1
        while kind == EXTENSION and at < len(data) and (length := data[at]):
            yield b""
            at += 1 + length
