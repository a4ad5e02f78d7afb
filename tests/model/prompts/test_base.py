"""Prompts on disk: whole, damaged, another model's."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from taps.errors import PromptsError
from taps.files import write_tensors
from taps.model.prompts import Prompts, check_base
from taps.model.prompts.choose import choose_prompts, shipped, shipped_source, trained_prompts, untrained

KINDS = ("coop", "cocoop", "maple", "proda")


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_fits_its_own_model_and_survives_the_disk(tiny, tmp_path, kind):
    prompts = untrained(tiny, kind, torch.Generator().manual_seed(3))
    check_base(prompts, tiny)
    prompts.save_pretrained(tmp_path)
    again = Prompts.from_pretrained(tmp_path)
    assert again.fingerprint == prompts.fingerprint
    assert choose_prompts(tiny, tmp_path, default="hand").fingerprint == prompts.fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_missing_added_or_resized_is_named(tiny, kind):
    prompts = untrained(tiny, kind, torch.Generator().manual_seed(3))
    for name in prompts.parameters:
        fewer = {key: value for key, value in prompts.parameters.items() if key != name}
        with pytest.raises(PromptsError, match=r"shape|none"):
            check_base(replace(prompts, parameters=fewer), tiny)
        wider = {**prompts.parameters, name: torch.zeros(*prompts.parameters[name].shape, 2)}
        with pytest.raises(PromptsError, match=r"shape"):
            check_base(replace(prompts, parameters=wider), tiny)
    with pytest.raises(PromptsError, match="extra"):
        check_base(replace(prompts, parameters={**prompts.parameters, "extra": torch.zeros(1)}), tiny)


def test_every_value_is_in_the_fingerprint(maple_prompts):
    seen = {maple_prompts.fingerprint}
    for name, value in maple_prompts.parameters.items():
        changed = value.clone()
        changed.view(-1)[-1] += 1e-3
        seen.add(replace(maple_prompts, parameters={**maple_prompts.parameters, name: changed}).fingerprint)
    seen |= {
        replace(maple_prompts, suffix="{}").fingerprint,
        replace(maple_prompts, base_fingerprint="x").fingerprint,
    }
    assert len(seen) == 3 + len(maple_prompts.parameters)


@pytest.fixture
def directory(maple_prompts, tmp_path):
    maple_prompts.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1, "kind": "maple"}', '{"format": 99}'])
def test_damaged_config(directory, content):
    (directory / "config.json").write_text(content)
    with pytest.raises(PromptsError):
        Prompts.from_pretrained(directory)


def test_damaged_tensors(directory):
    file = directory / "prompts.safetensors"
    whole = file.read_bytes()
    tensors = {name: value.clone() for name, value in load_file(file).items()}
    for bad in (b"", whole[: len(whole) // 2], b"x" * 100):
        file.write_bytes(bad)
        with pytest.raises(PromptsError, match="readable"):
            Prompts.from_pretrained(directory)
    tensors["deep"][0, 0, 0] = float("nan")
    file.unlink()
    write_tensors(file, tensors)
    with pytest.raises(PromptsError, match="deep"):
        Prompts.from_pretrained(directory)


def test_config_names_the_model(directory, tiny):
    config = json.loads((directory / "config.json").read_text())
    assert (config["base"], config["base_fingerprint"]) == (tiny.config.name, tiny.fingerprint)


def test_nothing_is_shipped_for_a_random_model(tiny, maple_prompts, tmp_path):
    assert all(shipped(tiny, kind) is None for kind in KINDS)
    assert shipped_source(tiny, maple_prompts) is None
    with pytest.raises(PromptsError, match="not a directory of prompts"):
        choose_prompts(tiny, tmp_path / "absent", default="maple")
    with pytest.raises(PromptsError, match="taps train coop"):
        trained_prompts(tiny, None, family="coop")


def test_prompts_in_use_do_not_depend_on_their_file(directory, maple_prompts):
    loaded = Prompts.from_pretrained(directory)
    (directory / "prompts.safetensors").write_bytes(b"")
    assert loaded.fingerprint == maple_prompts.fingerprint
