"""The pages for people: labelling at /, a dashboard for each stream. Files as they are; no build step."""

from __future__ import annotations

from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Path, Response

from taps.serve.errors import NotFoundError

router = APIRouter(include_in_schema=False)

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
FOLDER = resources.files("taps.serve") / "web"
FILES = {each.name: each.read_bytes() for each in FOLDER.iterdir() if each.name.rpartition(".")[2] in KINDS}
"""All of them, read once: no name in a request ever becomes a path."""


@router.get("/")
async def label_page() -> Response:
    """Where experts answer."""
    return _file("label.html")


@router.get("/streams/{stream}")
async def dashboard_page(stream: str) -> Response:
    """How a stream is doing; the page asks for its data itself, and a name that is none is told there."""
    return _file("dashboard.html")


@router.get("/web/{name}")
async def web_file(name: Annotated[str, Path(max_length=40)]) -> Response:
    """Scripts and styles."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in FILES:
        raise NotFoundError(f"There is no file {name!r}.")
    return Response(
        FILES[name], media_type=KINDS[name.rpartition(".")[2]], headers={"Cache-Control": "no-cache"}
    )
