"""The package taps-vlm-pocket: where its weights, prompts and images lie, and whether they are intact."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from taps.ed25519 import is_signed
from taps.errors import DamagedError, WeightsError

PACKAGE = "taps-vlm-pocket"
SUMS = "SHA256SUMS"
SIGNATURE = SUMS + ".sig"
# The public key (Ed25519) whose owner signs SHA256SUMS. `python recipes/release/sums.py --key KEY` writes it.
SIGNER = "4c0a220298ad6326701f21f162618a593ca97086aeb6ab4eda7adb00586e96c1"


def embedded_folder() -> Path | None:
    """Where the package is installed; None where it is not."""
    spec = find_spec("taps_pocket")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def embedded(name: str) -> Path:
    """A file or folder of the package.

    Raises:
        WeightsError: It is not installed, or has no such file.
    """
    folder = embedded_folder()
    if folder is None or not (folder / name).exists():
        raise WeightsError(f"{name} comes with {PACKAGE}, which is not installed: pip install {PACKAGE}.")
    return folder / name


def embedded_prompts(model: str, family: str) -> Path | None:
    """The folder of trained prompts that comes with the package for a model, if there is one."""
    folder = embedded_folder()
    found = folder / "prompts" / f"{model}-{family}" if folder else None
    return found if found and found.is_dir() else None


def verify_embedded() -> dict[str, str]:
    """Compare every file with its digest in the signed list.

    Returns:
        The SHA-256 of each file, by name.

    Raises:
        DamagedError: A file is missing or is not what was released.
    """
    sums = embedded(SUMS)
    if not is_signed(sums.read_bytes(), embedded(SIGNATURE).read_bytes(), bytes.fromhex(SIGNER)):
        raise DamagedError(
            f"{sums} is not signed by the key of taps-vlm ({SIGNER}): "
            f"pip install --force-reinstall {PACKAGE}."
        )
    released = {name: digest for digest, name in map(str.split, sums.read_text().splitlines())}
    for name, digest in released.items():
        path = sums.parent / name
        if not path.is_file() or _digest(path) != digest:
            what = "not what was released" if path.is_file() else "missing"
            raise DamagedError(f"{path} is {what}: pip install --force-reinstall {PACKAGE}.")
    return released


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
