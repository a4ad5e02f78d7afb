"""Which machines of a Ray cluster have room for actors: all but those that turned out unfit for the work."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from taps.errors import SettingsError
from taps.evaluate.options import Execution
from taps.training.options import StatsCluster

LEAST = 0.0001  # of a core or a GPU, for Ray
NODE = "ray.io/node-id"  # Ray's label of a machine


ResourceShare = Execution | StatsCluster
"""The options of a command, which say what each process takes of its machine."""


class Resources:
    """The machines of a cluster.

    Args:
        ray: Connected.
        share: What each actor takes.
        log: Told which machines are unfit.
    """

    def __init__(self, ray: Any, share: ResourceShare, log: logging.Logger) -> None:
        self.ray, self.share, self.log = ray, share, log
        self.unfit, self.why = set[str](), ""

    def places(self) -> int:
        """How many actors fit now."""
        return places([node for node in self.ray.nodes() if node["NodeID"] not in self.unfit], self.share)

    def make(self, kind: type, *args: Any) -> Any:
        """An actor, on a machine that is not known to be unfit; it waits where none has room."""
        return self.ray.remote(kind).options(**self.options()).remote(*args)

    def options(self) -> dict[str, Any]:
        """What Ray is told of an actor."""
        share = {"num_cpus": self.share.cpus_per_run, "num_gpus": self.share.gpus_per_run or None}
        others = {NODE: f"!in({','.join(sorted(self.unfit))})"} if self.unfit else None
        return {**share, "label_selector": others}

    def avoid(self, address: str, why: str) -> None:
        """Executor nothing more on a machine."""
        self.why = f"The machine {address} of the Ray cluster can do none of the work: {why}"
        there = {node["NodeID"] for node in self.ray.nodes() if node["NodeManagerAddress"] == address}
        new, self.unfit = there - self.unfit, there | self.unfit
        if new and self.places():
            self.log.warning(f"{self.why} Others carry on without it.")

    def check(self) -> None:
        """Refuse a cluster whose machines are unfit, all that have room."""
        if self.unfit and not self.places():
            raise SettingsError(self.why)


def places(nodes: Sequence[dict[str, Any]], share: ResourceShare) -> int:
    """Runs that fit on the machines of a cluster at a time.

    >>> machine = {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}}
    >>> from taps.evaluate.options import Execution
    >>> places([machine, machine], Execution(gpus_per_run=0.5, cpus_per_run=3))
    8
    """
    wanted = {"CPU": share.cpus_per_run, "GPU": share.gpus_per_run}
    there = [node["Resources"] for node in nodes if node["Alive"]]
    each = ([node.get(kind, 0) / part for kind, part in wanted.items() if part] for node in there)
    return sum(int(min(ratios, default=1)) for ratios in each)


def check_share(share: ResourceShare) -> None:
    """Refuse what Ray does not hand out."""
    cpus, gpus = share.cpus_per_run, share.gpus_per_run
    if not all(part == 0 or part >= LEAST for part in (cpus, gpus)) or (gpus > 1 and gpus != int(gpus)):
        raise SettingsError(
            f"A process can have 0 cores or GPUs, or {LEAST:g} and more, and of several GPUs a whole number; "
            f"not {cpus:g} cores and {gpus:g} GPUs."
        )


def why_unfit(error: Exception) -> tuple[str, str] | None:
    """The machine on which an actor could not begin, and why; None where it was lost in another way.

    Args:
        error: Of Ray, for a call of the actor.
    """
    if not getattr(error, "actor_init_failed", False):
        return None
    text = str(error).strip()
    address = re.search(r"\bip=([^,)]+)", text)
    last = re.sub(r"^taps\.errors\.\w+: ", "", text.split("\n")[-1])
    why = f"{last}; install what is missing." if "No module" in last else last
    return address[1] if address else "of an actor", why
