"""The package with the embedded model: found, missed with a sentence, refused when a bit has changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from release import sums
from typer.testing import CliRunner

from taps import load_clip
from taps.cli.main import app
from taps.data import demo_dataset
from taps.errors import DamagedError, WeightsError
from taps.model import embedded
from taps.model.clip import Clip
from taps.model.prompts.choose import shipped, shipped_source

ROOT = Path(__file__).parents[1]


def test_every_file_is_as_released() -> None:
    released = embedded.verify_embedded()
    assert len(released) == 14
    weights = embedded.embedded("pocket.safetensors")
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == released["pocket.safetensors"]
    shown = CliRunner().invoke(app, ["models", "verify"], catch_exceptions=False)
    assert "every file is as released" in shown.output


def test_the_list_is_that_of_the_repository_and_the_code_requires_its_version() -> None:
    assert (sums.POCKET / "SHA256SUMS").read_text() == sums.sums()
    assert sums.digest(sums.sums().encode()) == embedded.SUMS_DIGEST
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = (sums.POCKET / "__init__.py").read_text().split('"')[-2]
    assert f"taps-vlm-pocket=={version}" in project["dependencies"]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = embedded.embedded_folder()
    assert found is not None
    folder = Path(shutil.copytree(found, tmp_path / "taps_pocket"))
    monkeypatch.setattr(embedded, "embedded_folder", lambda: folder)
    return folder


@pytest.mark.parametrize("name", ["pocket.safetensors", "images/sign-digits-sample.zip"])
def test_a_single_bit_is_noticed(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(DamagedError, match=f"{name} is not what was released: pip install --force-reinstall"):
        embedded.verify_embedded()


def test_a_list_that_fits_changed_files_is_noticed_too(copy: Path) -> None:
    (copy / "pocket.json").write_text("{}")
    lines = (copy / "SHA256SUMS").read_text().splitlines()
    forged = hashlib.sha256(b"{}").hexdigest()
    (copy / "SHA256SUMS").write_text(
        "".join(f"{forged if line.endswith('pocket.json') else line[:64]}{line[64:]}\n" for line in lines)
    )
    with pytest.raises(DamagedError, match="SHA256SUMS is not what was released"):
        embedded.verify_embedded()


def test_a_missing_file_is_told(copy: Path) -> None:
    (copy / "images" / "caltech101-sample.zip").unlink()
    with pytest.raises(DamagedError, match=r"caltech101-sample\.zip is missing"):
        embedded.verify_embedded()


def test_without_the_package_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tiny: Clip) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    said = "comes with taps-vlm-pocket, which is not installed: pip install taps-vlm-pocket"
    for act in (lambda: load_clip("pocket"), demo_dataset, embedded.verify_embedded):
        with pytest.raises(WeightsError, match=said):
            act()
    assert shipped(tiny, "maple") is None  # other models do without


def test_prompts_and_statistics_are_found_by_the_model_alone() -> None:
    clip = load_clip("pocket", device="cpu")
    prompts = shipped(clip, "maple")
    assert prompts is not None
    assert shipped_source(clip, prompts) is not None


def test_the_command_imports_no_torch() -> None:
    code = "import sys, taps.cli.lookup; from taps.model.embedded import verify_embedded; verify_embedded(); "
    done = subprocess.run([sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], check=False)
    assert done.returncode == 0
