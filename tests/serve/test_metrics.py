"""What Prometheus reads is what was counted."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from taps.serve.telemetry import BUCKETS, Metrics


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_requests_are_counted_by_route_and_status_and_timed() -> None:
    metrics = Metrics()
    for status, seconds in ((200, 0.004), (200, 0.3), (503, 20.0)):
        metrics.request("POST", "/v1", status, seconds)
    found = parsed(metrics.text({}))
    place = {"method": "POST", "route": "/v1"}
    counts = {s.labels["status"]: s.value for s in found["taps_requests"].samples if s.name.endswith("total")}
    assert counts == {"200": 2, "503": 1}
    samples = found["taps_request_seconds"].samples
    buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("bucket")}
    naive = {str(edge): sum(took <= edge for took in (0.004, 0.3, 20.0)) for edge in BUCKETS}
    assert buckets == {**naive, "+Inf": 3}
    assert [s.value for s in samples if s.name.endswith("_sum") and s.labels == place] == [0.004 + 0.3 + 20.0]


def test_gauges_are_of_now_and_names_come_back_whole() -> None:
    metrics, odd = Metrics(), 'a "b"\\\n'
    text = metrics.text({"taps_queue": ("Waits.", [((("stream", odd),), 2)]), "taps_up": ("Is.", [((), 1)])})
    [queue] = parsed(text)["taps_queue"].samples
    assert (queue.labels, queue.value) == ({"stream": odd}, 2)
    assert [(s.labels, s.value) for s in parsed(text)["taps_up"].samples] == [({}, 1)]
    assert parsed(metrics.text({"taps_queue": ("Waits.", [])}))["taps_queue"].samples == []


def test_two_services_of_a_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.request("GET", "/", 200, 0.1)
    assert parsed(other.text({}))["taps_requests"].samples == []
