"""Machines with addresses, disks and processes of their own: namespaces of this one, joined by a bridge."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

KINDS = ["--net", "--mount", "--uts", "--ipc"]
HEAD = "10.77.0.1:6379"


class Machine:
    """One of them. It sees the disk of this machine, but /tmp and shared memory are its own; /mnt is shared.

    Args:
        shared: What all see as /mnt.
        own: What it sees as /tmp.
    """

    def __init__(self, shared: Path, own: Path) -> None:
        own.mkdir()
        mounts = f"mount --bind '{shared}' /mnt; mount -t tmpfs none /dev/shm; mount --bind '{own}' /tmp"
        words = ["unshare", *KINDS, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec"]
        script = f"{mounts}; ip link set lo up; echo made; exec sleep infinity"
        self.process = subprocess.Popen([*words, script], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.made = self.process.stdout.readline() == "made\n"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A Python module with arguments, there."""
        environment = {**os.environ, "HOME": "/tmp", "RAY_USAGE_STATS_ENABLED": "0"}
        for name in ("RAY_ADDRESS", "TMPDIR"):
            environment.pop(name, None)
        pid, pipe = self.process.pid, subprocess.PIPE
        there = ["nsenter", f"--target={pid}", *KINDS, f"--pid=/proc/{pid}/ns/pid_for_children"]
        command = [*there, "env", "-C", "/tmp", sys.executable, "-m", *words]
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def kill(self) -> None:
        """All of its processes, and with them its network."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def make_machines(folder: Path, count: int) -> Iterator[list[Machine] | None]:
    """So many machines, and their switch; None where this one does not permit that.

    Args:
        folder: Has `shared`, and the disk of each.
        count: How many; their addresses are 10.77.0.1, …
    """
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        yield None
        return
    (folder / "shared").mkdir()
    with ExitStack() as stack:
        made = [Machine(folder / "shared", folder / str(number)) for number in range(count + 1)]
        for each in made:
            stack.callback(each.kill)
        switch, *machines = made
        yield machines if all(each.made for each in made) and _joined(switch, machines) else None


def _joined(switch: Machine, machines: list[Machine]) -> bool:
    lines = ["ip link add bridge type bridge", "ip link set bridge up"]
    for number, machine in enumerate(machines, 1):
        lines += [f"ip link add to{number} type veth peer name eth0 netns {machine.process.pid}"]
        lines += [f"ip link set to{number} master bridge up"]
    done = [_in_network(switch, *lines)]
    for number, machine in enumerate(machines, 1):
        done += [_in_network(machine, f"ip addr add 10.77.0.{number}/24 dev eth0", "ip link set eth0 up")]
    return all(done)


def _in_network(machine: Machine, *lines: str) -> bool:
    words = ["nsenter", f"--target={machine.process.pid}", "--net", "sh", "-ec", "; ".join(lines)]
    return subprocess.run(words).returncode == 0
