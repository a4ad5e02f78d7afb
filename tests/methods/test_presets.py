"""Presets against the data sets' own facts."""

from dataclasses import fields

import pytest

from taps.data import named_sets
from taps.errors import SettingsError
from taps.methods.presets import DATASETS, preset
from taps.methods.registry import all_methods, list_methods, method_settings


@pytest.mark.parametrize("method", list_methods())
@pytest.mark.parametrize("name", list(DATASETS))
def test_every_preset_is_accepted_by_every_method(method, name):
    method_settings(method, preset(method, name))


def test_every_named_set_has_a_preset():
    assert set(named_sets()) == set(DATASETS)


def test_rates_and_buffers_are_the_papers():
    gentle = {"oxford_flowers", "oxford_pets", "food101", "sun397", "fgvc_aircraft", "eurosat"}
    for name in named_sets():
        values = preset("taps", name)
        assert values["lr"] == (5e-4 if name in gentle else 4e-3), name
        assert values.get("buffer", 150) == (75 if name in ("imagenetv2", "imagenet_sketch") else 150), name


def test_table_3():
    assert preset("taps", "imagenet_a") == {
        "lr": 4e-3,
        "weight_ce": 0.15,
        "weight_fine": 0.15,
        "weight_coarse": 1.0,
        "tau0": 2.0,
    }
    assert preset("taps", "imagenet_sketch")["weight_ce"] == 0.5
    assert preset("promptalign", "imagenet_a") == {"lr": 4e-3, "weight_coarse": 1.0}


@pytest.mark.parametrize("method", ["dota", "dota_labels"])
def test_dota_has_its_authors_values(method):
    """ε, η, ρ of their files; σ is the same in all of them."""
    expected = {
        "caltech101": (2e-3, 0.3, 0.02),
        "food101": (4e-5, 0.1, 0.01),
        "eurosat": (1e-4, 3.0, 0.05),
        "imagenet_r": (1e-4, 0.3, 0.0025),
    }
    for name, (shrink, most, growth) in expected.items():
        assert preset(method, name) == {
            "variance": 0.002,
            "shrink": shrink,
            "weight_growth": growth,
            "weight_most": most,
        }
    defaults = {field.name: field.default for field in fields(all_methods()[method].settings)}
    flowers = preset(method, "oxford_flowers")
    assert flowers == {name: defaults[name] for name in flowers}


def test_variants_are_joined_and_the_last_wins():
    assert preset("promptalign", "imagenet_a+promptalign_dg")["lr"] == 0.04
    assert preset("tpt", "dtd+augmix") == {"augmix": True}
    assert preset("tpt", "dtd") == {}  # TPT runs at one rate everywhere
    assert preset("zero_shot", "dtd+augmix") == {}


def test_an_unknown_preset_is_refused():
    with pytest.raises(SettingsError, match="dtdd"):
        preset("taps", "dtdd")


def test_published_defaults():
    defaults = {name: {f.name: f.default for f in fields(m.settings)} for name, m in all_methods().items()}
    assert defaults["tpt"]["lr"] == defaults["maple+tpt"]["lr"] == defaults["cocoop+tpt"]["lr"] == 5e-3
    assert defaults["tpt"]["views"] == 64
    assert defaults["tpt"]["fraction"] == 0.1
    assert defaults["promptalign"]["weight_coarse"] == 1.0
    assert defaults["zero"]["fraction"] == 0.3
    assert defaults["tpt_skip"]["skip"] == 0.01
    assert defaults["taps"]["rate"] == 0.05
