"""What is made for a release: the bill of materials in a wheel."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from release import sbom

INFO = "taps_vlm-9.dist-info"
METADATA = """Metadata-Version: 2.4
Name: taps-vlm
Version: 9
License-Expression: Apache-2.0 AND MIT
Requires-Dist: taps-vlm-pocket==1.0.0
Requires-Dist: torch>=2.4
Requires-Dist: no-such-package
Requires-Dist: fastapi; extra == "serve"
"""
VOCABULARY = "taps/clip/bpe_simple_vocab_16e6.txt.gz"


def write_wheel(path: Path, **more: str) -> Path:
    files = {"taps/a.py": "", VOCABULARY: "words", **more, f"{INFO}/METADATA": METADATA}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{INFO}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{INFO}/RECORD"]))
    return path


def test_a_wheel_gets_a_bill_and_records_it(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "taps_vlm-9-py3-none-any.whl")
    place = sbom.inject(wheel)
    assert place == f"{INFO}/sboms/taps_vlm.cdx.json"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[-1] == f"{INFO}/RECORD"
        data, record = archive.read(place), archive.read(f"{INFO}/RECORD").decode()
        assert archive.read("taps/a.py") == b""
    sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    assert record.splitlines()[-1] == f"{place},sha256={sha},{len(data)}"


def test_the_bill_names_what_is_bundled_and_what_is_required(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "taps_vlm-9-py3-none-any.whl")
    place = sbom.inject(wheel)
    with zipfile.ZipFile(wheel) as archive:
        made = json.loads(archive.read(place))
    assert (made["bomFormat"], made["metadata"]["component"]["purl"]) == ("CycloneDX", "pkg:pypi/taps-vlm@9")
    words, *needs = made["components"]
    assert words["name"] == VOCABULARY
    assert words["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"words").hexdigest()}]
    assert words["licenses"] == [{"license": {"id": "MIT"}}]
    pinned = dict(line.split("==") for line in sbom.CONSTRAINTS.read_text().splitlines() if "==" in line)
    assert [each["purl"] for each in needs] == [
        "pkg:pypi/taps-vlm-pocket@1.0.0",
        f"pkg:pypi/torch@{pinned['torch']}",
        "pkg:pypi/no-such-package",  # not pinned: no version is made up
    ]
    assert made["dependencies"] == [
        {"ref": "pkg:pypi/taps-vlm@9", "dependsOn": [each["purl"] for each in needs]}
    ]


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "taps_vlm-9-py3-none-any.whl")
    sbom.inject(wheel)
    once = wheel.read_bytes()
    sbom.inject(wheel)
    assert wheel.read_bytes() == once


def test_a_file_whose_licence_is_not_said_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "taps_vlm-9-py3-none-any.whl", **{"taps/data/others.zip": "?"})
    with pytest.raises(SystemExit, match=r"taps/data/others\.zip is bundled"):
        sbom.inject(wheel)
