"""Atomic writes, and checksums that reveal damaged files.

Every JSON object and every safetensors file holds the SHA-256 of its own bytes, computed with zeros in its
place. A file with a single changed bit is refused with `DamagedError`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError, safe_open

from taps.disk import (
    check_free_or,
    is_ours,
    open_for_lines,
    remove_known,
    sync_folder,
    whole_file,
    write_part,
)
from taps.errors import DamagedError, StateError

if TYPE_CHECKING:  # imported when used: writing JSON does not wait for torch
    from torch import Tensor

CHECKSUM = "checksum"
FORMAT = 2
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""torch's dtypes under their names in safetensors."""
_BLANK = "0" * 64
_FIELD = re.compile(rb'"checksum": ?"([0-9a-f]{64})"')
_CHUNK = 1 << 20
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$"
_FORMULA = re.compile(rf"(?!{_NUMBER})'*[=+\-@\t\r]", re.IGNORECASE)


def write_text(path: Path, text: str, mine: Callable[[Path], bool] = lambda path: False) -> None:
    """Write a file whole; `mine` says of one outside of our folders whether it may be replaced."""
    with writing(path), whole_file(path, mine) as part:
        write_part(part, text.encode("utf-8", "surrogateescape"))


def write_durably(path: Path, data: bytes) -> None:
    """Write a file atomically, safe against others that write it too, and sync its name to the disk.

    Raises:
        OSError: It cannot be written.
    """
    with whole_file(path, mark=f".{os.getpid()}-{threading.get_ident()}", mode=0o640) as part:
        write_part(part, data)
    sync_folder(path.parent)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def csv_line(values: Sequence[Any]) -> str:
    r"""One line of a CSV file; a spreadsheet takes no cell for a formula.

    >>> csv_line(["a,b", 1, "=A1", "-0.5"])
    '"a,b",1,\'=A1,-0.5\n'
    """
    text = io.StringIO()
    values = [_harmless(value) for value in values]
    # Python's writer does not quote a lone carriage return, which a file's name may hold.
    odd = any("\r" in str(value) for value in values)
    quoting: Literal[0, 1] = csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator="\n", quoting=quoting).writerow(values)
    return text.getvalue()


def csv_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    r"""The rows that `csv_line` wrote.

    >>> list(csv_rows([csv_line(["=A1", "'=A1", "'A1"])]))
    [['=A1', "'=A1", "'A1"]]
    """
    for row in csv.reader(lines):
        yield [unquoted(cell) for cell in row]


def unquoted(cell: str) -> str:
    """A cell without the apostrophe that keeps it from being a formula."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def csv_dicts(lines: Iterable[str]) -> list[dict[str, str]]:
    """The rows below the first, cells by the names of their columns; blank lines are none."""
    columns, *rows = csv_rows(lines)
    return [dict(zip(columns, row, strict=False)) for row in rows if row]


def _harmless(value: Any) -> Any:
    """A value for a spreadsheet: text that looks like a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def json_text(value: Any, **how: Any) -> str:
    """Standard JSON: null stands for a number that is not finite.

    >>> json_text({"threshold": float("inf"), "n": 3})
    '{"threshold": null, "n": 3}'
    """
    try:
        return json.dumps(value, allow_nan=False, **how)
    except ValueError:  # rare, so only then is a copy made
        return json.dumps(_finite(value), allow_nan=False, **how)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write an object with its checksum as first member; a list has no room for one."""
    if not isinstance(value, dict):
        return write_text(path, json_text(value, indent=indent) + "\n")
    text = json_text({CHECKSUM: _BLANK, "format": FORMAT, **value}, indent=indent) + "\n"
    write_text(path, text.replace(_BLANK, hashlib.sha256(text.encode()).hexdigest(), 1), _is_object)


def read_json(path: Path) -> dict[str, Any]:
    """Read the object that `write_json` wrote, with its `format`.

    Raises:
        DamagedError: It is not what was written.
        OSError: It cannot be read at all.
    """
    data = path.read_bytes()
    try:
        value = json.loads(data)
    except ValueError as error:
        raise DamagedError(f"{path} is damaged ({error})") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged (it holds no object)")
    form = value.get("format", 1)
    if CHECKSUM in value or form == FORMAT:
        _compare(path, data)
    if form != FORMAT:
        raise StateError(f"{path} has format {form}; this version of TAPS reads format {FORMAT}.")
    value.pop(CHECKSUM, None)
    return value


def _is_object(path: Path) -> bool:
    """Whether a file is what `write_json` wrote."""
    return holds(path, "format")


def _is_tensors(path: Path) -> bool:
    """Whether a file is what `write_tensors` wrote."""
    with suppress(OSError, StateError):
        check_tensors(path)
        return True
    return False


def check_json(path: Path) -> None:
    """Refuse a path where something is that `write_json` would not replace, before any work is done."""
    check_free_or(path, _is_object)


def check_tensors_place(path: Path) -> None:
    """The same for `write_tensors`."""
    check_free_or(path, _is_tensors)


def remove_tensors(path: Path) -> None:
    """Remove a file that `write_tensors` wrote, where it is there and as it was written."""
    remove_known(path, lambda path: is_ours(path) or _is_tensors(path))


def holds(path: Path, *names: str) -> bool:
    """Whether a file is an object of ours with these members."""
    try:
        return read_json(path).keys() >= {*names}
    except (OSError, StateError):
        return False


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: dict[str, Any] | None = None) -> None:
    """Write a safetensors file; `meta` goes into its header, as JSON under "taps", beside the checksum.

    `save_file` of safetensors writes under a random name, and a kill would leave that file behind.
    """
    # Wide numbers first, so that all of them are aligned.
    order = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    pieces = [_bytes_of(value) for _, value in order]
    header = _tensor_header(order, {"format": FORMAT, **(meta or {})})
    sha = hashlib.sha256(header)
    for piece in pieces:
        sha.update(piece)
    with writing(path), whole_file(path, _is_tensors) as part:
        write_part(part, header.replace(_BLANK.encode(), sha.hexdigest().encode(), 1), *pieces)


def _bytes_of(tensor: Tensor) -> memoryview:
    """A tensor's bytes, without a copy where it is on the CPU and contiguous."""
    import torch

    host = tensor.detach().cpu().contiguous()
    flat = host.as_strided((host.numel(),), (1,))  # one number is contiguous whatever its stride
    data: memoryview = flat.view(torch.uint8).numpy().data
    return data


def _tensor_header(tensors: Sequence[tuple[str, Tensor]], meta: dict[str, Any]) -> bytes:
    """The header of a safetensors file: its own length, and the place of each tensor behind it."""
    index: dict[str, Any] = {"__metadata__": {CHECKSUM: _BLANK, "taps": json_text(meta)}}
    end = 0
    for name, value in tensors:
        begin, end = end, end + value.nbytes
        kind = DTYPES[str(value.dtype).removeprefix("torch.")]
        index[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [begin, end]}
    text = json_text(index).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors, on the CPU, and `meta` of what `write_tensors` wrote.

    Raises:
        DamagedError: It is not what was written.
        OSError: It cannot be read at all.
    """
    check_tensors(path)
    try:
        with safe_open(path, framework="pt") as file:
            meta: dict[str, Any] = json.loads((file.metadata() or {}).get("taps", "{}"))
            # Copies: a tensor that is a view of the file would crash the process if the file changed.
            return {name: file.get_tensor(name).clone() for name in file.keys()}, meta  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise DamagedError(f"{path} is damaged ({error})") from error


def read_tensors_meta(path: Path) -> dict[str, Any]:
    """`meta` of what `write_tensors` wrote, without looking at the tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            meta: dict[str, Any] = json.loads((file.metadata() or {}).get("taps", "{}"))
            return meta
    except (SafetensorError, ValueError) as error:
        raise DamagedError(f"{path} is damaged ({error})") from error


def check_tensors(path: Path) -> None:
    """Refuse a safetensors file that is not what was written, without loading it."""
    header = _header(path)
    with path.open("rb") as file:
        file.seek(len(header))
        _compare(path, header, iter(lambda: file.read(_CHUNK), b""))


class AppendFile:
    """A file that only grows, and a checksum of all that is in it.

    Args:
        path: Created where missing.
        mark: An earlier `AppendFile.mark`: what follows it is cut off. Without one the file is emptied.

    Raises:
        DamagedError: The file does not hold what it held at the mark.
    """

    def __init__(self, path: Path, mark: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.size = int(mark["size"]) if mark else 0
        with writing(path), ExitStack() as opened:  # closes it where what follows fails
            self._file = opened.enter_context(open_for_lines(path))
            self._sha = check_mark(path, mark) if mark else hashlib.sha256()
            self._file.truncate(self.size)
            opened.pop_all()

    @property
    def mark(self) -> dict[str, Any]:
        """Size and checksum of what has been written so far."""
        return {"size": self.size, CHECKSUM: self._sha.hexdigest()}

    def write(self, data: bytes) -> None:
        with writing(self.path):
            self._file.write(data)
        self._sha.update(data)
        self.size += len(data)

    def flush(self, *, sync: bool = False) -> None:
        """Hand what was written to the operating system; with `sync` it is on the disk afterwards."""
        with writing(self.path):
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        with writing(self.path):
            self._file.close()


def check_mark(path: Path, mark: Mapping[str, Any]) -> Any:
    """Refuse a file that does not hold what it held at an `AppendFile.mark`; the SHA-256 of that part."""
    size, sha = int(mark["size"]), hashlib.sha256()
    with path.open("rb") as file:
        while size and (chunk := file.read(min(size, _CHUNK))):
            sha.update(chunk)
            size -= len(chunk)
    if sha.hexdigest() != mark[CHECKSUM]:
        raise DamagedError(f"{path} is damaged (its checksum does not match)")
    return sha


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Let one process at a time write to a folder; a killed process releases the lock by itself.

    Args:
        folder: Must exist.
        patience: Seconds to wait for another process.
    """
    from filelock import FileLock, Timeout  # it imports asyncio: most readers of files need no lock

    try:
        lock = FileLock(folder / ".lock").acquire(timeout=patience)
    except Timeout:
        raise StateError(
            f"Another process is writing to {folder}; wait for it, or choose another --out."
        ) from None
    with lock:
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` (a full disk, a missing permission) into a `StateError` that names `path`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise StateError(f"{path} cannot be written ({why}); make room, or choose another place.") from error


def _compare(path: Path, head: bytes, rest: Iterable[bytes] = ()) -> None:
    """Compare the checksum in `head` with that of all bytes."""
    found = _FIELD.search(head)
    if found is None:
        raise DamagedError(f"{path} is damaged (its checksum is missing)")
    sha = hashlib.sha256(head[: found.start(1)] + _BLANK.encode() + head[found.end(1) :])
    for chunk in rest:
        sha.update(chunk)
    if sha.hexdigest().encode() != found[1]:
        raise DamagedError(f"{path} is damaged (its checksum does not match)")


def _header(path: Path) -> bytes:
    """The first bytes of a safetensors file, up to its tensors."""
    with path.open("rb") as file:
        length = file.read(8)
        size = int.from_bytes(length, "little")
        if size > path.stat().st_size - 8:
            raise DamagedError(f"{path} is damaged (it is cut off)")
        return length + file.read(size)
