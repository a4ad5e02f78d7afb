"""Starts services quickly, to be killed: everything is imported once, and each life is a fork.

Reads lines `PLACE FILES` from standard input; each starts a service and answers `PID URL`, or `failed WHY`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

PR_SET_CHILD_SUBREAPER = 36


class Zygote:
    """The parent's side: starts lives, and kills them."""

    def __init__(self, environment: dict[str, str] | None = None, log: IO[bytes] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log or subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            cwd=Path(__file__).parents[2],
        )

    def start(self, place: str, files: Path) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(place, files, file=self.process.stdin, flush=True)
        first, _, rest = self.process.stdout.readline().strip().partition(" ")
        assert first.isdigit(), f"{first} {rest}"
        return int(first), rest

    def kill(self, pid: int) -> None:
        """Kill a life, and wait until it is gone: only then are its locks free."""
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.001)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.communicate()


def live(place: str, files: Path, clip: object) -> None:
    """One life of the service, until it is killed or told to stop."""
    from taps.serve.learners import Processes
    from taps.serve.options import Limits
    from taps.serve.run import make_server
    from taps.serve.service import Service
    from taps.serve.store import Store

    def ready(url: str) -> None:
        print(os.getpid(), url, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with (
            Processes(clip, 2) as places,  # type: ignore[arg-type]
            Service(Store(place, files), clip, executors=places) as service,  # type: ignore[arg-type]
        ):
            make_server(service, port=0, limits=Limits(rate=1e9), ready=ready).run()
    except Exception as error:
        print("failed", repr(error), flush=True)


def main() -> None:
    import torch
    import torch.fx.experimental.symbolic_shapes  # the first gradient would import it, in every life

    from taps import Learner, load_clip
    from taps.serve import run, telemetry  # noqa: F401
    from tests.serve import patient  # noqa: F401

    torch.set_num_threads(1)
    clip = load_clip("tiny", device="cpu")
    Learner(clip, ["cat", "dog"])  # reads the tokenizer
    telemetry.set_up_logs()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever outlives its parent is found below this one
    assert threading.active_count() == 1
    for line in sys.stdin:
        place, files = line.split()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.stdin.close()
            live(place, Path(files), clip)
            os._exit(0)


if __name__ == "__main__":
    main()
