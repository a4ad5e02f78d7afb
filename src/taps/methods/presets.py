"""Published settings by data set: `preset("taps", "dtd")`.

A preset is a data set's name, a variant's name, or several joined by "+", later ones winning:
`imagenet_a`, `dtd+augmix`, `imagenet_a+promptalign_dg`.
"""

from __future__ import annotations

from typing import Any

from taps.errors import SettingsError
from taps.methods.registry import find_method

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
VARIANTS: dict[str, dict[str, Any]] = {
    "augmix": {"augmix": True},  # TPT's own runs on the ten fine-grained sets
    "promptalign_dg": {"lr": 4e-2},  # PromptAlign's own file for ImageNet's relatives
    "promptalign_finegrained": {"lr": 5e-4},  # and for the fine-grained sets
}


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
                f"There is no preset {part!r}; use one of {', '.join(DATASETS)}, or {', '.join(VARIANTS)}."
            )
        # Other methods run at one learning rate everywhere; a variant is meant for whoever asks for it.
        values |= VARIANTS.get(part) or (DATASETS[part] if find_method(method).by_dataset else {})
    return {field: value for field, value in values.items() if field in known}
