"""Counters and latencies in Prometheus' text format, written by hand: it is a few lines."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._requests: dict[Labels, int] = defaultdict(int)
        self._slots: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: dict[Labels, float] = defaultdict(float)
        self._lock = threading.Lock()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        place: Labels = (("method", method), ("route", route))
        slot = sum(seconds > edge for edge in BUCKETS)
        with self._lock:
            self._requests[(*place, ("status", str(status)))] += 1
            self._slots[place][slot] += 1
            self._seconds[place] += seconds

    def text(self, gauges: Mapping[str, tuple[str, Iterable[tuple[Labels, float]]]]) -> str:
        """Everything, with gauges read now: name → help, and a value for each set of labels."""
        with self._lock:
            requests = dict(self._requests)
            slots = {labels: list(found) for labels, found in self._slots.items()}
            seconds = dict(self._seconds)
        lines = ["# HELP taps_requests_total Requests answered.", "# TYPE taps_requests_total counter"]
        lines += [_line("taps_requests_total", labels, count) for labels, count in requests.items()]
        lines += ["# HELP taps_request_seconds Time to answer.", "# TYPE taps_request_seconds histogram"]
        for labels, found in slots.items():
            lines += _histogram("taps_request_seconds", labels, found, seconds[labels])
        for name, (told, values) in gauges.items():
            lines += [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
            lines += [_line(name, labels, value) for labels, value in values]
        return "\n".join(lines) + "\n"


def _histogram(name: str, labels: Labels, slots: list[int], seconds: float) -> list[str]:
    lines, total = [], 0
    for edge, count in zip((*BUCKETS, float("inf")), slots, strict=True):
        total += count
        bound = "+Inf" if edge == float("inf") else f"{edge:g}"
        lines.append(_line(f"{name}_bucket", (*labels, ("le", bound)), total))
    return [*lines, _line(f"{name}_sum", labels, seconds), _line(f"{name}_count", labels, total)]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
