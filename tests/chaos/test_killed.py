"""A stream killed without warning, again and again, comes to the same end as one left cleanly."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from taps import Learner
from taps.model.clip import Clip

# Saves after every image: as many saves to be killed in as there can be.
STREAM = """
import hashlib, json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from taps import Learner, load_clip
from taps.model.prompts.maple import Maple
import numpy as np

where, images = Path(sys.argv[1]), int(sys.argv[2])
clip = load_clip("tiny", device="cpu")
if (where / "saved" / "learner.json").exists():
    learner = Learner.load(where / "saved", clip=clip)
else:
    prompts = Maple().initial(clip, torch.Generator().manual_seed(11))
    learner = Learner(clip, ["cat", "dog", "ship"], "taps", prompts=prompts, views=4, reset=sys.argv[3],
                      policy="random", rate=0.5, buffer=3, seed=1)
with (where / "said.jsonl").open("a") as log:
    while learner.seen < images:
        rng = np.random.default_rng(learner.seen)
        picture = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
        said = learner.predict_one(picture)
        late = said.id - 2
        if late in learner.pending:
            learner.learn_one(late, late % 3)
        row = [said.id, said.index, said.ask, said.entropy, hashlib.sha256(said.probs.tobytes()).hexdigest()]
        log.write(json.dumps(row) + "\\n")
        log.flush()
        learner.save(where / "saved")
"""


def start(where: Path, images: int, reset: str) -> subprocess.Popen[bytes]:
    where.mkdir(exist_ok=True)
    command = [sys.executable, "-c", STREAM, str(where), str(images), reset]
    with (where / "errors.txt").open("ab") as errors:
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=errors)


def said_in(where: Path) -> dict[int, list[object]]:
    """What was said of each image; of one predicted twice, before and after a kill, the same must be said."""
    rows: dict[int, list[object]] = {}
    lines = (where / "said.jsonl").read_text().splitlines() if (where / "said.jsonl").exists() else []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the kill came while it was written
        assert rows.setdefault(row[0], row) == row, f"said again of image {row[0]}"
    return rows


def state_digest(where: Path, clip: Clip) -> str:
    state = Learner.load(where / "saved", clip=clip).state_dict()
    digest = hashlib.sha256(json.dumps(state["values"], sort_keys=True).encode())
    for name in sorted(state["tensors"]):
        digest.update(name.encode())
        digest.update(state["tensors"][name].numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["sample", "never"])
def test_killed_again_and_again(tiny: Clip, tmp_path: Path, reset: str) -> None:
    images = 100
    calm = start(tmp_path / "calm", images, reset)
    assert calm.wait() == 0, (tmp_path / "calm" / "errors.txt").read_text()
    rng = random.Random(0)
    kills = 0
    while True:
        process = start(tmp_path / "killed", images, reset)
        if kills < 6:
            before = len(said_in(tmp_path / "killed"))
            while process.poll() is None and len(said_in(tmp_path / "killed")) < before + rng.randint(2, 9):
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.02))  # into a prediction or into a save
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            saved = tmp_path / "killed" / "saved"
            if (saved / "learner.json").exists():
                assert Learner.load(saved, clip=tiny).seen >= before - 1
            continue
        assert process.wait() == 0, (tmp_path / "killed" / "errors.txt").read_text()
        break
    assert said_in(tmp_path / "killed") == said_in(tmp_path / "calm")
    assert len(said_in(tmp_path / "calm")) == images
    assert state_digest(tmp_path / "killed", tiny) == state_digest(tmp_path / "calm", tiny)
    names = sorted(path.name for path in (tmp_path / "killed" / "saved").glob("[!.]*"))
    assert len(names) == 4, names  # two indices, each with its tensors
