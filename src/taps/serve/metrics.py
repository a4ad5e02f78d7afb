"""Counters and latencies for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
Labels = tuple[tuple[str, str], ...]
Gauges = Mapping[str, tuple[str, Iterable[tuple[Labels, float]]]]


class Metrics:
    """Requests by route and status, and how long they took; each service has its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        place = ("method", "route")
        self._requests = Counter(
            "taps_requests", "Requests answered.", (*place, "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "taps_request_seconds", "Time to answer.", place, registry=self._registry, buckets=BUCKETS
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self, gauges: Gauges) -> str:
        """Everything, with gauges read now: name → help, and a value for each set of labels."""
        return (generate_latest(self._registry) + generate_latest(_Read(gauges))).decode()


class _Read(Collector):
    """Values read for one answer and not kept: a stream that is gone leaves none behind."""

    def __init__(self, gauges: Gauges) -> None:
        self.gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for name, (told, values) in self.gauges.items():
            found = Metric(name, told, "gauge")
            for labels, value in values:
                found.add_sample(name, dict(labels), value)
            yield found
