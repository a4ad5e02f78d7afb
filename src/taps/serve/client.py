"""`taps.Client`: a client of `taps serve`."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

from taps.default import METHOD
from taps.errors import TapsError
from taps.plain_names import seen_letters
from taps.types import Answer

Image = bytes | bytearray | memoryview | str | PathLike[str]
RETRY = (429, 503)
PAGE = 1000  # questions in one response
NAME = 500  # letters of an image's name


class ClientError(TapsError):
    """The service refused a request; `status` is HTTP's (0: no response), the message is the service's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """A client of one service. Changes carry an idempotency key, so that sending them again is safe.

    Args:
        url: Of the service.
        token: Made by `taps token create`; not needed while the service has none.
        timeout: Seconds for one response.
        retries: How often a request is sent again after 429, 503 or a lost connection.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise TapsError("The client needs httpx: pip install 'taps-vlm[serve]'.") from None
        if not re.match("https?://[^/]", str(url)):
            raise ClientError(
                0, f"{url!r} is no address of a service; give one such as http://127.0.0.1:8000."
            )
        headers = {} if token is None else {"Authorization": f"Bearer {_header('token', token)}"}
        self.url = url
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, ValueError) as error:
            raise ClientError(0, f"{url!r} is no address of a service: {error}.") from error
        self._lost = httpx.TransportError
        self.retries = retries

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def create_stream(self, name: str, classes: Sequence[str], method: str = METHOD, **more: Any) -> Any:
        """Create a stream; `more`: settings, seed, deadline, hold."""
        body = {"name": name, "classes": _names(classes), "method": method, **more}
        return self._ask("POST", "/v1/streams", json=body)

    def streams(self) -> Any:
        return self._ask("GET", "/v1/streams")

    def delete_stream(self, name: str) -> None:
        self._ask("DELETE", _stream(name))

    def predict(self, stream: str, image: Image, *, key: str | None = None) -> Any:
        """Predict an image: a file's path, or its bytes. Of the path only the file's name is sent."""
        data, name = _image(image)
        key = uuid.uuid4().hex if key is None else _header("key", key)
        headers = {"Idempotency-Key": key, "Content-Type": "application/octet-stream"}
        return self._ask(
            "POST", f"{_stream(stream)}/predict", params={"name": name}, content=data, headers=headers
        )

    def queries(self, stream: str) -> list[Any]:
        """All open questions, the oldest first."""
        found: list[Any] = []
        after = -1
        while page := self._ask("GET", f"{_stream(stream)}/queries", params={"limit": PAGE, "after": after}):
            found, after = found + page, page[-1]["id"]
        return found

    def image(self, stream: str, id: int) -> bytes:
        """The image of a prediction, as it was sent."""
        found: bytes = self._send("GET", f"{_stream(stream)}/predictions/{_part(id)}/image").content
        return found

    def label(
        self, stream: str, id: int, label: str | int | Answer | None = None, *, no: Sequence[str | int] = (),
        none: bool = False,
    ) -> Any:  # fmt: skip
        """Answer a question.

        Args:
            stream: Its name.
            id: The question's.
            label: The class, by name or index; or an `Answer`. The annotator is the token's name.
            no: Instead, classes it is not.
            none: Instead, that it is none of the classes.
        """
        given = label if isinstance(label, Answer) else Answer(label, tuple(no), none)
        if given.unknown:
            return self.skip(stream, id)
        body = replace(given, annotator="").to_json()
        return self._ask("POST", f"{_stream(stream)}/queries/{_part(id)}/label", json=body)

    def skip(self, stream: str, id: int) -> Any:
        return self._ask("POST", f"{_stream(stream)}/queries/{_part(id)}/skip")

    def undo(self, stream: str, id: int) -> Any:
        return self._ask("POST", f"{_stream(stream)}/queries/{_part(id)}/undo")

    def add_classes(self, stream: str, names: Sequence[str]) -> Any:
        return self._ask("POST", f"{_stream(stream)}/classes", json={"names": _names(names)})

    def stats(self, stream: str) -> Any:
        return self._ask("GET", f"{_stream(stream)}/stats")

    def export(self, stream: str, what: str = "predictions", format: str = "csv") -> bytes:
        """Predictions or labels as csv or jsonl; the labelled images as zip."""
        params = {"what": what, "format": format}
        found: bytes = self._send("GET", f"{_stream(stream)}/export", params=params).content
        return found

    def events(self, stream: str, after: int | None = None, *, once: bool = False) -> Iterator[Any]:
        """Live events, each a dict with its `kind`; `once` ends after those recorded."""
        params = {"once": once} | ({} if after is None else {"after": after})
        url = f"{_stream(stream)}/events"
        self._check_open()
        try:
            with self._http.stream("GET", url, params=params, timeout=None) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _error(response)
                kind = ""
                for line in response.iter_lines():
                    if line.startswith("event: "):
                        kind = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        yield {"kind": kind, **json.loads(line.removeprefix("data: "))}
        except self._lost as error:
            raise ClientError(0, f"The service does not answer ({error}).") from error

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        response = self._send(method, path, **more)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise ClientError(0, f"{self.url} does not answer as a service does; check it.") from error

    def _check_open(self) -> None:
        if self._http.is_closed:
            raise ClientError(0, "This client was closed; make a new one.")

    def _send(self, method: str, path: str, **more: Any) -> Any:
        self._check_open()
        if "json" in more:
            more["json"] = _json(more["json"])
        if method != "GET":  # so that nothing is done twice where a response is lost
            more["headers"] = {"Idempotency-Key": uuid.uuid4().hex, **more.get("headers", {})}
        for left in range(self.retries, -1, -1):
            try:
                response = self._http.request(method, path, **more)
            except self._lost as error:
                if not left:
                    raise ClientError(0, f"The service does not answer ({error}).") from error
                time.sleep(0.2)
                continue
            if response.status_code in RETRY and left:
                time.sleep(waits(response.headers.get("Retry-After"), time.time()))
                continue
            if response.status_code >= 400:
                raise _error(response)
            return response
        raise AssertionError("unreachable")


def _part(given: object) -> str:
    """A part of a path: nothing in it leads elsewhere.

    >>> _part("x/../q?"), _part(7)
    ('x%2F..%2Fq%3F', '7')
    """
    if isinstance(given, bool) or not isinstance(given, str | int) or given in ("", ".", ".."):
        raise ClientError(0, f"{given!r} is no name or number; give a stream's name, or a question's id.")
    return quote(str(given).encode(errors="replace"), safe="")


def _stream(name: str) -> str:
    return f"/v1/streams/{_part(name)}"


def _header(what: str, text: object) -> str:
    """A text that can be in a header."""
    if not isinstance(text, str) or not re.fullmatch("[!-~]+", text):
        raise ClientError(0, f"The {what} is not of letters, digits and signs alone; copy it again.")
    return text


def _image(image: Any) -> tuple[bytes, str]:
    """The bytes of an image, and its name."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image), "image"
    if not isinstance(image, str | PathLike):
        raise ClientError(0, f"A {type(image).__name__} is no image; give a file's path, or its bytes.")
    try:
        path = Path(image)
        if not path.is_file():  # a pipe may never end
            raise ClientError(0, f"{path} is no image file; check the path.")
        return path.read_bytes(), seen_letters(path.name)[-NAME:] or "image"
    except (OSError, TypeError, ValueError) as error:
        raise ClientError(0, f"{image!r} cannot be read ({error}); check the path.") from error


def _names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str):  # it would be taken for a list of letters
        raise ClientError(0, f"The classes are one text, {names!r}; give a list of names.")
    return list(names)


def _json(body: Any) -> Any:
    """A body that is JSON: without NaN, or objects that JSON does not know."""
    try:
        json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ClientError(0, f"This cannot be sent as JSON: {error}.") from error
    return body


def waits(header: str | None, now: float) -> float:
    """Seconds to wait by a Retry-After, which is a number or a date; 1 where it is neither.

    >>> waits("3", 0.0), waits("Thu, 01 Jan 1970 00:00:10 GMT", 4.0), waits("soon", 0.0)
    (3.0, 6.0, 1.0)
    """
    if header is not None and header.isdecimal():
        return float(header)
    try:
        return max(parsedate_to_datetime(header or "").timestamp() - now, 0.0)
    except ValueError:
        return 1.0


def _error(response: Any) -> ClientError:
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"The service answered {response.status_code}."
    return ClientError(response.status_code, detail)
