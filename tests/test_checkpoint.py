"""A learner on disk: crashes at every point of a save, directories that vanish, files that are damaged."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from taps import Learner, load_clip
from taps.errors import DamagedError, StateError, TapsError
from taps.learner import checkpoint
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats
from taps.types import PixelArray
from tests.statistics import made_up_stats
from tests.walks import CLASSES, same_state, walk

Picture = Callable[[int], PixelArray]
SMALL: dict[str, Any] = {"views": 4, "policy": "random", "rate": 0.6, "buffer": 4}


@pytest.fixture
def learner(tiny: Clip, maple_prompts: Prompts, picture: Picture) -> Learner:
    made = Learner(tiny, CLASSES, "taps", seed=2, prompts=maple_prompts, **SMALL)
    walk(made, picture, 5)
    return made


def test_nothing_is_pickled_and_the_model_is_not_copied(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path / "deep" / "saved")
    files = sorted(path.name for path in (tmp_path / "deep" / "saved").glob("[!.]*"))
    assert len(files) == 2
    assert files[0] == "learner.json"
    assert files[1].startswith("state-5-")
    assert files[1].endswith(".safetensors")
    index = json.loads((tmp_path / "deep" / "saved" / "learner.json").read_text())
    assert index["clip"]["source"] == "tiny"
    total = sum(path.stat().st_size for path in (tmp_path / "deep" / "saved").glob("[!.]*"))
    assert total < 1_000_000


def test_saving_again_and_again_keeps_two_states(learner: Learner, picture: Picture, tmp_path: Path) -> None:
    for until in range(5, 9):
        walk(learner, picture, until)
        learner.save(tmp_path)
        learner.save(tmp_path)  # the same counts as before: nothing may be written over
        assert len(list(tmp_path.glob("[!.]*"))) == 4  # two indices, each with its tensors
    assert same_state(Learner.load(tmp_path).state_dict(), learner.state_dict())


class Crash(BaseException):
    """The process is gone: nothing catches this."""


@pytest.mark.parametrize("with_source", [False, True])
@pytest.mark.parametrize("point", range(14))
def test_a_crash_anywhere_in_a_save_leaves_one_whole_state(
    tiny: Clip,
    maple_prompts: Prompts,
    picture: Picture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: int,
    with_source: bool,
) -> None:
    """Every write, rename and removal is a place to crash, before it or after it; a state must be there."""
    more: dict[str, Any] = (
        {"source": made_up_stats(tiny, maple_prompts), "weight_coarse": 0.1} if with_source else {}
    )
    learner = Learner(tiny, CLASSES, "taps", seed=2, prompts=maple_prompts, **SMALL, **more)
    for until in (1, 2):
        walk(learner, picture, until)
        learner.save(tmp_path)
    old = learner.state_dict()
    walk(learner, picture, 4)
    new = learner.state_dict()
    countdown = [point]

    def crashing(function: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            countdown[0] -= 1
            if countdown[0] == -1 and not after:
                raise Crash
            result = function(*args, **kwargs)
            if countdown[0] == -1:
                raise Crash
            return result

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crashing(os.replace, after=bool(point % 2)))
        patch.setattr(os, "fsync", crashing(os.fsync, after=bool(point % 2)))
        patch.setattr(Path, "unlink", crashing(Path.unlink, after=bool(point % 2)))
        try:
            learner.save(tmp_path)
            finished = True
        except Crash:
            finished = False
    found = Learner.load(tmp_path, clip=tiny).state_dict()
    assert same_state(found, new) or (not finished and same_state(found, old))
    assert finished == (point >= 10)  # ten places to crash at: the parameters above reach all of them
    # What a crash left behind is gone after the next save.
    learner.save(tmp_path)
    assert len(list(tmp_path.glob("[!.]*"))) == (5 if with_source else 4)
    assert same_state(Learner.load(tmp_path, clip=tiny).state_dict(), new)


@pytest.mark.parametrize("point", range(6))
def test_another_learner_of_the_same_counts_is_never_mixed_in(
    tiny: Clip,
    maple_prompts: Prompts,
    picture: Picture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: int,
) -> None:
    """Two streams saved in one place, both at image 3: a crash between the renames must not mix them."""
    states = []
    for seed in (1, 2):
        learner = Learner(
            tiny,
            CLASSES,
            "taps",
            seed=seed,
            prompts=maple_prompts,
            **{**SMALL, "policy": "fixed", "tau0": 0.0},
        )
        walk(learner, lambda number, seed=seed: picture(100 * seed + number), 3)
        states.append(learner.state_dict())
        with monkeypatch.context() as patch:
            if seed == 2:
                countdown = [point]

                def crash(function: Callable[..., Any], *args: Any, countdown: list[int] = countdown) -> None:
                    countdown[0] -= 1
                    if countdown[0] < 0:
                        raise Crash
                    function(*args)

                replace = os.replace
                patch.setattr(os, "replace", lambda *args, f=replace, c=crash: c(f, *args))
            try:
                learner.save(tmp_path)
            except Crash:
                assert seed == 2
    found = Learner.load(tmp_path, clip=tiny).state_dict()
    assert any(same_state(found, state) for state in states)


def test_a_half_written_index_is_never_read(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path)
    (tmp_path / "learner.json.part").write_text('{"format": 1, ')
    (tmp_path / "state-9-9-00000000.safetensors.part").write_bytes(b"half")
    assert same_state(Learner.load(tmp_path).state_dict(), learner.state_dict())


def test_the_stream_goes_on_without_the_directory_its_prompts_came_from(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, tmp_path: Path
) -> None:
    maple_prompts.save_pretrained(tmp_path / "prompts")
    learner = Learner(tiny, CLASSES, "taps", prompts=tmp_path / "prompts", **SMALL)
    walk(learner, picture, 4)
    learner.save(tmp_path / "saved")
    shutil.rmtree(tmp_path / "prompts")
    resumed = Learner.load(tmp_path / "saved")
    assert walk(resumed, picture, 8) == walk(learner, picture, 8)
    resumed.save(tmp_path / "again")
    assert walk(Learner.load(tmp_path / "again"), picture, 10) == walk(resumed, picture, 10)


def test_source_statistics_come_back_to_the_bit(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, tmp_path: Path
) -> None:
    stats = made_up_stats(tiny, maple_prompts)
    learner = Learner(tiny, CLASSES, "taps", prompts=maple_prompts, source=stats, weight_coarse=0.5, **SMALL)
    walk(learner, picture, 3)
    learner.save(tmp_path)
    (file,) = tmp_path.glob("source-*.safetensors")
    written = file.stat().st_mtime_ns
    learner.save(tmp_path)
    assert file.stat().st_mtime_ns == written  # large files are written once
    assert walk(Learner.load(tmp_path), picture, 7) == walk(learner, picture, 7)
    # Another learner saved in the same place has nothing to do with these statistics.
    Learner(tiny, CLASSES, method="zero_shot").save(tmp_path)
    assert not list(tmp_path.glob("source-*"))
    assert Learner.load(tmp_path).method_name == "zero_shot"


def test_source_statistics_given_as_a_file_stay_there(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_stats(tiny, maple_prompts).save(tmp_path / "stats.safetensors")
    monkeypatch.chdir(tmp_path)
    learner = Learner(
        tiny, CLASSES, "taps", prompts=maple_prompts, source="stats.safetensors", weight_coarse=0.5, **SMALL
    )
    walk(learner, picture, 3)
    learner.save("saved")
    monkeypatch.chdir(tmp_path / "saved")  # found again from anywhere
    assert walk(Learner.load(tmp_path / "saved"), picture, 6) == walk(learner, picture, 6)


def test_the_model_is_found_again_or_asked_for(tiny: Clip, picture: Picture, tmp_path: Path) -> None:
    learner = Learner(tiny, CLASSES, "taps", prompts="coop", **SMALL)
    learner.save(tmp_path)
    assert Learner.load(tmp_path).clip.device.type == "cpu"
    nameless = load_clip("tiny", device="cpu")
    nameless.source = None
    Learner(nameless, CLASSES, "taps", prompts="coop", **SMALL).save(tmp_path)
    with pytest.raises(StateError, match="give clip="):
        Learner.load(tmp_path)
    assert Learner.load(tmp_path, clip=tiny).seen == 0


def test_another_model_is_refused(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path)
    other = load_clip("tiny", device="cpu")
    other.fingerprint = "another"
    with pytest.raises(TapsError, match="another"):
        Learner.load(tmp_path, clip=other)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "learner.json").unlink(),
        lambda path: (path / "learner.json").write_text("{"),
        lambda path: (path / "learner.json").write_text("[]"),
        lambda path: (path / "learner.json").write_text('{"format": 1}'),
        lambda path: next(path.glob("state-*")).unlink(),
        lambda path: next(path.glob("state-*")).write_bytes(b"short"),
        lambda path: change(path, "format", 99),
        lambda path: change(path, "values", {}),
        lambda path: change(path, "settings", {"views": 4, "colour": 1}),
        lambda path: change(path, "clip", {}),
    ],
)
def test_damaged_directories_are_refused_with_a_sentence(
    learner: Learner, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    learner.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(TapsError) as caught:
        Learner.load(tmp_path)
    assert "\n" not in str(caught.value)


def change(path: Path, key: str, value: Any) -> None:
    index = json.loads((path / "learner.json").read_text())
    (path / "learner.json").write_text(json.dumps({**index, key: value}))


def test_a_place_that_cannot_be_written_to_is_one_sentence(learner: Learner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match="cannot be written"):
        learner.save(tmp_path / "file" / "saved")


def flipped(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_of_bits_flipped_anywhere_in_a_saved_learner_none_loads_silently(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, tmp_path: Path
) -> None:
    learner = Learner(
        tiny,
        CLASSES,
        "taps",
        prompts=maple_prompts,
        source=made_up_stats(tiny, maple_prompts),
        weight_coarse=0.5,
        **{**SMALL, "policy": "fixed", "tau0": 0.0},
    )
    walk(learner, picture, 3)
    learner.save(tmp_path)
    rng = random.Random(0)
    for path in sorted(tmp_path.glob("[!.]*")):
        for bit in rng.sample(range(8 * path.stat().st_size), 40):
            flipped(path, bit)
            with pytest.raises(StateError, match="damaged"):
                Learner.load(tmp_path, clip=tiny)
            flipped(path, bit)
    assert same_state(Learner.load(tmp_path, clip=tiny).state_dict(), learner.state_dict())


def test_of_bits_flipped_anywhere_in_prompts_or_statistics_none_loads_silently(
    tiny: Clip, maple_prompts: Prompts, tmp_path: Path
) -> None:
    maple_prompts.save_pretrained(tmp_path)
    made_up_stats(tiny, maple_prompts).save(tmp_path / "source.safetensors")
    rng = random.Random(0)
    for path in sorted(tmp_path.glob("[!.]*")):
        for bit in rng.sample(range(8 * path.stat().st_size), 40):
            flipped(path, bit)
            with pytest.raises(TapsError, match="damaged"):
                SourceStats.load(path) if path.name.startswith("source") else Prompts.from_pretrained(
                    tmp_path
                )
            flipped(path, bit)
    assert Prompts.from_pretrained(tmp_path).fingerprint == maple_prompts.fingerprint


@pytest.mark.parametrize("pattern", ["learner.json", "state-5-*"])
def test_where_the_newest_state_is_damaged_the_one_before_is_used_and_that_is_said(
    learner: Learner, picture: Picture, tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    before = Learner(learner.clip, CLASSES, "taps", seed=2, prompts=learner.settings.prompts, **SMALL)
    walk(before, picture, 3)
    before.save(tmp_path)
    learner.save(tmp_path)
    (damaged,) = tmp_path.glob(pattern)
    flipped(damaged, 999)
    found = Learner.load(tmp_path, clip=learner.clip)
    assert same_state(found.state_dict(), before.state_dict())
    assert f"{damaged.name} is damaged" in caplog.text
    assert "of image 3" in caplog.text
    # Saving goes on, and the damaged state does not take the place of the good one.
    walk(found, picture, 4)
    found.save(tmp_path)
    assert len(list(tmp_path.glob("[!.]*"))) == 4
    flipped(tmp_path / "learner.json", 999)
    assert Learner.load(tmp_path, clip=learner.clip).seen == 3


def test_what_is_saved_with_a_state_comes_back_with_it(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path, {"position": 7})
    assert checkpoint.read(tmp_path).extra == {"position": 7}

    def refuse(extra: dict[str, Any]) -> None:
        raise DamagedError(f"rows {extra['position']} are damaged")

    with pytest.raises(StateError, match="rows 7 are damaged"):
        checkpoint.read(tmp_path, refuse)


def test_a_copy_goes_its_own_way_and_shares_the_model(
    tiny: Clip, maple_prompts: Prompts, picture: Picture, tmp_path: Path
) -> None:
    maple_prompts.save_pretrained(tmp_path / "prompts")
    settings = {**SMALL, "policy": "fixed", "tau0": 0.0}
    learner = Learner(tiny, CLASSES, "taps", prompts=str(tmp_path / "prompts"), reset="never", **settings)
    walk(learner, picture, 4)
    shutil.rmtree(tmp_path / "prompts")
    before = learner.state_dict()
    twin = copy.deepcopy(learner)
    assert twin.clip is learner.clip
    assert same_state(twin.state_dict(), before)
    said = walk(twin, picture, 8)
    assert same_state(learner.state_dict(), before)
    assert walk(learner, picture, 8) == said


def test_a_full_disk_is_a_sentence_and_the_older_state_stays(
    learner: Learner,
    picture: Picture,
    tmp_path: Path,
    disk_room: Callable[[int], AbstractContextManager[None]],
) -> None:
    learner.save(tmp_path)
    before = learner.state_dict()
    walk(learner, picture, 6)
    with disk_room(1 << 12), pytest.raises(StateError, match=r"cannot be written \(.*File too large"):
        learner.save(tmp_path)
    assert same_state(Learner.load(tmp_path, clip=learner.clip).state_dict(), before)
    assert len(list(tmp_path.glob("[!.]*"))) == 2
