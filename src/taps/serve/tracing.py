"""A span for each image, with its stages below it, for OpenTelemetry (the extra `otel`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import taps
from taps.errors import SettingsError
from taps.session.row import OPEN, Row
from taps.stages import Stage

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_tracers: list[Any] = []  # the one spans are made with; none unless `set_up` was called


def set_up(exporter: Any = None) -> Callable[[], None]:
    """Send spans where OpenTelemetry's environment variables say; nothing is done where they say nothing.

    Args:
        exporter: Takes the spans instead, at once; for tests.

    Returns:
        To be called at the end: sends what is left.
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
    sent = BatchSpanProcessor(_over_http()) if exporter is None else SimpleSpanProcessor(exporter)
    provider.add_span_processor(sent)
    _tracers[:] = [provider.get_tracer("taps.serve", taps.__version__)]

    def end() -> None:
        _tracers.clear()
        provider.shutdown()

    return end


def _over_http() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def trace_image(stream: str, began: int, stages: Sequence[Stage], row: Row, *, recorded: bool) -> None:
    """Make the span of one image, which ends now.

    Args:
        stream: Its name.
        began: When the image's turn came, in nanoseconds.
        stages: Its parts, wherever they were computed.
        row: What was predicted. Neither the image nor its name is sent.
        recorded: Whether it is in the log.
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
