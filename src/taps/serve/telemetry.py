"""What operators see of the service: log lines, Prometheus metrics, OpenTelemetry spans."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector

import taps
from taps.errors import SettingsError
from taps.files import json_text
from taps.session.row import OPEN, Row
from taps.stages import Stage

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Labels = tuple[tuple[str, str], ...]
Gauges = Mapping[str, tuple[str, Iterable[tuple[Labels, float]]]]

_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}
_tracers: list[Any] = []  # the one that makes spans; empty unless `set_up_tracing` was called


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {
            name: value for name, value in record.__dict__.items() if name not in _OWN and name[0] != "_"
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json_text(line, default=str)


def set_up_logs() -> None:
    """Send the service's lines to stderr, and uvicorn's warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("taps.serve", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


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
        """All metrics, with gauges read now: name → help, and a value for each set of labels."""
        return (generate_latest(self._registry) + generate_latest(_Read(gauges))).decode()


class _Read(Collector):
    """Gauges read for one answer and not kept: a deleted stream leaves none behind."""

    def __init__(self, gauges: Gauges) -> None:
        self.gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for name, (help, values) in self.gauges.items():
            metric = Metric(name, help, "gauge")
            for labels, value in values:
                metric.add_sample(name, dict(labels), value)
            yield metric


def set_up_tracing(exporter: Any = None) -> Callable[[], None]:
    """Send spans where OpenTelemetry's environment variables say, or to a test's exporter at once.

    The result is called at the end, and sends what is left. Nothing is sent where no variable is set.
    """
    if exporter is None and not any(os.environ.get(name) for name in ENDPOINTS):
        return lambda: None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
    except ImportError:
        raise SettingsError(
            f"{' or '.join(ENDPOINTS)} is set, and tracing needs the extra 'otel': "
            "pip install 'taps-vlm[otel]', or unset it."
        ) from None
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "taps"), "service.version": taps.__version__}
    provider = TracerProvider(resource=Resource.create(named))
    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    else:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    _tracers[:] = [provider.get_tracer("taps.serve", taps.__version__)]

    def end() -> None:
        _tracers.clear()
        provider.shutdown()

    return end


def trace_image(stream: str, began: int, stages: Sequence[Stage], row: Row, *, recorded: bool) -> None:
    """Make the span of an image, from `began` (nanoseconds) to now, with its stages below it.

    Neither the image nor its name is sent.
    """
    if not _tracers:
        return
    from opentelemetry.trace import set_span_in_context

    about = {"taps.stream": stream, "taps.prediction": row.id, "taps.asked": row.state == OPEN}
    span = _tracers[0].start_span("image", start_time=began, attributes=about | {"taps.recorded": recorded})
    below = set_span_in_context(span)
    for name, start, end in stages:
        _tracers[0].start_span(name, context=below, start_time=start).end(end_time=end)
    span.end(end_time=time.time_ns())
