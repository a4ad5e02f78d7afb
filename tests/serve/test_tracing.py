"""A span for each image, with its stages below it, wherever they were computed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from taps.errors import SettingsError
from taps.serve import telemetry
from taps.serve.errors import StoreDownError
from taps.serve.service import Service
from tests.serve.conftest import beginning, png

memory = pytest.importorskip(
    "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="needs the extra otel"
)
STAGES = ["decode", "views", "encode", "head", "store"]


@pytest.fixture
def exporter() -> Iterator[Any]:
    made = memory.InMemorySpanExporter()
    end = telemetry.set_up_tracing(made)
    yield made
    end()


def test_an_image_has_one_span_and_its_stages_below_it(service: Service, exporter: Any) -> None:
    service.create(beginning(method="zero_shot+", settings={}), "tester")
    before = time.time_ns()
    service.send("pets", lambda session: session.predict(png(0), "secret name.png", "tester")).result()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    image = spans.pop("image")
    assert list(spans) == STAGES
    assert image.attributes == {
        "taps.stream": "pets",
        "taps.prediction": 0,
        "taps.asked": image.attributes["taps.asked"],
        "taps.recorded": True,
    }
    for span in spans.values():
        assert span.parent.span_id == image.context.span_id
        assert before <= image.start_time <= span.start_time <= span.end_time <= image.end_time
    starts = [spans[name].start_time for name in STAGES]
    assert starts == sorted(starts)
    assert "secret" not in image.to_json()


def test_an_image_that_is_not_recorded_says_so(
    service: Service, exporter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create(beginning(method="zero_shot", settings={}), "tester")

    def fail(*_: Any, **__: Any) -> None:
        raise StoreDownError("The disk is full.")

    monkeypatch.setattr(service.worker("pets").session.learner_log, "record", fail)
    service.send("pets", lambda session: session.predict(png(0), "a.png", "tester")).result()
    (image,) = [span for span in exporter.get_finished_spans() if span.name == "image"]
    assert image.attributes["taps.recorded"] is False


def test_without_an_address_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in telemetry.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    telemetry.set_up_tracing()()
    assert telemetry._tracers == []


def test_an_address_without_the_extra_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(telemetry.ENDPOINTS[0], "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"needs the extra 'otel': pip install 'taps-vlm\[otel\]'"):
        telemetry.set_up_tracing()
