"""Published settings by data set: `preset("taps", "dtd")`.

A preset is a data set's name, a variant's name, or several joined by "+", later ones winning:
`imagenet_a`, `dtd+augmix`, `imagenet_a+promptalign_dg`.
"""

from __future__ import annotations

from typing import Any

from taps.errors import SettingsError
from taps.methods import find_method
from taps.registry import nearest

# For each data set the learning rate of TAPS and PromptAlign, which the paper runs at the same rates; and η
# and ρ of DOTA's files for ViT-B/16. DOTA's σ is the default everywhere, its ε but for two sets.
RATES = {
    "caltech101": (4e-3, 0.3, 0.02),
    "oxford_pets": (5e-4, 0.3, 0.02),
    "stanford_cars": (4e-3, 0.3, 0.01),
    "oxford_flowers": (5e-4, 0.2, 0.02),
    "food101": (5e-4, 0.1, 0.01),
    "fgvc_aircraft": (5e-4, 0.2, 0.01),
    "sun397": (5e-4, 0.2, 0.01),
    "dtd": (4e-3, 0.3, 0.02),
    "eurosat": (5e-4, 3.0, 0.05),
    "ucf101": (4e-3, 0.4, 0.02),
    "imagenet": (4e-3, 0.2, 0.005),
    "imagenet_a": (4e-3, 0.5, 0.02),
    "imagenet_r": (4e-3, 0.3, 0.0025),
    "imagenetv2": (4e-3, 0.1, 0.01),
    "imagenet_sketch": (4e-3, 0.8, 0.03),
}
DOTA_SHRINK = {"caltech101": 2e-3, "food101": 4e-5}
# Of TAPS and PromptAlign on ImageNet's relatives: α is weight_ce, β of Table 3 weight_coarse, γ weight_fine.
RELATIVES: dict[str, dict[str, Any]] = {
    "imagenet_a": {"weight_ce": 0.15, "weight_fine": 0.15, "weight_coarse": 1.0},
    "imagenet_r": {"weight_ce": 1.0, "weight_fine": 1.0, "weight_coarse": 1.0},
    "imagenetv2": {"weight_ce": 1.0, "weight_fine": 1.0, "buffer": 75, "weight_coarse": 1.0},
    "imagenet_sketch": {"weight_ce": 0.5, "weight_fine": 0.5, "buffer": 75, "weight_coarse": 1.0},
}
# τ0 of the paper is 2 nats, whatever the number of classes.
DATASETS = {name: {"lr": lr, **RELATIVES.get(name, {}), "tau0": 2.0} for name, (lr, _, _) in RATES.items()}
VARIANTS: dict[str, dict[str, Any]] = {
    "augmix": {"augmix": True},  # TPT's own runs on the ten fine-grained sets
    "promptalign_dg": {"lr": 4e-2},  # PromptAlign's own file for ImageNet's relatives
    "promptalign_finegrained": {"lr": 5e-4},  # and for the fine-grained sets
}


def published(method: str, dataset: str) -> dict[str, Any]:
    """What a method's authors set for a data set; nothing where they use one setting everywhere."""
    if method in ("dota", "dota_labels"):
        _, most, growth = RATES[dataset]
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
                f"{nearest(part, [*DATASETS, *VARIANTS])}"
            )
        values |= VARIANTS.get(part) or published(method, part)  # a variant is meant for whoever asks for it
    return {field: value for field, value in values.items() if field in known}
