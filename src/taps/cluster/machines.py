"""Which machines of a Ray cluster can work for a command: room, the same version, a shared folder."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from taps import __version__
from taps.errors import SettingsError
from taps.study.evaluate.options import Execution
from taps.study.training.options import StatsCluster

LEAST = 0.0001  # the smallest share of a core or a GPU that Ray hands out
NODE = "ray.io/node-id"  # Ray's label of a machine

ResourceShare = Execution | StatsCluster
"""The options of a command, which say what each process takes of its machine."""


@dataclass(frozen=True)
class Origin:
    """Where a command was typed; sent to every machine that works for it.

    Attributes:
        here: The working directory: data sets and models may be given by relative paths.
        mark: A file in the folder that all machines write to; None where they share none.
        version: Of taps.
    """

    here: Path
    mark: Path | None = None
    version: str = __version__

    def enter(self) -> None:
        """Work in the same folder, where this machine has it."""
        if self.here.is_dir():
            os.chdir(self.here)

    def check(self) -> None:
        """Refuse a machine with another version, or one that does not see what the others write."""
        if self.version != __version__:
            raise SettingsError(
                f"it has taps {__version__}, but the command was given with {self.version}; install the same."
            )
        if self.mark and not self.mark.exists():
            raise SettingsError(
                f"it does not see {self.mark.parent} as the command does; use a folder that all share."
            )


@contextmanager
def origin(folder: Path | None = None) -> Iterator[Origin]:
    """This directory and version; with `folder`, a mark in it while the work goes on."""
    if folder is None:
        yield Origin(Path.cwd())
        return
    with NamedTemporaryFile(dir=folder.resolve(), prefix=".ray-") as mark:
        yield Origin(Path.cwd(), Path(mark.name))


def this_machine() -> str:
    """Its address, as Ray calls it."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())  # type: ignore[no-untyped-call]


class Resources:
    """The machines of a cluster, without those that turned out unfit; `share` is what each process takes."""

    def __init__(self, ray: Any, share: ResourceShare, log: logging.Logger) -> None:
        self.ray, self.share, self.log = ray, share, log
        self.unfit, self.why = set[str](), ""

    def places(self) -> int:
        """How many processes fit now."""
        return places([node for node in self.ray.nodes() if node["NodeID"] not in self.unfit], self.share)

    def make(self, kind: type, *args: Any) -> Any:
        """An actor, on a machine that is not known to be unfit; it waits where none has room."""
        return self.ray.remote(kind).options(**self.options()).remote(*args)

    def options(self) -> dict[str, Any]:
        """Ray's options of an actor or a task."""
        share = {"num_cpus": self.share.cpus_per_run, "num_gpus": self.share.gpus_per_run or None}
        others = {NODE: f"!in({','.join(sorted(self.unfit))})"} if self.unfit else None
        return {**share, "label_selector": others}

    def avoid(self, address: str, why: str) -> None:
        """Use a machine no more."""
        self.why = f"The machine {address} of the Ray cluster can do none of the work: {why}"
        nodes = {node["NodeID"] for node in self.ray.nodes() if node["NodeManagerAddress"] == address}
        new, self.unfit = nodes - self.unfit, nodes | self.unfit
        if new and self.places():
            self.log.warning(f"{self.why} Others carry on without it.")

    def check(self) -> None:
        """Refuse a cluster where every machine with room is unfit."""
        if self.unfit and not self.places():
            raise SettingsError(self.why)


def places(nodes: Sequence[dict[str, Any]], share: ResourceShare) -> int:
    """How many processes fit on the machines of a cluster at a time.

    >>> machine = {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}}
    >>> from taps.study.evaluate.options import Execution
    >>> places([machine, machine], Execution(gpus_per_run=0.5, cpus_per_run=3))
    8
    """
    wanted = {"CPU": share.cpus_per_run, "GPU": share.gpus_per_run}
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    each = ([node.get(kind, 0) / part for kind, part in wanted.items() if part] for node in alive)
    return sum(int(min(ratios, default=1)) for ratios in each)


def check_share(share: ResourceShare) -> None:
    """Refuse a share that Ray does not hand out."""
    cpus, gpus = share.cpus_per_run, share.gpus_per_run
    if not all(part == 0 or part >= LEAST for part in (cpus, gpus)) or (gpus > 1 and gpus != int(gpus)):
        raise SettingsError(
            f"A process can have 0 cores or GPUs, or {LEAST:g} and more, and of several GPUs a whole number; "
            f"not {cpus:g} cores and {gpus:g} GPUs."
        )


def why_unfit(error: Exception) -> tuple[str, str] | None:
    """The machine that cannot start an actor or import a task, and why, from Ray's error; None for others."""
    text = str(error).strip()
    if not getattr(error, "actor_init_failed", False) and "failed to import on the worker" not in text:
        return None
    address = re.search(r"\bip=([^,)]+)", text)
    last = re.sub(r"^taps\.errors\.\w+: ", "", text.split("\n")[-1])
    why = f"{last}; install what is missing." if "No module" in last else last
    return address[1] if address else "of an actor", why
