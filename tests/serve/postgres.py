"""A PostgreSQL server of the tests' own, on a socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serve.patient import LONG


def programs() -> Path | None:
    """Where initdb and postgres are."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


class Server:
    """One server; `url()` makes a database and says where it is."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="taps-pg-"))
        self.programs = programs()
        self.user = _other_user() if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if self.user:
            shutil.chown(self.folder, self.user)
        self._do("initdb", "-D", self.data, "-U", "taps", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def start(self) -> None:
        assert self.programs is not None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.programs / "postgres",
                    "-D",
                    self.data,
                    "-k",
                    str(self.folder),
                    "-c",
                    "listen_addresses=",
                    "-c",
                    "fsync=off",  # the machine stays up; a disk under load would be waited for
                ],
                user=self.user,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            ready = subprocess.run(
                [self.programs / "pg_isready", "-h", str(self.folder), "-U", "taps"], capture_output=True
            )
            if ready.returncode == 0:
                return
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("PostgreSQL did not start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(3)  # immediate: as if the power had gone
            self.process.wait()
            self.process = None

    def url(self) -> str:
        name = f"taps_{uuid.uuid4().hex[:8]}"
        self._do("createdb", "-h", str(self.folder), "-U", "taps", name)
        return f"postgresql://taps@/{name}?host={self.folder}"

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, program: str, *arguments: str) -> None:
        assert self.programs is not None
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(command, user=self.user, capture_output=True, cwd="/", text=True)
        assert done.returncode == 0, done.stderr


def _other_user() -> str:
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise AssertionError("there is no user to run PostgreSQL as")


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.close()
