"""Put a bill of materials into a wheel: `dist-info/sboms/`, as PEP 770 has it, in CycloneDX's JSON.

    python recipes/release/sbom.py dist/*.whl

It lists what is bundled, with digests and licences, and what the wheel requires, in the versions tested
together. setuptools has no setting for it, so the built wheel is written again, its RECORD with it. Equal
wheels get equal bills.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
# What was not written for the package: kind of component, licence, source; LICENSES.md says more.
CALTECH, DIGITS = "https://doi.org/10.22002/D1.20086", "https://arxiv.org/abs/2011.08927"
BUNDLED = {
    "taps/clip/bpe_simple_vocab_16e6.txt.gz": ("data", "MIT", "https://github.com/openai/CLIP"),
    "taps_pocket/pocket.safetensors": ("machine-learning-model", "Apache-2.0", ""),
    "taps_pocket/prompts/pocket-coop/prompts.safetensors": ("machine-learning-model", "Apache-2.0", ""),
    "taps_pocket/prompts/pocket-cocoop/prompts.safetensors": ("machine-learning-model", "Apache-2.0", ""),
    "taps_pocket/prompts/pocket-maple/prompts.safetensors": ("machine-learning-model", "Apache-2.0", ""),
    "taps_pocket/prompts/pocket-maple/source.safetensors": ("data", "Apache-2.0", ""),
    "taps_pocket/prompts/pocket-proda/prompts.safetensors": ("machine-learning-model", "Apache-2.0", ""),
    "taps_pocket/images/caltech101-sample.zip": ("data", "CC-BY-4.0", CALTECH),
    "taps_pocket/images/sign-digits-sample.zip": ("data", "Apache-2.0", DIGITS),
}
PLAIN = (".py", ".json", ".md", ".txt", ".html", ".js", ".css", ".svg", ".typed", "SHA256SUMS")


def bill(files: Mapping[str, bytes], info: str) -> dict[str, Any]:
    """The bill of a wheel with these files, whose metadata are in the folder `info`."""
    metadata = Parser().parsestr(files[f"{info}/METADATA"].decode())
    whole = package(metadata["Name"], metadata["Version"])
    whole["licenses"] = [{"expression": metadata["License-Expression"]}]
    parts = [bundled(name, data) for name, data in sorted(files.items()) if is_bundled(name, info)]
    needs = requirements(metadata)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, whole["purl"] + digest(files[f"{info}/RECORD"]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": serial.urn,
        "version": 1,
        "metadata": {"component": whole},
        "components": [*parts, *needs],
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": [each["bom-ref"] for each in needs]}],
    }


def package(name: str, version: str) -> dict[str, Any]:
    """A component that is a package of PyPI; without a version where none is pinned."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{plain}@{version}" if version else f"pkg:pypi/{plain}"
    there = {"version": version} if version else {}
    return {"type": "library", "bom-ref": purl, "name": plain, **there, "purl": purl}


def is_bundled(name: str, info: str) -> bool:
    """Whether a file is listed by itself; one of an unknown kind must be named above with its licence."""
    if name not in BUNDLED and not name.startswith(info) and not name.endswith(PLAIN):
        raise SystemExit(f"{name} is bundled, but recipes/release/sbom.py does not say under which licence.")
    return name in BUNDLED


def bundled(name: str, data: bytes) -> dict[str, Any]:
    kind, licence, source = BUNDLED[name]
    return {
        "type": kind,
        "bom-ref": name,
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest(data)}],
        "licenses": [{"license": {"id": licence}}],
        **({"externalReferences": [{"type": "website", "url": source}]} if source else {}),
    }


def requirements(metadata: Message) -> list[dict[str, Any]]:
    """What is always required; extras are left out."""
    lines = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    pinned = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if "==" in line)
    found = [re.match(r"([\w.-]+)(?:==([\w.]+))?", line) for line in lines]
    return [package(each[1], each[2] or pinned.get(each[1], "")) for each in found if each]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def inject(wheel: Path) -> str:
    """Write a wheel again with its bill of materials; says where in the wheel it is."""
    with zipfile.ZipFile(wheel) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        files = {name: archive.read(name) for name in infos if not name.endswith("/")}
    (record,) = [name for name in files if name.endswith(".dist-info/RECORD")]
    folder = record.removesuffix("/RECORD")
    place = f"{folder}/sboms/{folder.split('-')[0]}.cdx.json"
    files.pop(place, None)
    files[record] = "".join(
        line for line in files[record].decode().splitlines(keepends=True) if not line.startswith(f"{place},")
    ).encode()  # equal before and after: a wheel that has its bill gets the same one again
    files[place] = (json.dumps(bill(files, folder), indent=1) + "\n").encode()
    files[record] = recorded(files[record], place, files[place])
    infos[place] = zipfile.ZipInfo(place, infos[record].date_time)
    infos[place].external_attr = infos[record].external_attr
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files, key=lambda name: name == record):  # RECORD comes last
            archive.writestr(infos[name], files[name], zipfile.ZIP_DEFLATED)
    part.replace(wheel)
    return place


def recorded(record: bytes, place: str, data: bytes) -> bytes:
    """RECORD with one file more."""
    sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return record + f"{place},sha256={sha},{len(data)}\n".encode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put a bill of materials into wheels.")
    parser.add_argument("wheels", type=Path, nargs="+")
    for path in parser.parse_args().wheels:
        print(f"{path.name}: {inject(path)}")
