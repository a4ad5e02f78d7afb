"""Training prompts: it helps, it can be interrupted, and bad input leaves nothing behind."""

import io
import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from taps import Learner
from taps.cli.train import join, labelled_images
from taps.errors import DataError, ImageError, PromptsError, SettingsError, StateError
from taps.model.prompts import Prompts, Recipe
from taps.study.training import train as training
from taps.study.training.passes import crop_batches, in_batches, random_crop
from taps.study.training.recipe import learning_rate, recipe_for
from taps.study.training.train import train_prompts

NAMES = ("cat", "dog", "bird", "fire truck")


class Waves:
    """Four kinds of stripes in four tints under heavy noise."""

    name, classes = "waves", NAMES

    def __init__(self, seed, per_class):
        self.seed = seed
        self.labels = [i % 4 for i in range(4 * per_class)]

    def __len__(self):
        return len(self.labels)

    def image(self, index):
        rng, kind = np.random.default_rng([self.seed, index]), self.labels[index]
        y, x = np.mgrid[:40, :40]
        wave = [np.sin(x), np.sin(y / 2), np.sin((x + y) / 3), 0 * x][kind]
        tint = [[40, 0, -40], [-40, 40, 0], [0, -40, 40], [30, 30, -60]][kind]
        pixels = rng.normal(128, 40, (40, 40, 3)) + 70 * wave[..., None] + tint
        return pixels.clip(0, 255).astype(np.uint8)


def right(clip, method, data, **settings):
    learner = Learner(clip, NAMES, method, **settings)
    return sum(learner.predict_one(data.image(i)).index == data.labels[i] for i in range(len(data)))


@pytest.mark.parametrize(("kind", "epochs"), [("coop", 12), ("maple", 8), ("proda", 8)])
def test_training_raises_held_out_accuracy_beyond_chance(tiny, kind, epochs):
    held_out = Waves(seed=1, per_class=30)
    before = right(tiny, "zero_shot", held_out)
    recipe = recipe_for(kind, epochs=epochs, batch=8, lr=0.02)
    prompts = train_prompts(tiny, Waves(seed=0, per_class=16), kind, recipe)
    after = right(tiny, kind, held_out, prompts=prompts)
    # Three standard deviations of a difference of two counts.
    assert after - before > 3 * math.sqrt(2 * len(held_out) * 0.25)
    history = prompts.record["history"]
    assert history[-1]["loss"] < history[0]["loss"]


def test_cocoop_learns_too(tiny):
    data = Waves(seed=0, per_class=4)
    recipe = Recipe(epochs=6, batch=4, lr=2e-3, crops=1)
    history = train_prompts(tiny, data, "cocoop", recipe).record["history"]
    assert history[-1]["loss"] < history[0]["loss"]


SMALL = Recipe(epochs=4, batch=3, lr=0.02, crops=2)


class StopError(Exception):
    pass


@pytest.mark.parametrize("kind", ["coop", "maple"])
@pytest.mark.parametrize("stop_after", [1, 3])
def test_a_resumed_training_ends_with_the_same_bits(tiny, tmp_path, kind, stop_after):
    data, file = Waves(seed=0, per_class=2), tmp_path / "half"

    def interrupt(tick):
        if tick.epoch == stop_after and tick.batch == 2:
            raise StopError

    whole = train_prompts(tiny, data, kind, SMALL, seed=5)
    with pytest.raises(StopError):
        train_prompts(tiny, data, kind, SMALL, seed=5, progress_file=file, report=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["half"]
    epochs = []
    resumed = train_prompts(
        tiny,
        data,
        kind,
        SMALL,
        seed=5,
        progress_file=file,
        resume=True,
        report=lambda t: epochs.append(t.epoch),
    )
    assert min(epochs) == stop_after
    assert resumed.fingerprint == whole.fingerprint
    assert resumed.record == whole.record


def test_another_seed_or_recipe_is_another_training(tiny, tmp_path):
    data, file = Waves(seed=0, per_class=2), tmp_path / "half"
    one = train_prompts(tiny, data, "coop", SMALL, seed=0, progress_file=file)
    assert one.fingerprint != train_prompts(tiny, data, "coop", SMALL, seed=1).fingerprint
    with pytest.raises(StateError, match="seed=0"):
        train_prompts(tiny, data, "coop", SMALL, seed=1, progress_file=file, resume=True)
    with pytest.raises(StateError, match="batch"):
        train_prompts(tiny, data, "coop", Recipe(4, 5, 0.02, crops=2), progress_file=file, resume=True)


def test_a_loss_that_explodes_stops_with_a_sentence(tiny):
    with pytest.raises(PromptsError, match="lower --lr"):
        train_prompts(tiny, Waves(0, 2), "coop", Recipe(epochs=8, batch=2, lr=1e38, warmup=0))


def test_schedule_against_the_formula():
    recipe = recipe_for("maple", epochs=5)
    assert learning_rate(recipe, 0) == 1e-5
    for epoch in range(1, 5):
        assert math.isclose(learning_rate(recipe, epoch), 2.6e-3 * math.cos(math.pi * epoch / 10) ** 2)
    assert learning_rate(recipe_for("maple", epochs=1), 0) == 2.6e-3  # something must be learned


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"lr": -1.0}, {"lr": math.nan}])
def test_recipes_out_of_range_are_refused(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        recipe_for("coop", **wrong)


def test_crops_are_the_same_whenever_they_are_made():
    data = Waves(0, 3)
    batches = in_batches([5, 0, 7, 2, 11], 2)
    made = torch.cat(list(crop_batches(data, batches, size=16, seed=3, draw=1)))
    alone = torch.stack([random_crop(data, i, size=16, seed=3, draw=1) for i in (5, 0, 7, 2, 11)])
    assert torch.equal(made, alone)
    other = torch.stack([random_crop(data, i, size=16, seed=3, draw=2) for i in (5, 0, 7, 2, 11)])
    assert not torch.equal(made, other)


def test_prompts_survive_the_disk(tiny, tmp_path):
    prompts = train_prompts(tiny, Waves(0, 2), "maple", SMALL)
    prompts.save_pretrained(tmp_path / "p")
    again = Prompts.from_pretrained(tmp_path / "p")
    assert again.fingerprint == prompts.fingerprint
    assert again.record == prompts.record
    assert again.record["samples"]


def png(seed):
    buffer = io.BytesIO()
    Image.fromarray(Waves(0, 9).image(seed)).save(buffer, format="PNG")
    return buffer.getvalue()


def wnid_zip(path: Path, counts, start=0):
    with zipfile.ZipFile(path, "w") as archive:
        for label, (wnid, count) in enumerate(counts.items()):
            for i in range(count):
                archive.writestr(f"{wnid}/{start + i}.png", png(label + 4 * i))
    return path


COUNTS = {"n01440764": 3, "n02102040": 3, "n03445777": 4}


def call(*arguments, cwd):
    command = [sys.executable, "-c", "from taps.cli.main import run; run()", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def test_command_on_two_zips_of_wnids(tmp_path):
    one, two = wnid_zip(tmp_path / "a.zip", COUNTS), wnid_zip(tmp_path / "b.zip", COUNTS, start=10)
    done = call(
        *("train", "coop", "--model", "tiny", "--data", one, "--data", two, "--shots", 5),
        *("--epochs", 2, "--batch", 4, "--out", tmp_path / "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "epoch 2/2" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip", "out"]
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["record"]["shots"] == 5
    assert config["record"]["images"] == 15
    again = call("train", "coop", "--model", "tiny", "--data", one, "--out", tmp_path / "out", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_command_refuses_a_class_with_too_few_images_and_writes_nothing(tmp_path):
    data = wnid_zip(tmp_path / "a.zip", COUNTS)
    done = call(
        *("train", "maple", "--model", "tiny", "--data", data, "--shots", 4, "--out", tmp_path / "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "tench (3)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_broken_image_is_named_before_anything_is_trained(tiny, tmp_path):
    path = wnid_zip(tmp_path / "a.zip", COUNTS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("n01440764/broken.png", b"no image")
    data = labelled_images([str(path)])
    ticks = []
    with pytest.raises(ImageError, match="broken"):
        train_prompts(tiny, data, "coop", SMALL, report=ticks.append)
    assert not ticks


def test_joined_sets_keep_labels_and_pixels(tmp_path):
    one = labelled_images([str(wnid_zip(tmp_path / "a.zip", COUNTS))])
    fewer = {"n03445777": 2, "n01440764": 2}
    two = labelled_images([str(wnid_zip(tmp_path / "b.zip", fewer, start=10))])
    both = join([one, two])
    assert both.classes == one.classes
    assert len(both) == len(one) + len(two)
    for index in range(len(two)):
        place = len(one) + index
        assert np.array_equal(both.image(place), two.image(index))
        assert both.classes[both.labels[place]] == two.classes[two.labels[index]]


def test_images_without_labels_are_refused(tiny):
    data = Waves(0, 2)
    data.labels[3] = None
    with pytest.raises(DataError, match="without a label"):
        train_prompts(tiny, data, "coop", SMALL)


@pytest.mark.parametrize("kind", ["coop", "cocoop", "maple", "proda"])
def test_mixed_precision_trains_on_nearly_the_same_losses(tiny, monkeypatch, kind):
    """What a GPU does, done by the CPU: half-precision products around float32 parameters."""
    data, recipe = Waves(0, 2), Recipe(epochs=2, batch=4, lr=2e-3, crops=1)
    full = train_prompts(tiny, data, kind, recipe).record["history"]
    monkeypatch.setattr(training, "mixed_precision", lambda _: torch.autocast("cpu", dtype=torch.bfloat16))
    mixed = train_prompts(tiny, data, kind, recipe)
    assert all(value.dtype == torch.float32 for value in mixed.parameters.values())
    for one, two in zip(full, mixed.record["history"], strict=True):
        assert one["loss"] != two["loss"]
        assert abs(one["loss"] - two["loss"]) < 0.05
