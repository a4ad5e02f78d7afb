"""The recipes run on miniature zips, without the libraries of the command line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]
BLOCK = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("typer", "rich", "matplotlib"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, "recipes")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("zips")
    domains = ("photo", "art_painting", "cartoon", "sketch")
    layouts = {
        "caltech101-test.zip": ("ant", "chair"),
        "imagenette-val.zip": ("n01440764", "n02102040"),
        "pacs.zip": tuple(f"{domain}/{name}" for domain in domains for name in ("dog", "horse")),
        "tiny-imagenet-val.zip": ("n01443537", "n01629819"),
    }
    rng = np.random.default_rng(0)
    for name, folders in layouts.items():
        with zipfile.ZipFile(root / name, "w") as archive:
            for folder in folders:
                for i in range(3):
                    buffer = io.BytesIO()
                    pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                    Image.fromarray(pixels).save(buffer, format="PNG")
                    archive.writestr(f"{folder}/{i}.png", buffer.getvalue())
    return root


def run(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK, *map(str, options)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_all_tables_within_a_time_limit(data: Path, tmp_path: Path) -> None:
    out, archive = tmp_path / "out", tmp_path / "out.tar.gz"
    small = ("--model", "tiny", "--views", "2", "--rounds", "2,3", "--seeds", "1")
    done = run(
        "recipes/run_all_pocket.py", "--data", data, "--out", out, *small, "--jobs", "1", "--archive", archive
    )
    assert done.returncode == 0, done.stderr
    page = (out / "results.md").read_text()
    assert page.count("## Table") == 3
    for name in (
        "caltech101-test",
        "pacs/sketch",
        "tiny-imagenet/cartoon",
        "tpt_skip",
        "taps without alignment",
    ):
        assert name in page
    assert "Images a run: 3, the first of each order" in page
    assert "left out: promptalign" in done.stderr
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert any(name.endswith("predictions.csv") for name in names)
    assert not any("/state/" in name for name in names)
    again = run("recipes/run_all_pocket.py", "--out", out, "--page", tmp_path / "page.md")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "page.md").read_text() == page
    # The same command once more: nothing is to do, the first and shorter round is no obstacle.
    more = run("recipes/run_all_pocket.py", "--data", data, "--out", out, *small, "--jobs", "1")
    assert more.returncode == 0, more.stderr
    assert (out / "results.md").read_text() == page


def test_no_time_at_all_is_recorded(data: Path, tmp_path: Path) -> None:
    done = run(
        *(
            "recipes/run_all_pocket.py",
            "--data",
            data,
            "--out",
            tmp_path,
            "--model",
            "tiny",
            "--time-limit",
            "0",
        ),
        *("--tables", "1", "--seeds", "1"),
    )
    assert "holds no results" in done.stderr
    assert "time was up" in (tmp_path / "unfinished.json").read_text()


def test_one_table(data: Path, tmp_path: Path) -> None:
    options = (
        "--scale",
        "pocket",
        "--model",
        "tiny",
        "--views",
        "2",
        "--seeds",
        "1",
        "--limit",
        "2",
        "--no-plots",
    )
    done = run("recipes/table1.py", *options, "--data", data, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| tpt_skip |" in (tmp_path / "report.md").read_text()


def test_missing_folders_are_sentences(tmp_path: Path) -> None:
    done = run("recipes/table2.py", "--scale", "paper", "--out", tmp_path)
    assert done.returncode != 0
    assert (
        done.stderr.strip()
        == "table2.py: The paper's scale needs --root, the folder that holds the data sets."
    )


def test_thin_zips_keep_the_order(data: Path, tmp_path: Path) -> None:
    from taps.data import load_dataset, stream_order

    done = run("recipes/sparse_zips.py", "--data", data, "--to", tmp_path, "--limit", "2", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    whole, thin = (load_dataset(place / "pacs.zip" / "photo") for place in (data, tmp_path))
    assert whole.samples == thin.samples
    used = stream_order(len(whole), 1, 2).tolist()
    assert [thin.read(i) for i in used] == [whole.read(i) for i in used]
    assert all(thin.read(i) == b"" for i in range(len(whole)) if i not in used)
