"""Connects to a Ray cluster, or starts one on this machine; a missing one is reported within seconds."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taps.cluster.machines import ResourceShare, check_share, places
from taps.errors import SettingsError
from taps.study.evaluate.options import Execution

log = logging.getLogger("taps")
PATIENCE = 5.0  # seconds for a head to take a connection, and to answer
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How an HTTP/2 client begins, with empty settings; a server answers with a frame of its settings."""
HELLO_SETTINGS = b"\x04"  # the kind of that frame, its fourth byte
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_NUM_REDIS_GET_RETRIES": "4",  # of a second each, where a head refuses this machine's token
}
"""Ray's own settings, read when it is imported; those of the environment come first."""
DEFAULT = "default"
"""The address of a bare `--ray`: the cluster this machine belongs to, or else one started here."""
PASSED_ON = ("TAPS_DATA", "TAPS_PLUGINS", "TAPS_WEIGHTS", "OMP_WAIT_POLICY", "PYTHONPATH")
"""Variables of the environment that work on other machines needs as well."""


@contextmanager
def connected(address: str, share: ResourceShare = Execution()) -> Iterator[Any]:
    """The module `ray`, connected while the block runs.

    Args:
        address: "auto" for the cluster this machine belongs to, "local" for one that is started here,
            "default" for the first of the two that exists, or the HOST:PORT of a head.
        share: What each process takes. One machine without room for it is refused; a cluster may grow.
    """
    ray, found = find_ray(address, share)
    alone = found == "local"  # the cluster is started here, and has this machine alone
    try:
        ray.init(
            address=found,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"env_vars": {name: os.environ[name] for name in PASSED_ON if name in os.environ}},
            **({"include_dashboard": False} if alone else {}),
        )
    except Exception as error:  # Ray's are of many kinds
        reason = str(error).strip().split("\n")[0]
        raise SettingsError(
            f"No Ray cluster at {address!r} ({reason}); start one (`ray start --head`), or use --ray local."
        ) from error
    try:
        if not places(ray.nodes(), share):
            what = f"room for {share.cpus_per_run:g} cores and {share.gpus_per_run:g} GPUs"
            if alone:
                raise SettingsError(
                    f"This machine has no {what}, which each process is to have; give it less."
                )
            log.warning("No machine of the cluster has %s now; waiting for one (Ctrl-C ends it).", what)
        gpus = sum(node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"])
        if gpus and not share.gpus_per_run:
            log.warning(
                "The %g GPUs of the cluster are left alone: --gpus-per-run, or --gpus-per-process of taps "
                "serve, gives each process one or a share.",
                gpus,
            )
        yield ray
    finally:
        ray.shutdown()


def find_ray(address: str | None, share: ResourceShare = Execution()) -> tuple[Any, str]:
    """The module `ray` and the address to connect to, where Ray is installed and a head answers.

    Commands call it before anything that takes time; without an address it does nothing.
    """
    if address is None:
        return None, ""
    check_share(share)
    os.environ |= {name: value for name, value in SETTINGS.items() if name not in os.environ}
    try:
        import ray
    except ImportError:
        raise SettingsError("--ray needs Ray: pip install 'taps-vlm[ray]'.") from None
    return ray, _checked(ray, "auto" if address == DEFAULT else address, or_local=address == DEFAULT)


def _checked(ray: Any, address: str, *, or_local: bool) -> str:
    """The address, or "local" where no cluster was found and one may be started.

    Refuses a cluster that does not exist, does not answer, or that this machine is not part of.
    """
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if named == "local":
        return address
    services = ray._private.services
    try:
        head = services.canonicalize_bootstrap_address("auto") if named in ("", "auto") else named
    except ConnectionError:
        if or_local:
            return "local"
        raise SettingsError(
            "This machine belongs to no Ray cluster; start one (`ray start --head`), or use --ray local."
        ) from None
    check_reachable(head)
    sockets = services._find_address_from_flag("--raylet_socket_name")
    if not sockets:
        raise SettingsError(
            f"This machine is no part of the Ray cluster at {head}: use one that is, or let it join "
            f"(`ray start --address {head}`)."
        )
    if not any(map(os.path.exists, sockets)):  # Ray itself would crash
        raise SettingsError(
            f"Ray was started in a container, and {min(sockets)} is not seen from outside: run this in the "
            "same container, or use --ray local."
        )
    return address


def check_reachable(address: str) -> None:
    """Refuse an address at which no gRPC server answers. Ray itself would try for minutes, and then exit."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        raise SettingsError(f"--ray {address!r} is neither auto nor local nor of the form HOST:PORT.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as line:
            if os.environ.get("RAY_USE_TLS", "0") == "0":  # what is said over TLS is left to Ray
                line.sendall(HELLO)
                if line.recv(4)[3:] != HELLO_SETTINGS:
                    raise OSError("another service listens there")
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"No Ray cluster answers at {address} ({error}); check the address, or use --ray local."
        ) from error
