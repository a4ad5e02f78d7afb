"""Published settings by data set: `preset("taps", "dtd")`.

A preset is a data set's name, a variant's name, or several joined by "+", later ones winning:
`imagenet_a`, `dtd+augmix`, `imagenet_a+promptalign_dg`.
"""

from __future__ import annotations

from typing import Any

from taps.errors import SettingsError
from taps.methods import find_method

FINE_GRAINED = (
    "caltech101",
    "oxford_pets",
    "stanford_cars",
    "oxford_flowers",
    "food101",
    "fgvc_aircraft",
    "sun397",
    "dtd",
    "eurosat",
    "ucf101",
)
GENTLE = ("oxford_flowers", "oxford_pets", "food101", "sun397", "fgvc_aircraft", "eurosat")
ALIGNED = {"weight_coarse": 1.0}  # β of Table 3
NATS = {"tau0": 2.0}  # τ0 of the paper, whatever the number of classes
# Of TAPS and PromptAlign, which the paper runs at the same rates. α is weight_ce, γ weight_fine.
DATASETS: dict[str, dict[str, Any]] = {
    **{name: {"lr": 5e-4 if name in GENTLE else 4e-3, **NATS} for name in FINE_GRAINED},
    "imagenet": {"lr": 4e-3, **NATS},
    "imagenet_a": {"lr": 4e-3, "weight_ce": 0.15, "weight_fine": 0.15, **ALIGNED, **NATS},
    "imagenet_r": {"lr": 4e-3, "weight_ce": 1.0, "weight_fine": 1.0, **ALIGNED, **NATS},
    "imagenetv2": {"lr": 4e-3, "weight_ce": 1.0, "weight_fine": 1.0, "buffer": 75, **ALIGNED, **NATS},
    "imagenet_sketch": {"lr": 4e-3, "weight_ce": 0.5, "weight_fine": 0.5, "buffer": 75, **ALIGNED, **NATS},
}
# η and ρ of DOTA's files for ViT-B/16; σ is the default everywhere, ε but for two sets.
DOTA = {
    "caltech101": (0.3, 0.02),
    "oxford_pets": (0.3, 0.02),
    "stanford_cars": (0.3, 0.01),
    "oxford_flowers": (0.2, 0.02),
    "food101": (0.1, 0.01),
    "fgvc_aircraft": (0.2, 0.01),
    "sun397": (0.2, 0.01),
    "dtd": (0.3, 0.02),
    "eurosat": (3.0, 0.05),
    "ucf101": (0.4, 0.02),
    "imagenet": (0.2, 0.005),
    "imagenet_a": (0.5, 0.02),
    "imagenet_r": (0.3, 0.0025),
    "imagenetv2": (0.1, 0.01),
    "imagenet_sketch": (0.8, 0.03),
}
DOTA_SHRINK = {"caltech101": 2e-3, "food101": 4e-5}
VARIANTS: dict[str, dict[str, Any]] = {
    "augmix": {"augmix": True},  # TPT's own runs on the ten fine-grained sets
    "promptalign_dg": {"lr": 4e-2},  # PromptAlign's own file for ImageNet's relatives
    "promptalign_finegrained": {"lr": 5e-4},  # and for the fine-grained sets
}


def published(method: str, dataset: str) -> dict[str, Any]:
    """What a method's authors set for a data set; nothing for those who run at one setting everywhere."""
    if method in ("dota", "dota_labels"):
        most, growth = DOTA[dataset]
        shrink = DOTA_SHRINK.get(dataset, 1e-4)
        return {"variance": 0.002, "shrink": shrink, "weight_growth": growth, "weight_most": most}
    return DATASETS[dataset] if find_method(method).by_dataset else {}


def preset(method: str, name: str) -> dict[str, Any]:
    """Settings of a method as published for a data set; those it does not have are left out.

    >>> preset("taps", "imagenetv2")["buffer"], preset("tpt", "dtd"), preset("tpt", "dtd+augmix")
    (75, {}, {'augmix': True})
    """
    known = find_method(method).known
    values: dict[str, Any] = {}
    for part in name.split("+"):
        if part not in DATASETS and part not in VARIANTS:
            raise SettingsError(
                f"Unknown preset {part!r}; use one of {', '.join(DATASETS)}, or {', '.join(VARIANTS)}."
            )
        values |= VARIANTS.get(part) or published(method, part)  # a variant is meant for whoever asks for it
    return {field: value for field, value in values.items() if field in known}
