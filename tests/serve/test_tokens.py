"""Tokens, sessions and what a browser is protected from."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from taps.cli import store
from taps.errors import SettingsError, StateError
from taps.serve import limits
from taps.serve.run import allowed_hosts, check_exposure, check_port
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import LINK, Tokens
from tests.serve.conftest import beginning, client_of


@pytest.fixture
def closed(service: Service) -> Iterator[tuple[TestClient, Tokens]]:
    """A service that needs tokens."""
    service.create(beginning(), "test")
    for client in client_of(service, hosts=("127.0.0.1",)):
        yield client, client.app.state.taps.tokens


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_with_the_first_token_everybody_needs_one(closed: tuple[TestClient, Tokens]) -> None:
    http, tokens = closed
    assert http.get("/v1/streams").status_code == 200
    made, secret = tokens.create("first", ("predict",))
    assert http.get("/v1/streams").status_code == 401
    assert http.get("/v1/streams", headers=bearer(secret)).status_code == 200
    assert http.get("/v1/streams", headers=bearer(secret + "x")).status_code == 401
    assert http.get("/v1/streams", headers={"Authorization": f"Basic {secret}"}).status_code == 401
    tokens.revoke(made.id)
    assert http.get("/v1/streams", headers=bearer(secret)).status_code == 401
    assert http.get("/v1/streams").status_code == 401


def test_no_secret_is_stored(closed: tuple[TestClient, Tokens], tmp_path) -> None:
    _, tokens = closed
    _, secret = tokens.create("first", ("admin",))
    for path in (tmp_path / "store").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()


def test_a_browser_session(closed: tuple[TestClient, Tokens]) -> None:
    http, tokens = closed
    made, secret = tokens.create("annotator", ("label",), stream="pets")
    signed = http.post("/v1/session", headers=bearer(secret))
    assert signed.status_code == 201
    cookie = signed.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert secret not in cookie
    assert http.get("/v1/streams/pets/queries").status_code == 200
    assert http.get("/v1/session").json()["csrf"] == signed.json()["csrf"]
    body = {"names": ["bird"]}
    assert http.post("/v1/streams/pets/classes", json=body).status_code == 403
    wrong = {"X-CSRF-Token": "0" * 64}
    assert http.post("/v1/streams/pets/classes", json=body, headers=wrong).status_code == 403
    right = {"X-CSRF-Token": signed.json()["csrf"]}
    assert http.post("/v1/streams/pets/classes", json=body, headers=right).status_code == 201
    session = http.cookies["taps_session"]
    http.cookies.clear()
    assert http.get("/v1/streams", headers=bearer(session)).status_code == 401
    http.cookies.set("taps_session", session)
    tokens.revoke(made.id)
    assert http.get("/v1/streams/pets/queries").status_code == 401


def test_signing_out(closed: tuple[TestClient, Tokens]) -> None:
    http, tokens = closed
    _, secret = tokens.create("annotator", ("label",))
    csrf = http.post("/v1/session", headers=bearer(secret)).json()["csrf"]
    session = http.cookies["taps_session"]
    assert http.delete("/v1/session", headers={"X-CSRF-Token": csrf}).status_code == 204
    http.cookies.set("taps_session", session)
    assert http.get("/v1/streams").status_code == 401


def test_sessions_share_the_rate_of_their_token_and_guesses_one(service: Service) -> None:
    for http in client_of(service, limits.Limits(rate=2.0)):  # twice as many may come at once
        http.app.state.taps.rates.clock = lambda: 0.0
        _, secret = http.app.state.taps.tokens.create("annotator", ("label",))
        for _ in range(2):
            assert http.post("/v1/session", headers=bearer(secret)).status_code == 201
        mine = [http.get("/v1/session").status_code for _ in range(3)]
        assert mine == [200, 200, 429]
        guesses = [http.get("/v1/streams", headers=bearer("x")).status_code for _ in range(5)]
        assert guesses == [401] * 4 + [429]


def test_pages_of_other_sites_can_do_nothing(closed: tuple[TestClient, Tokens]) -> None:
    http, _ = closed
    other = {"Origin": "https://example.org"}
    assert http.post("/v1/streams/pets/classes", json={"names": ["x"]}, headers=other).status_code == 403
    rebound = {"Host": "example.org:8000"}
    assert http.get("/v1/streams", headers=rebound).status_code == 421
    own = {"Origin": "http://127.0.0.1"}
    assert http.post("/v1/streams/pets/classes", json={"names": ["x"]}, headers=own).status_code == 201


def test_a_wider_address_needs_a_token(tmp_path) -> None:
    store = Store(str(tmp_path)).open()
    tokens = Tokens(store)
    check_exposure("127.0.0.1", tokens)
    with pytest.raises(SettingsError, match="taps token create"):
        check_exposure("0.0.0.0", tokens)
    tokens.create("first", ("admin",))
    check_exposure("0.0.0.0", tokens)
    assert "localhost" in allowed_hosts("127.0.0.1", [])
    assert allowed_hosts("0.0.0.0", []) == ()
    assert allowed_hosts("0.0.0.0", ["taps.example"])[0] == "taps.example"
    store.close()


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port} cannot be used .*another --port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)
    for port in (-1, 65_536, 99_999):
        with pytest.raises(SettingsError, match=f"{port} is not a port"):
            check_port("127.0.0.1", port)


@pytest.mark.parametrize("words", [["list"], ["revoke", "24e7fb1cdd44"]])
def test_a_mistyped_store_is_not_made(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No store found in"):
        CliRunner().invoke(
            store.token, [words[0], str(tmp_path / "nowhere"), *words[1:]], catch_exceptions=False
        )
    assert not (tmp_path / "nowhere").exists()


def test_roles_are_checked(tmp_path) -> None:
    with Store(str(tmp_path)).open() as store:
        tokens = Tokens(store)
        with pytest.raises(SettingsError, match="roles"):
            tokens.create("x", ("root",))
        with pytest.raises(SettingsError, match="0 seconds"):
            tokens.create("x", ("label",), seconds=0)


def test_only_those_who_share_a_link_choose_a_name(closed: tuple[TestClient, Tokens]) -> None:
    http, tokens = closed
    _, link = tokens.create(LINK, ("label",))
    _, mine = tokens.create("ann", ("label",))
    refused = http.post("/v1/session", headers=bearer(mine), json={"name": "bob"})
    assert refused.status_code == 422
    assert "ann" in refused.json()["detail"]
    assert http.post("/v1/session", headers=bearer(mine)).json()["name"] == "ann"
    http.cookies.clear()
    signed = http.post("/v1/session", headers=bearer(link), json={"name": " Bob  Ray "})
    assert signed.json()["name"] == "Bob Ray"
    assert http.get("/v1/session").json()["name"] == "Bob Ray"
    assert "Bob Ray" in [token.name for token in tokens.list()]
    assert http.post("/v1/session", headers=bearer(link), json={"name": ""}).status_code == 422
