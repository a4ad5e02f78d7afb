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
DEFAULT = "default"
"""The address of a bare `--ray`: the cluster this machine belongs to, or else one started here."""
PASSED_ON = ("TAPS_DATA", "TAPS_PLUGINS", "TAPS_WEIGHTS", "OMP_WAIT_POLICY", "PYTHONPATH")
"""Variables of the environment that work on other machines needs as well."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module `ray`, connected; left again afterwards.

    Args:
        address: "auto" for the cluster this machine belongs to, "local" to start one here for as long as it
            is needed, "default" for the first of the two that there is, or the HOST:PORT of a head.
    """
    ray = find_ray(address)
    try:
        _join(ray, address)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise SettingsError(
            f"No Ray cluster at {address!r} ({reason}); start one (`ray start --head`), or use --ray local."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def find_ray(address: str | None) -> Any:
    """The module `ray`, once it is clear that there is one and that somebody answers at the address.

    Commands call it before anything that takes time; where no cluster is wanted it does nothing.
    """
    if address is None:
        return None
    os.environ |= {name: value for name, value in QUIET.items() if name not in os.environ}
    try:
        import ray
    except ImportError:
        raise SettingsError("--ray needs Ray: pip install 'taps-vlm[ray]'.") from None
    named = os.environ.get("RAY_ADDRESS", "") if address in ("auto", DEFAULT) else address
    if named not in ("", "auto", "local"):
        check_reachable(named)
    return ray


def _join(ray: Any, address: str) -> None:
    if address == DEFAULT:
        try:
            return _join(ray, "auto")
        except ConnectionError:
            return _join(ray, "local")
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    ray.init(
        address=address,
        logging_level=logging.ERROR,
        log_to_driver=False,
        runtime_env={"env_vars": passed},
        **({"include_dashboard": False} if address == "local" else {}),
    )


def check_reachable(address: str) -> None:
    """Refuse an address at which no head answers; Ray itself would try for minutes, and then exit."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise SettingsError(f"--ray {address!r} is neither auto nor local nor of the form HOST:PORT.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as line:
            line.settimeout(PATIENCE)
            if os.environ.get("RAY_USE_TLS", "0") == "0" and not _greets(line):
                raise OSError("what listens there is not Ray")
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"No Ray cluster answers at {address} ({error}); check the address, or use --ray local."
        ) from error


def _greets(line: socket.socket) -> bool:
    """Whether the other side begins as HTTP/2 does, which Ray speaks: with a frame of settings."""
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    return line.recv(4)[3:] == b"\4"
