"""Every write, fsync, rename and truncation of a store made to fail in turn; run with the library preloaded.

`python -m tests.serve.faults FOLDER STEP` prints a line of JSON with what it found; see `run`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KINDS = [(errno.EIO, 1, 0), (errno.ENOSPC, 5, 1)]  # one call fails; five in a row, each having written a half


def build(folder: Path) -> Path:
    """Compile the library; raises FileNotFoundError where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("there is no C compiler")
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "faults.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def run(folder: Path, step: int) -> dict[str, Any]:
    """In a process of its own: fail every `step`-th call of the workload, in each way; what was found."""
    library = build(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.serve.faults", str(folder), str(step)],
        env={**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def workload(service: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Images, labels and a snapshot; what was acknowledged: ids with their images, ids with their labels."""
    from taps.errors import TapsError
    from tests.serve.conftest import png

    predicted, labelled, waiting = {}, {}, []
    for number in range(6):
        try:
            outcome = service.send(
                "pets", lambda session, n=number: session.predict(png(n), str(n), "x")
            ).result()
        except TapsError:
            continue
        if outcome.recorded:
            predicted[outcome.row.id] = outcome.row.image
            if outcome.row.state == "open":
                waiting.append(outcome.row.id)
        if number % 2 and waiting:
            id = waiting.pop(0)
            try:
                service.send("pets", lambda session, i=id: session.label(i, "dog", "x")).result()
                labelled[id] = "dog"
            except TapsError:
                pass
        if number in (2, 4):
            service.send("pets", lambda session: session.learner_log.snapshot()).result()
    return predicted, labelled


def check(place: Path, clip: Any, predicted: dict[int, str], labelled: dict[int, str]) -> None:
    """Open the store again: everything acknowledged is there, and the learner is what the log says."""
    from taps.serve.doctor import examine
    from taps.serve.learners import fresh
    from taps.serve.records import Event
    from taps.serve.replay import Replayed, apply
    from taps.serve.service import Service
    from taps.serve.store import Store
    from tests.serve.streams import Served, digest

    with Service(Store(str(place)), clip) as service:
        stream = service.stream("pets")
        rows = {row.id: row for row in service.store.predictions(stream.id)}
        assert {id: rows[id].image for id in predicted} == predicted
        assert {id: rows[id].answer for id in labelled} == labelled
        replayed = Replayed(fresh(stream, clip), 0)
        log: list[Event] = service.store.events(stream.id)
        for event in log:
            apply(replayed, event, service.store.blobs)
        assert Served(service).digest() == digest(replayed.learner)
        bad = [finding.sentence for finding in examine(service.store) if finding.bad]
        assert not bad, bad


def main(folder: Path, step: int) -> dict[str, Any]:
    from taps import load_clip
    from taps.serve import learner_log
    from taps.serve.service import Service
    from taps.serve.store import Store
    from tests.serve.conftest import beginning

    learner_log.RETRY = 0.0
    clip = load_clip("tiny", device="cpu")
    library = ctypes.CDLL(None)
    library.taps_seen.restype = ctypes.c_long

    def once(place: Path, n: int, error: int, calls: int, halves: int) -> int:
        with Service(Store(str(place)), clip) as service:
            service.create(beginning(), "x")
            under = str(place.resolve()).encode()
            library.taps_fault(under, ctypes.c_long(n), ctypes.c_long(calls), error, halves)
            told = workload(service)
            count = int(library.taps_seen())
            library.taps_fault(b"", ctypes.c_long(0), ctypes.c_long(0), 0, 0)
        check(place, clip, *told)
        shutil.rmtree(place)
        return count

    total = once(folder / "calm", 0, 0, 0, 0)
    tried = 0
    for error, calls, halves in KINDS:
        for n in range(1, total + 1, step):
            once(folder / f"{error}-{n}", n, error, calls, halves)
            tried += 1
    return {"calls": total, "tried": tried, "lost": 0}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
