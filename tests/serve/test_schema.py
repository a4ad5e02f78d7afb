"""What the OpenAPI document promises, thrown at the service by schemathesis."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from taps import load_clip
from taps.serve.app import make_app
from taps.serve.dependencies import State
from taps.serve.options import Limits
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.conftest import beginning, png

HEADERS: dict[str, str] = {}
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
]  # fmt: skip


@pytest.fixture(scope="module")
def api_schema(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("schema")
    with Service(Store(str(folder)), load_clip("tiny", device="cpu")) as service:
        service.create(beginning("0", settings={"views": 1, "policy": "fixed", "tau0": 0.0}), "test")
        for number in range(3):
            service.send("0", lambda session, n=number: session.predict(png(n), "x", "test")).result()
        tokens = Tokens(service.store)
        HEADERS["Authorization"] = f"Bearer {tokens.create('tests', ('admin',))[1]}"
        app = make_app(State(service, tokens, Limits(rate=1e9)))
        yield schemathesis.openapi.from_asgi("/v1/openapi.json", app)


schema = schemathesis.pytest.from_fixture("api_schema").exclude(path_regex="/events$|/session$|/tokens")


@schema.parametrize()
@settings(max_examples=8, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_route_keeps_its_promise(case) -> None:
    if "stream" in (case.path_parameters or {}) and case.method != "DELETE":
        case.path_parameters["stream"] = "0"  # the one that is there
    case.call_and_validate(checks=CHECKS, headers=HEADERS)
