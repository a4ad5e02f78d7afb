"""Build what would be released, install it in several ways, and use each as a newcomer would.

    make release-check

All that is required is downloaded into a folder once. Each way then is an environment of its own with that
folder as the only index, and commands run elsewhere: nothing of the repository is on the way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 3_000_000  # bytes of the wheel without weights
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
CHECKERS = ("uv",)
USE = """
import taps
from taps.data import demo_dataset
images = demo_dataset()
learner = taps.Learner(taps.load_clip("pocket"), images.classes, method="taps", views=2)
prediction = learner.predict_one(images.image(0))
assert prediction.label in images.classes
learner.save("learner")
assert taps.Learner.load("learner").seen == 1
from importlib.metadata import version
assert version("taps-vlm") == taps.__version__, (version("taps-vlm"), taps.__version__)
"""
SERVE = """
import subprocess, sys, taps
from taps.data import demo_dataset
command = [sys.executable, "-m", "taps", "serve", "--model", "pocket", "--store", "store", "--port", "0"]
process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    url = next(line.split()[-1] for line in process.stdout if "Serving at" in line)
    with taps.Client(url) as client:
        client.create_stream("pets", ["cat", "dog"], method="zero_shot")
        assert client.predict("pets", demo_dataset().read(0))
finally:
    process.terminate()
assert process.wait() == 0
"""
LABEL = """
import subprocess, sys, urllib.request
command = [sys.executable, "-m", "taps", "demo", "--serve", "--limit", "12", "--out", "page"]
process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    url = next(line.split()[-1] for line in process.stdout if "Label at" in line)
    assert b"<html" in urllib.request.urlopen(url).read()
finally:
    process.kill()
process.wait()
"""
HEIF = """
import io, pillow_heif
from PIL import Image
from taps.model.images.decode import load_image
file = io.BytesIO()
pillow_heif.from_pillow(Image.new("RGB", (64, 48))).save(file)
assert load_image(file.getvalue()).shape == (48, 64, 3)
"""
HUB = """
from taps.model.clip.hub import published
import huggingface_hub
"""
POSTGRES = "import psycopg, taps.serve.database"
RAY = "import ray, taps.cluster.connect, taps.cluster.runs, taps.cluster.stats"
EXTRAS = {"label": LABEL, "serve": SERVE, "postgres": POSTGRES, "heif": HEIF, "hub": HUB, "ray": RAY}


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        subprocess.run([ROOT / "recipes" / "release" / "build.sh", work / "dist"], check=True)
        code, pocket = check_wheels(work / "dist")
        checkers(work)
        download(work)
        told("wheels, from a folder as the only index, by pip")
        use(by_pip(work, "taps-vlm"), work)
        told("sdists")
        use(by_uv(work, *map(str, sorted((work / "dist").glob("*.tar.gz")))), work)
        for extra, lines in EXTRAS.items():
            told(f"taps-vlm[{extra}]")
            run(work, by_uv(work, f"taps-vlm[{extra}]") / "python", "-c", lines)
        told("the code alone")
        others = [name for name in required() if not name.startswith("taps-vlm")]
        by_uv(work, *others)
        use_code_alone(by_uv(work, "--no-deps", str(code), fresh=False), work)
        told("uvx --from taps-vlm taps demo")
        one_liner(work)
        print(f"All of them work. The code is {megabytes(code)}, the embedded model {megabytes(pocket)}.")


def told(what: str) -> None:
    print(f"== {what}", flush=True)


def check_wheels(dist: Path) -> tuple[Path, Path]:
    """The wheels of code and model: the one small and without weights, both with licences."""
    (code,), (pocket,) = (list(dist.glob(f"{name}-*.whl")) for name in ("taps_vlm", "taps_vlm_pocket"))
    assert code.stat().st_size < LARGEST, f"{code.name} is {megabytes(code)}"
    for wheel in (code, pocket):
        names = zipfile.ZipFile(wheel).namelist()
        for wanted in ("licenses/LICENSE", "licenses/LICENSES.md"):
            assert any(name.endswith(wanted) for name in names), f"{wheel.name} has no {wanted}"
        assert (wheel == pocket) == any(name.endswith(".safetensors") for name in names), wheel.name
    return code, pocket


def megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def required() -> list[str]:
    """What the package requires, without extras."""
    names: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return names


def checkers(work: Path) -> None:
    """An environment with what installs."""
    subprocess.run([sys.executable, "-m", "venv", work / "tools"], check=True)
    subprocess.run([work / "tools" / "bin" / "python", *PIP, *CHECKERS], check=True)


def download(work: Path) -> None:
    """All wheels that any extra needs, in the versions tested together, in the folder `wheels`."""
    extras = ",".join(EXTRAS)
    pip = (work / "tools" / "bin" / "python", "-m", "pip", "download", "--quiet", "--dest", work / "wheels")
    where = ("--find-links", work / "dist", "-c", ROOT / "constraints.txt")
    subprocess.run([*pip, *where, f"taps-vlm[{extras}]", "setuptools"], check=True)


def by_pip(work: Path, *what: str) -> Path:
    """The programs of a new environment with what pip installs from the folder of wheels."""
    shutil.rmtree(work / "env", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", work / "env"], check=True)
    python = work / "env" / "bin" / "python"
    subprocess.run([python, *PIP, "--no-index", "--find-links", work / "wheels", *what], check=True)
    return python.parent


def by_uv(work: Path, *what: str, fresh: bool = True) -> Path:
    """The same by uv, which takes a second: it links files instead of writing them."""
    python = work / "env" / "bin" / "python"
    if fresh:
        shutil.rmtree(work / "env")
        uv(work, "venv", "--python", sys.executable, work / "env")
    uv(work, "pip", "install", "--python", python, "--no-index", "--find-links", work / "wheels", *what)
    return python.parent


def uv(work: Path, *words: str | Path) -> str:
    return run(work, work / "tools" / "bin" / "uv", "--cache-dir", work / "cache", *words)


def run(work: Path, *command: str | Path, code: int = 0) -> str:
    """What a command says in a folder of its own; it must end with this exit code."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def use(programs: Path, work: Path) -> None:
    """A version, a list, the digests, a short demo, ten lines of Python."""
    print(run(work, programs / "taps", "--version"), end="")
    run(work, programs / "taps", "methods")
    assert "every file is as released" in run(work, programs / "taps", "models", "verify")
    shutil.rmtree(work / "demo", ignore_errors=True)
    run(work, programs / "taps", "demo", "--limit", "12", "--out", work / "demo")
    assert (work / "demo" / "report.html").stat().st_size
    shutil.rmtree(work / "learner", ignore_errors=True)
    run(work, programs / "python", "-c", USE)


def use_code_alone(programs: Path, work: Path) -> None:
    """It says what it lacks, and does the rest."""
    run(work, programs / "taps", "methods")
    said = run(work, programs / "taps", "demo", "--limit", "12", "--out", work / "none", code=2)
    assert "pip install taps-vlm-pocket" in said, said
    run(work, programs / "python", "-c", "import taps; taps.load_clip('tiny')")


def one_liner(work: Path) -> None:
    """It starts the demo without an installation, with the folder as the only index."""
    where = ("--python", sys.executable, "--no-index", "--find-links", work / "wheels")
    uv(work, "tool", "run", *where, "--from", "taps-vlm", "taps", "demo", "--limit", "12", "--out", "uvx")
    assert (work / "uvx" / "report.html").stat().st_size


if __name__ == "__main__":
    main()
