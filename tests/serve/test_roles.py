"""Every route × every role × (no token, expired, revoked, another stream's), against the documented table."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from taps.serve import labelstudio
from taps.serve.routes import pages
from taps.serve.service import Service
from tests.serve.conftest import beginning, client_of, png

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ROW = re.compile(r"^\| ([^|`]*?) \| (`(?:GET|POST|DELETE) /.*) \|$", re.MULTILINE)
BODIES = {
    "/v1/streams": {"json": {"name": "new", "classes": ["a", "b"], "settings": {"views": 2}}},
    "/v1/streams/{stream}/predict": {"content": png(1)},
    "/v1/streams/{stream}/queries/{id}/label": {"json": {"label": "cat"}},
    "/v1/streams/{stream}/classes": {"json": {"names": ["new"]}},
    "/v1/streams/{stream}/queries/lease": {"json": {"holder": "somebody"}},
    "/v1/streams/{stream}/predictions/{id}/label": {"json": {"label": "cat"}},
    "/v1/streams/{stream}/predictions/{id}/opinion": {"json": {"label": "cat"}},
    "/v1/streams/{stream}/twice": {"json": {"share": 0.5}},
    "/v1/streams/{stream}/accept": {"json": {"label": "cat", "above": 0.5, "ids": [0]}},
    "/v1/streams/{stream}/folder/questions": {"json": {"questions": 1}},
    **{f"/label-studio/{name}": {"json": {}} for name in ("setup", "predict", "webhook")},
    "/v1/tokens": {"json": {"name": "x", "roles": ["label"]}},
}
WORDS = {
    "anybody": set(),
    "any token": {"predict", "label", "admin"},
    "predict": {"predict", "admin"},
    "label": {"label", "admin"},
    "admin": {"admin"},
}


def documented() -> dict[tuple[str, str], tuple[str, bool]]:
    """Route → who, and whether for all streams."""
    found = {}
    for who, routes in ROW.findall(PAGE.read_text(encoding="utf-8")):
        for method, path in re.findall(r"`(\w+) (/[^`]*)`", routes):
            found[method, path] = (who.removesuffix(", all streams"), who.endswith(", all streams"))
    return found


@pytest.fixture
def http(service: Service) -> TestClient:
    service.create(beginning("pets", settings={"views": 2, "policy": "fixed", "tau0": 0.0}), "test")
    service.create(beginning("other"), "test")
    return next(client_of(service))


def test_the_table_names_every_route(http: TestClient) -> None:
    paths = http.get("/v1/openapi.json").json()["paths"]
    there = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    others = {(method, route.path) for route in labelstudio.router.routes for method in route.methods}
    assert set(documented()) == there | others
    shown = {"/", "/streams/{stream}", "/streams/{stream}/review", "/docs"}
    open_to_all = shown | {"/web/{name}", "/v1/openapi.json"}
    assert {route.path for route in pages.router.routes} == open_to_all


def status(http: TestClient, method: str, path: str, secret: str | None) -> int:
    """What a caller gets; events and exports end by themselves."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    address = path.replace("{stream}", "pets").replace("{id}", "0")
    query = {"once": "true"} if path.endswith("/events") else {}
    return http.request(method, address, headers=headers, params=query, **BODIES.get(path, {})).status_code


@pytest.mark.parametrize(("route", "rule"), documented().items(), ids=lambda value: str(value)[:60])
def test_who_may_do_what(http: TestClient, route: tuple[str, str], rule: tuple[str, bool]) -> None:
    tokens = http.app.state.taps.tokens
    (method, path), (who, everywhere) = route, rule
    tokens.create("first", ("admin",))
    if who == "anybody":
        assert status(http, method, path, None) == 200
        return
    assert status(http, method, path, None) == 401
    assert status(http, method, path, "taps_guess") == 401
    _, expired = tokens.create("old", ("admin",), seconds=1e-6)
    revoked_token, revoked = tokens.create("gone", ("admin",))
    tokens.revoke(revoked_token.id)
    time.sleep(1e-5)
    assert status(http, method, path, expired) == 401
    assert status(http, method, path, revoked) == 401
    allowed = WORDS[who]
    for role in ("predict", "label", "admin"):
        _, mine = tokens.create(role, (role,), stream="pets")
        _, others = tokens.create(role, (role,), stream="other")
        _, every = tokens.create(role, (role,))
        named = "{stream}" in path
        if named or everywhere:
            assert status(http, method, path, others) == 403, "the other stream's"
        if everywhere or role not in allowed:
            assert status(http, method, path, mine) == 403, role
        if role not in allowed:
            assert status(http, method, path, every) == 403, role
    fine = next(role for role in ("predict", "label", "admin") if role in allowed)
    if not everywhere:
        _, mine = tokens.create(fine, (fine,), stream="pets")
        assert status(http, method, path, mine) not in (401, 403)
    else:
        _, every = tokens.create(fine, (fine,))
        assert status(http, method, path, every) not in (401, 403)
