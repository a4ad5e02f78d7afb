"""The pages: labelling at /, dashboard and review of each stream, API docs. Static files, no build step."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, FastAPI, Path, Request, Response

from taps.files import json_text
from taps.serve.errors import NotFoundError

router = APIRouter(include_in_schema=False)

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGES = {
    "/": "label.html",
    "/streams/{stream}": "dashboard.html",  # it loads its data itself and says where no stream has this name
    "/streams/{stream}/review": "review.html",
    "/docs": "docs.html",
}
FOLDER = resources.files("taps.serve") / "web"
FILES = {each.name: each.read_bytes() for each in FOLDER.iterdir() if each.name.rpartition(".")[2] in KINDS}
"""All of them, read once: a name in a request never becomes a path."""
FILES |= {name: FILES["head.html"] + FILES[name] + FILES["foot.html"] for name in PAGES.values()}


@router.get("/web/{name}")
async def web_file(name: Annotated[str, Path(max_length=40)]) -> Response:
    """A page, a script or a style sheet."""
    if name not in FILES:
        raise NotFoundError(f"File {name!r} not found.")
    kind = KINDS[name.rpartition(".")[2]]
    return Response(FILES[name], media_type=kind, headers={"Cache-Control": "no-cache"})


for path, page in PAGES.items():
    router.add_api_route(path, partial(web_file, page))


@router.get("/v1/openapi.json")
async def openapi(request: Request) -> Response:
    """The OpenAPI document, made once."""
    return Response(_document(request.app), media_type="application/json")


@lru_cache(1)
def _document(app: FastAPI) -> bytes:
    return json_text(app.openapi()).encode()
