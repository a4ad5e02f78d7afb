"""From options to runs: who gets which setting, which baselines, in which order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from taps.errors import DataError, PromptsError, SettingsError
from taps.model.prompts import Prompts
from taps.study.evaluate import plan
from taps.study.evaluate.jobs import ModelSpec, StreamSpec

TINY = ModelSpec("tiny")
STREAM = StreamSpec("somewhere", name="here")


def test_methods_get_only_the_settings_they_have() -> None:
    jobs = plan.make_jobs(
        [STREAM], TINY, ["zero_shot", "tpt", "taps"], [1], {"rate": 0.1, "views": 8, "buffer": None}
    )
    assert [job.settings for job in jobs] == [{}, {"views": 8}, {"rate": 0.1, "views": 8}]


def test_a_seed_named_twice_is_refused_and_numpys_are_plain() -> None:
    with pytest.raises(SettingsError, match="seeds has 3 twice; name each number once"):
        plan.make_jobs([STREAM], TINY, ["taps"], [3, 1, 3], {})
    [job] = plan.make_jobs([STREAM], TINY, ["taps"], [np.int64(3)], {"rate": np.float64(0.5)})
    assert json.loads(json.dumps([job.seed, job.settings])) == [3, {"rate": 0.5}]


def test_runs_come_seed_by_seed() -> None:
    jobs = plan.make_jobs([STREAM], TINY, ["zero_shot", "taps"], [3, 1], {})
    assert [(job.seed, job.method) for job in jobs] == [
        (3, "zero_shot"),
        (3, "taps"),
        (1, "zero_shot"),
        (1, "taps"),
    ]


def test_baselines_stand_in_every_table() -> None:
    assert plan.with_baselines(["taps"], prompts=True) == ["zero_shot", "source", "view_ensemble", "taps"]
    assert plan.with_baselines(["taps", "zero_shot"], prompts=False) == ["zero_shot", "view_ensemble", "taps"]


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="vews"):
        plan.check_values(["zero_shot", "taps"], {"vews": 3})
    plan.check_values(["zero_shot", "taps"], {"views": 3})


@pytest.mark.parametrize("values", [{"rate": 2.0, "views": 0}, {"order": "ask_first"}, {"reset": "often"}])
def test_bad_values_are_refused_before_anything_runs(values: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        plan.make_jobs([STREAM], TINY, ["taps"], [1], values)


@pytest.mark.parametrize("told", [{"limit": 0}, {"noise": 1.5}, {"delay": -1}])
def test_runs_that_cannot_be_are_refused(told: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=f"--{next(iter(told))} is "):
        plan.make_jobs([STREAM], TINY, ["taps"], [1], {}, **told)


def test_two_methods_do_not_share_a_folder() -> None:
    methods = [("views/8", "taps", {"views": 8}), ("views-8", "taps", {"views": 9})]
    with pytest.raises(SettingsError, match="'views/8' and 'views-8'"):
        plan.make_jobs([STREAM], TINY, methods, [1], {})


def test_nothing_to_do_is_refused() -> None:
    with pytest.raises(SettingsError):
        plan.make_jobs([STREAM], TINY, ["taps"], [], {})
    with pytest.raises(SettingsError, match="Unknown method"):
        plan.make_jobs([STREAM], TINY, ["tops"], [1], {})


def test_presets_follow_the_data_set() -> None:
    streams = [
        StreamSpec("imagenetv2", name="a"),
        StreamSpec("oxford_pets", name="b"),
        StreamSpec("x", name="c"),
    ]
    jobs = plan.make_jobs(streams, TINY, ["taps"], [1], {"lr": None}, preset="auto")
    assert [job.settings.get("lr") for job in jobs] == [4e-3, 5e-4, None]
    assert jobs[0].settings["buffer"] == 75
    [own] = plan.make_jobs(streams[:1], TINY, ["taps"], [1], {"buffer": 9}, preset="auto")
    assert own.settings["buffer"] == 9


def test_each_method_starts_from_its_own_family(tmp_path: Path) -> None:
    for kind in ("maple", "coop"):
        Prompts(kind, {"context": torch.ones(4, 8)}, "{}.", "tiny", "").save_pretrained(tmp_path / kind)
    both = str(tmp_path)
    assert plan.prompts_for("coop+tpt", both) == str(tmp_path / "coop")
    assert plan.prompts_for("taps", both) == str(tmp_path / "maple")
    assert plan.prompts_for("tpt", both) is None
    one = str(tmp_path / "maple")
    assert plan.prompts_for("promptalign", one) == one
    assert plan.prompts_for("coop", one) is None
    for method in ("view_ensemble", "zero", "view_ensemble+"):  # in a table they are what views alone give
        assert plan.prompts_for(method, one) is None
        assert plan.prompts_for(method, both) is None
    config = tmp_path / "maple" / "config.json"
    config.write_text(config.read_text().replace('"maple"', '"coop"'))
    with pytest.raises(PromptsError, match=r"maple does not hold readable prompts .*checksum"):
        plan.prompts_for("coop", one)


def test_streams_are_named_and_checked(pictures: Path, tmp_path: Path) -> None:
    [(stream, dataset)] = plan.open_streams([StreamSpec(str(pictures), corrupt="sketch", severity=2)])
    assert stream.name == f"{pictures.name}+sketch-2"
    assert len(dataset) == 24
    with pytest.raises(SettingsError, match="Two data sets"):
        plan.open_streams([StreamSpec(str(pictures)), StreamSpec(str(pictures))])
    with pytest.raises(DataError):
        plan.open_streams([StreamSpec(str(tmp_path / "nowhere"))])
