"""Source statistics against sums written out; merged, resumed, refused."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from taps import Learner
from taps.data import load_dataset
from taps.errors import DataError, ImageError, SettingsError, StateError
from taps.model.prompts.source import SourceStats, merge_stats
from taps.study.training import stats as module
from taps.study.training.stats import collect_stats, parse_layers

NAMES = ("cat", "dog", "bird")


class Pictures:
    """Small pictures in memory, some classes with more of them."""

    name, classes = "pictures", NAMES

    def __init__(self, picture, numbers, broken=()):
        self.picture, self.numbers, self.broken = picture, list(numbers), broken
        self.labels = [0 if n % 5 == 0 else 1 + n % 2 for n in self.numbers]

    def __len__(self):
        return len(self.numbers)

    def image(self, index):
        if self.numbers[index] in self.broken:
            raise ImageError(f"{self.numbers[index]} is broken.")
        return self.picture(self.numbers[index])[:32, :32]  # no resizing: view 0 is the picture itself


@pytest.fixture
def images(picture):
    return Pictures(picture, range(23))


def naive(clip, prompts, images, layer):
    """Every input of one block, in double precision."""
    vision = (
        prompts.parameters["coupling.weight"]
        @ torch.cat([prompts.parameters["context"][None], prompts.parameters["deep"]]).mT
        + prompts.parameters["coupling.bias"][..., None]
    )
    rows = []
    for index in range(len(images)):
        pixels = torch.from_numpy(images.image(index).copy()).permute(2, 0, 1)[None]
        (kept,) = clip.image_layers(clip.preprocess(pixels), vision.mT, [layer])
        rows.append(kept[0].double().numpy())
    return np.stack(rows)


def close(tensor, array):
    return np.allclose(tensor.double().numpy(), array, atol=2e-5)


def test_whole_and_class_moments(tiny, maple_prompts, images):
    found = collect_stats(tiny, maple_prompts, images, layers=(1, 3), per_class=True, batch=4)
    assert found.layers == (1, 3)
    assert found.count == 23
    labels = np.array(images.labels)
    for place, layer in enumerate((1, 3)):
        values = naive(tiny, maple_prompts, images, layer)
        assert close(found.mean[place], values.mean(0))
        assert close(found.variance[place], values.var(0))
        for label, name in enumerate(NAMES):
            row = found.classes.index(name)
            own = values[labels == label]
            assert int(found.class_counts[row]) == len(own)
            assert close(found.class_means[row][place], own.mean(0))
            assert close(found.class_variances[row][place], own.var(0))


def same(one, two, atol=0.0):
    parts = ("mean", "variance", "class_means", "class_variances")
    assert one.classes == two.classes
    return all(torch.allclose(getattr(one, p), getattr(two, p), atol=atol, rtol=0) for p in parts)


def test_merged_parts_are_the_whole(tiny, maple_prompts, picture, images, tmp_path):
    whole = collect_stats(tiny, maple_prompts, images, per_class=True)
    halves = [
        collect_stats(tiny, maple_prompts, Pictures(picture, numbers), per_class=True)
        for numbers in (range(9), range(9, 23))
    ]
    for place, half in enumerate(halves):
        half.save(tmp_path / str(place), None)
    merged = merge_stats([SourceStats.load(tmp_path / str(place)) for place in range(2)])
    assert merged.count == whole.count
    assert same(merged, whole, atol=1e-12)
    # In half precision on disk, the merge is as good as half precision is.
    for place, half in enumerate(halves):
        half.save(tmp_path / f"{place}h")
    rough = merge_stats([SourceStats.load(tmp_path / f"{place}h") for place in range(2)])
    assert not same(rough, whole, atol=1e-9)
    assert same(rough, whole, atol=1e-2)
    # A part that is in what was merged before is known again, also where it is rounded.
    merged.save(tmp_path / "merged")
    for name in ("0", "1", "0h", "1h"):
        with pytest.raises(StateError, match="twice"):
            merge_stats([SourceStats.load(tmp_path / "merged"), SourceStats.load(tmp_path / name)])


def test_a_class_in_one_part_only_is_merged(tiny, maple_prompts, picture):
    one = collect_stats(tiny, maple_prompts, Pictures(picture, [1, 3]), per_class=True)
    two = collect_stats(tiny, maple_prompts, Pictures(picture, [5, 10, 2]), per_class=True)
    merged = merge_stats([one, two])
    counts = dict(zip(merged.classes, merged.class_counts.tolist(), strict=True))
    assert counts == {"bird": 2, "cat": 2, "dog": 1}


def test_what_does_not_belong_together_is_not_merged(tiny, maple_prompts, images):
    found = collect_stats(tiny, maple_prompts, images, per_class=True)
    for other in (
        replace(found, model="other"),
        replace(found, prompts="other"),
        collect_stats(tiny, maple_prompts, images, layers=(0, 2), per_class=True),
        collect_stats(tiny, maple_prompts, images),
    ):
        with pytest.raises(StateError):
            merge_stats([found, other])


class StopError(Exception):
    pass


def test_a_resumed_pass_ends_with_the_same_bits(tiny, maple_prompts, images, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_EVERY_S", -1.0)
    whole = collect_stats(tiny, maple_prompts, images, per_class=True, batch=4)
    file = tmp_path / "half"

    def interrupt(done, total):
        if done >= 12:
            raise StopError

    options = {"per_class": True, "batch": 4, "progress_file": file}
    with pytest.raises(StopError):
        collect_stats(tiny, maple_prompts, images, **options, report=interrupt)
    seen = []
    resumed = collect_stats(
        tiny, maple_prompts, images, **options, resume=True, report=lambda done, total: seen.append(done)
    )
    assert seen[0] == 12  # the eight images saved are not read again
    assert same(resumed, whole)
    with pytest.raises(StateError, match="per_class"):
        collect_stats(tiny, maple_prompts, images, batch=4, progress_file=file, resume=True)


def test_broken_images_are_left_out_and_said_so(tiny, maple_prompts, picture, caplog):
    found = collect_stats(tiny, maple_prompts, Pictures(picture, range(6), broken=(2, 3)), batch=2)
    clean = collect_stats(tiny, maple_prompts, Pictures(picture, [0, 1, 4, 5]), batch=2)
    assert found.count == 4
    assert same(found, clean, atol=1e-12)
    assert "2 images" in caplog.text
    with pytest.raises(DataError, match="no readable image"):
        collect_stats(tiny, maple_prompts, Pictures(picture, range(2), broken=(0, 1)))


def test_blocks_that_are_not_there_are_refused(tiny, maple_prompts, images):
    for layers in ((), (0, 0), (4,), (-1,)):
        with pytest.raises(SettingsError, match="blocks"):
            collect_stats(tiny, maple_prompts, images, layers=layers)


def test_blocks_by_name(tiny):
    assert parse_layers("all", tiny) == (0, 1, 2, 3)
    assert parse_layers("0, 2", tiny) == (0, 2)
    for text in ("", "first", "0,9"):
        with pytest.raises(SettingsError, match=r"all|blocks"):
            parse_layers(text, tiny)


def test_values_beyond_half_precision_are_kept(tiny, maple_prompts, images, tmp_path):
    found = collect_stats(tiny, maple_prompts, images)
    huge = replace(found, variance=found.variance * 1e9)
    huge.save(tmp_path / "s")
    again = SourceStats.load(tmp_path / "s")
    assert torch.isfinite(again.variance).all()
    assert torch.allclose(again.variance.double(), huge.variance, rtol=1e-6)


def test_statistics_serve_promptalign_and_refuse_other_prompts(
    tiny, maple_prompts, images, tmp_path, picture
):
    found = collect_stats(tiny, maple_prompts, images, per_class=True)
    found.save(tmp_path / "s")
    settings = {"views": 4, "fraction": 0.5, "source": tmp_path / "s"}
    learner = Learner(tiny, NAMES, "promptalign", prompts=maple_prompts, **settings)
    assert learner.predict_one(picture(1)).entropy > 0
    other = replace(
        maple_prompts, parameters={**maple_prompts.parameters, "deep": maple_prompts.parameters["deep"] + 1}
    )
    with pytest.raises(StateError, match="made with prompts"):
        Learner(tiny, NAMES, "promptalign", prompts=other, **settings)


def test_files_that_cannot_be_read_are_left_out_too(tiny, maple_prompts, pictures, tmp_path, caplog):
    folder = tmp_path / "pictures"
    shutil.copytree(pictures, folder)
    (folder / "ant" / "lost.png").symlink_to(folder / "nowhere.png")
    found = collect_stats(tiny, maple_prompts, load_dataset(folder))
    assert found.count == 24
    assert "1 images" in caplog.text
