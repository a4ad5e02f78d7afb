"""Build what would be released, install it in several ways, and use each as a newcomer would.

    make release-check

Nothing of the repository is on the way: commands run elsewhere, with the installed packages alone. What they
require (torch and so on) is taken from `.venv` where that is there, and else installed once, for all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 3_000_000  # bytes of the wheel without weights
OWN = ("taps", "__editable__")  # what the repository itself has put into .venv
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


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        subprocess.run([ROOT / "recipes" / "release" / "build.sh", work / "dist"], check=True)
        code, pocket = check_wheels(work / "dist")
        libraries = required(work / "libraries")
        offline = ("--no-index", "--find-links", str(work / "dist"))
        for name, arguments in (
            ("wheels, from a folder as the only index", (*offline, "taps-vlm")),
            ("sdists", ("--no-deps", *map(str, sorted((work / "dist").glob("*.tar.gz"))))),
        ):
            print(f"== {name}", flush=True)
            use(install(work / "env", libraries, arguments), work)
        print("== the code alone", flush=True)
        use_code_alone(install(work / "env", libraries, ("--no-index", "--no-deps", str(code))), work)
        one_liner(work)
        print(f"All of them work. The code is {megabytes(code)}, the embedded model {megabytes(pocket)}.")


def check_wheels(dist: Path) -> tuple[Path, Path]:
    """The wheels of code and model: the one small and without weights, both with bill and licences."""
    (code,), (pocket,) = (list(dist.glob(f"{name}-*.whl")) for name in ("taps_vlm", "taps_vlm_pocket"))
    assert code.stat().st_size < LARGEST, f"{code.name} is {megabytes(code)}"
    for wheel in (code, pocket):
        names = zipfile.ZipFile(wheel).namelist()
        for wanted in (".cdx.json", "licenses/LICENSE", "licenses/LICENSES.md"):
            assert any(name.endswith(wanted) for name in names), f"{wheel.name} has no {wanted}"
        assert (wheel == pocket) == any(name.endswith(".safetensors") for name in names), wheel.name
    return code, pocket


def megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def required(folder: Path) -> Path:
    """A folder with all that the package requires, and nothing of its own."""
    found = sorted((ROOT / ".venv").glob("lib/python*/site-packages"))
    folder.mkdir()
    if found and (found[0] / "torch").is_dir() and found[0].parent.name == this_python():
        for path in found[0].iterdir():
            if not path.name.startswith(OWN):
                (folder / path.name).symlink_to(path)
        return folder
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    others = [name for name in names if not name.startswith("taps-vlm")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *others], check=True)
    return folder


def this_python() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def install(env: Path, libraries: Path, arguments: Sequence[str]) -> Path:
    """A new environment that sees the libraries, with what the arguments of pip name.

    Returns:
        Its folder of programs.
    """
    shutil.rmtree(env, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    (site,) = env.glob("lib/python*/site-packages")
    for path in site.glob("setuptools*"):  # Python 3.11 puts one here that is too old for torch
        shutil.rmtree(path)
    (site / "libraries.pth").write_text(f"{libraries}\n")
    pip = [env / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments], check=True)
    return env / "bin"


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
    """`uvx` starts it without an installation: from the folder, and what it requires from the index."""
    if not (uvx := shutil.which("uvx")):
        print("== uvx is not installed (pip install uv): the one-liner was not tried")
        return
    print("== uvx", flush=True)
    where = ("--find-links", str(work / "dist"), "--constraints", str(ROOT / "constraints.txt"))
    run(work, uvx, "--python", sys.executable, *where, "--from", "taps-vlm", "taps", "demo", "--limit", "12",
        "--out", work / "uvx")  # fmt: skip
    assert (work / "uvx" / "report.html").stat().st_size


if __name__ == "__main__":
    main()
