"""Finding a Ray cluster, or starting one on this machine; a missing one is said within seconds."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taps.errors import SettingsError

PATIENCE = 5.0  # seconds for a cluster's head to answer
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}
PASSED_ON = ("TAPS_DATA", "TAPS_PLUGINS", "TAPS_WEIGHTS", "OMP_WAIT_POLICY", "PYTHONPATH")
"""Variables of the environment that work on other machines needs as well."""


@contextmanager
def connected(address: str, cpus: int | None = None) -> Iterator[Any]:
    """The module `ray`, connected; left again afterwards.

    Args:
        address: "auto" for the cluster this machine belongs to, "local" to start one here for as long as it
            is needed, or the HOST:PORT of a head.
        cpus: Of a local cluster; all cores where not given.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise SettingsError("--ray needs Ray: pip install 'taps-vlm[ray]'.") from None
    if address not in ("auto", "local"):
        check_reachable(address)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    given: dict[str, Any] = {"include_dashboard": False, "num_cpus": cpus} if address == "local" else {}
    try:
        ray.init(
            address=address,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"env_vars": passed},
            **given,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise SettingsError(
            f"No Ray cluster at {address!r} ({reason}); start one (`ray start --head`), or use --ray local."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Refuse an address at which nobody listens; Ray itself would try for a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise SettingsError(f"--ray {address!r} is neither auto nor local nor of the form HOST:PORT.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"No Ray cluster answers at {address} ({error}); check the address, or use --ray local."
        ) from error
