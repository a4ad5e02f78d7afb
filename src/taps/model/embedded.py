"""The package taps-vlm-pocket: where its weights, prompts and images lie, and whether they are intact."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from taps.errors import DamagedError, WeightsError

PACKAGE = "taps-vlm-pocket"
SUMS = "SHA256SUMS"
# SHA-256 of SHA256SUMS in the required version of the package; `python recipes/release/sums.py` writes it.
SUMS_DIGEST = "9dc31e23a1b2b5a31d9262db4e22b3f1e61deca05b6b02d4bb115feca7532b24"


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
    """Compare the list of digests with `SUMS_DIGEST`, and every file with its digest in the list.

    Returns:
        The SHA-256 of each file, by name.

    Raises:
        DamagedError: A file is missing or is not what was released.
    """
    sums = embedded(SUMS)
    _check(sums, SUMS_DIGEST)
    released = {name: digest for digest, name in map(str.split, sums.read_text().splitlines())}
    for name, digest in released.items():
        _check(sums.parent / name, digest)
    return released


def _check(path: Path, digest: str) -> None:
    if not path.is_file():
        raise DamagedError(f"{path} is missing: pip install --force-reinstall {PACKAGE}.")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise DamagedError(f"{path} is not what was released: pip install --force-reinstall {PACKAGE}.")
