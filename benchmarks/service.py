"""What serving costs: above the learner's own step, against bare processes, in memory. Ratios of one run."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from taps.errors import StateError
from taps.serve.client import Client

CLASSES = [f"class {number}" for number in range(10)]
# A learner on its own, in a process of its own: how many images it gets through in so many seconds.
BARE = """
import sys, time
from taps import Learner, load_clip
from service import CLASSES, picture
clip, seconds, seed = load_clip(sys.argv[1], device="cpu"), float(sys.argv[2]), int(sys.argv[3])
learner = Learner(clip, CLASSES, "taps", views=int(sys.argv[4]), seed=seed)
learner.predict_one(picture(0))
print("ready", flush=True)
sys.stdin.readline()
end, count = time.monotonic() + seconds, 0
while time.monotonic() < end:
    learner.predict_one(picture(count))
    count += time.monotonic() < end
print(count)
"""


@dataclass(frozen=True)
class Figures:
    """One run.

    Attributes:
        step_ms: The learner's own step, median.
        overhead_p50_ms: What a request takes above its step: HTTP, decoding, queue, durable commit.
        overhead_p99_ms: The same of the slowest hundredth.
        commit_p50_ms: What a bare durable commit of SQLite takes on this disk, a part of the overhead.
        commit_p99_ms: The same of the slowest hundredth.
        bare_per_second: Images a second of bare learner processes, one for each core.
        served_per_second: Of the service, all streams together.
        throughput: The second as a share of the first.
        learners_cpu_ms: CPU time an image takes of the processes that compute, while many are served.
        http_cpu_ms: Of the process that speaks HTTP and commits.
        clients_cpu_ms: Of the clients here, which share the same cores.
        memory_one_mb: Memory of the service with one stream: of all its processes, shared pages once.
        memory_hundred_mb: And with a hundred, idle after an image each.
        memory: The second over the first.
    """

    step_ms: float
    overhead_p50_ms: float
    overhead_p99_ms: float
    commit_p50_ms: float
    commit_p99_ms: float
    bare_per_second: float
    served_per_second: float
    throughput: float
    learners_cpu_ms: float
    http_cpu_ms: float
    clients_cpu_ms: float
    memory_one_mb: float
    memory_hundred_mb: float
    memory: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def picture(number: int) -> bytes:
    """A JPEG of 224 × 224 pixels: fifty different ones."""
    return _picture(number % 50)


@cache
def _picture(number: int) -> bytes:
    blocks = np.random.default_rng(number).integers(0, 256, (14, 14, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(blocks.repeat(16, axis=0).repeat(16, axis=1)).save(data, "JPEG")
    return data.getvalue()


def measure(
    model: str,
    *,
    views: int = 8,
    requests: int = 500,
    seconds: float = 20.0,
    streams: int = 8,
    idle: int = 100,
) -> Figures:
    """All three measurements, one after the other.

    Args:
        model: As `load_clip` takes it, on the CPU.
        views: Of the learners.
        requests: For the overhead, one after the other.
        seconds: For the throughput, of bare processes and of the service.
        streams: At a time, for the throughput.
        idle: Streams for the memory.
    """
    cores = os.cpu_count() or 1
    settings = {"views": views}
    with served(model) as (client, pid):
        client.create_stream("overhead", CLASSES, "taps", settings=settings)
        steps, extra = overhead(client.url, "overhead", requests)
        one, commits = memory_mb(pid), commit_seconds(requests)
        bare = bare_throughput(model, views, seconds, processes=cores)
        names = [f"throughput-{number}" for number in range(streams)]
        for number, name in enumerate(names):
            client.create_stream(name, CLASSES, "taps", settings=settings, seed=number)
            client.predict(name, picture(number))
        through, spent = served_throughput(client.url, pid, names, seconds)
    with served(model) as (client, pid):
        for number in range(idle):
            client.create_stream(f"idle-{number}", CLASSES, "taps", settings=settings)
            client.predict(f"idle-{number}", picture(number))
        many = memory_mb(pid)
    p50, p99 = np.percentile(extra, [50, 99])
    disk50, disk99 = np.percentile(commits, [50, 99])
    return Figures(
        step_ms=1000 * statistics.median(steps),
        overhead_p50_ms=1000 * float(p50),
        overhead_p99_ms=1000 * float(p99),
        commit_p50_ms=1000 * float(disk50),
        commit_p99_ms=1000 * float(disk99),
        bare_per_second=bare,
        served_per_second=through,
        throughput=through / bare,
        learners_cpu_ms=1000 * float(spent[0]),
        http_cpu_ms=1000 * float(spent[1]),
        clients_cpu_ms=1000 * float(spent[2]),
        memory_one_mb=one,
        memory_hundred_mb=many,
        memory=many / one,
    )


@contextmanager
def served(model: str) -> Iterator[tuple[Client, int]]:
    """A service of its own, on a free port, with a store in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        command = f"serve --model {model} --device cpu --store {folder} --port 0 --rate 1e9".split()
        process = subprocess.Popen(
            [sys.executable, "-m", "taps", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                raise StateError("The service did not start; try `taps serve` by hand.")
            with Client(found[0], timeout=300) as client:
                yield client, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def overhead(url: str, stream: str, requests: int) -> tuple[list[float], list[float]]:
    """Seconds of the step, and above it, of each request."""
    steps, extra, send = [], [], sender(url)
    for number in range(requests + 20):
        data = picture(number)
        began = time.perf_counter()
        said = send(stream, data, {"Idempotency-Key": str(number)})
        took = time.perf_counter() - began
        if number >= 20:  # the first ones warm up
            steps.append(said["seconds"])
            extra.append(took - said["seconds"])
    return steps, extra


def sender(url: str) -> Callable[..., Any]:
    """Sends images over one connection; a client that takes little time itself."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)

    def send(stream: str, data: bytes, headers: dict[str, str]) -> Any:
        connection.request("POST", f"/v1/streams/{stream}/predict", data, headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if said.get("id") is None:
            raise StateError(f"The service answered {answer.status}: {said}.")
        return said

    return send


def commit_seconds(count: int) -> list[float]:
    """Seconds of commits that do nothing but put a row on this disk, as the store's do."""
    took = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        connection = sqlite3.connect(Path(folder) / "bare.sqlite", isolation_level=None)
        for line in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE rows (value TEXT)"):
            connection.execute(line)
        for _ in range(count):
            began = time.perf_counter()
            connection.execute("INSERT INTO rows VALUES (?)", ("x" * 500,))
            took.append(time.perf_counter() - began)
        connection.close()
    return took


def bare_throughput(model: str, views: int, seconds: float, processes: int) -> float:
    """Images a second of learners in processes of their own, one thread each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", BARE, model, str(seconds), str(number), str(views)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )
        for number in range(processes)
    ]  # fmt: skip
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
    return sum(int(process.communicate()[0]) for process in started) / seconds


def served_throughput(
    url: str, pid: int, streams: list[str], seconds: float
) -> tuple[float, NDArray[np.float64]]:
    """Images a second of the service, one client for each stream and one more that waits its turn.

    ImageScore are those that are answered between two moments while all clients send.

    Returns:
        How many a second, and the seconds of CPU that each took (`cpu_seconds`).
    """
    answered: list[float] = []
    begin = time.monotonic() + seconds / 5
    end = begin + seconds

    def run(number: int) -> None:
        send = sender(url)
        while time.monotonic() < end:
            send(streams[number % len(streams)], picture(len(answered)), {})
            answered.append(time.monotonic())

    with ThreadPoolExecutor(2 * len(streams)) as pool:
        clients = [pool.submit(run, number) for number in range(2 * len(streams))]
        time.sleep(max(0.0, begin - time.monotonic()))
        before = cpu_seconds(pid)
        time.sleep(max(0.0, end - time.monotonic()))
        spent = cpu_seconds(pid) - before
        for client in clients:
            client.result()
    count = sum(begin <= at < end for at in answered)
    return count / seconds, spent / count


def processes_of(pid: int) -> list[int]:
    """A process and those that came from it, itself first."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            for thread in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def cpu_seconds(pid: int) -> NDArray[np.float64]:
    """Seconds of CPU so far: of the processes below a service, of its own, of this one."""

    def of(each: int) -> float:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    own, *below = map(of, processes_of(pid))
    return np.array([sum(below), own, time.process_time()])


def memory_mb(pid: int) -> float:
    """Memory of a process and those below it; a page that several share counts once in all."""
    texts = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in processes_of(pid)]
    return sum(int(size) for text in texts for size in re.findall(r"^Pss:\s+(\d+) kB", text, re.M)) / 1024
