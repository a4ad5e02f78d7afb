"""Tokens, sessions and what a browser is protected from."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, text
from typer.testing import CliRunner

from taps.cli import store
from taps.errors import SettingsError, StateError, TapsError
from taps.serve import limits
from taps.serve import tables as t
from taps.serve.migrations import version_of
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


Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A command about the tokens of a store."""

    def call(action: str, *words: str) -> Any:
        line = [action, str(tmp_path / "store"), *words]
        return CliRunner().invoke(store.token, line, catch_exceptions=False)

    return call


def test_a_store_that_is_made_for_its_first_token_is_named(run: Run, tmp_path: Path) -> None:
    assert f"new store was made in {tmp_path / 'store'}" in run("create", "--role", "admin").output
    assert "new store" not in run("create", "--role", "label").output
    assert run("list").output.count("active") == 2


@pytest.mark.parametrize("words", [
    *(["--days", each] for each in ("nan", "inf", "-inf", "1e308", "0", "-1", "20000")), ["--role", "root"],
    ["--stream", "nope"], ["--name", "a\x1b[2Jb"], ["--name", "a\u202eb"], ["--name", "a" * 65],
], ids=repr)  # fmt: skip
def test_a_token_that_cannot_be_is_a_sentence(run: Run, tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(TapsError):  # no store is made for it
        run("create", "--role", "label", *words)
    assert not (tmp_path / "store").exists()
    run("create", "--role", "admin")
    with pytest.raises(TapsError) as said:
        run("create", "--role", "label", *words)
    assert "\x1b" not in str(said.value)
    assert run("list").output.count("active") == 1
    with Store.existing(str(tmp_path / "store")) as opened:
        assert list(opened.damage()) == []


def test_odd_tokens_of_earlier_versions_are_listed(run: Run, tmp_path: Path) -> None:
    run("create", "--role", "admin")
    with Store.existing(str(tmp_path / "store")) as opened, opened.database.write() as connection:
        for name, ends in (("a\x1b[2Jb", 1e308), ("c", float("inf"))):
            row = {
                "id": name[0],
                "name": name,
                "hash": name,
                "roles": "label",
                "created": 0.0,
                "expires": ends,
            }
            connection.execute(insert(t.tokens).values(row))
    said = run("list").output
    assert said.count("active") == 3
    assert "\x1b[2J" not in said


def test_a_token_command_leaves_a_store_of_an_earlier_version_alone(run: Run, tmp_path: Path) -> None:
    """A service of that version may be using it."""
    run("create", "--role", "admin")
    with Store.existing(str(tmp_path / "store")) as opened, opened.database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    with pytest.raises(StateError, match="form '0004'"):
        run("list")
    with Store.existing(str(tmp_path / "store")) as opened, opened.database.read() as connection:
        assert version_of(connection) == "0004"


def test_nobody_but_the_owner_leaves_a_mark(run: Run, tmp_path: Path) -> None:
    made = run("create", "--role", "admin").output.split("Token ")[1].split(",")[0]
    before = {name: (tmp_path / "store" / name).stat() for name in ("starts", "identity")}
    run("create", "--role", "label")
    run("list")
    run("revoke", made)
    after = {name: (tmp_path / "store" / name).stat() for name in before}
    assert {name: (each.st_ino, each.st_mtime_ns) for name, each in before.items()} == {
        name: (each.st_ino, each.st_mtime_ns) for name, each in after.items()
    }
