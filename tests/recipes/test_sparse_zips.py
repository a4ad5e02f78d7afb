"""`recipes/sparse_zips.py` on miniature zips."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


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
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, options)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_thin_zips_keep_the_order(data: Path, tmp_path: Path) -> None:
    from taps.data import load_dataset, stream_order

    done = run("recipes/sparse_zips.py", "--data", data, "--to", tmp_path, "--limit", "2", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    whole, thin = (load_dataset(place / "pacs.zip" / "photo") for place in (data, tmp_path))
    assert whole.samples == thin.samples
    used = stream_order(len(whole), 1, 2).tolist()
    assert [thin.read(i) for i in used] == [whole.read(i) for i in used]
    assert all(thin.read(i) == b"" for i in range(len(whole)) if i not in used)
