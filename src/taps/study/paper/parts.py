"""What the paper compares: rows of its three tables, variants of its six ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taps.errors import SettingsError
from taps.methods.registry import settings as default_settings
from taps.study.evaluate.plan import Entry

TAPS = "taps"
CLEAN, SHIFTED = (
    "clean",
    "shifted",
)  # sets the prompts were not trained on; the source's classes, seen otherwise
BASELINES = ("zero_shot", "source", "view_ensemble")
UNQUERIED = ("taps, queried images not updated", TAPS, {"update_queried": False})
UNALIGNED = {"weight_coarse": 0.0, "weight_fine": 0.0}


@dataclass(frozen=True)
class Part:
    """A table of the paper, or an ablation.

    Attributes:
        title: With its number in the paper.
        kind: CLEAN or SHIFTED: what it is run on.
        sets: The paper's own, as `taps data list` names them.
        rows: What is compared: names of methods, or variants with their settings.
        evicts: Whether it can only show something where the buffer fills.
    """

    title: str
    kind: str
    sets: tuple[str, ...]
    rows: tuple[Entry, ...]
    ablation: bool = False
    evicts: bool = False

    @property
    def labels(self) -> list[str]:
        return [label for label, _, _ in self.entries]

    @property
    def entries(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Name in tables, method and settings of each row; a variant that is TAPS as it is has its name."""
        return [(each, each, {}) if isinstance(each, str) else each for each in self.rows]


def _variants(shown: str, varied: Sequence[Mapping[str, Any]]) -> tuple[Entry, ...]:
    usual = default_settings(TAPS)

    def entry(own: Mapping[str, Any]) -> Entry:
        same = all(usual[name] == value for name, value in own.items())
        return TAPS if same else (f"{shown} {' '.join(map(str, own.values()))}", TAPS, own)

    return tuple(map(entry, varied))


FOUR = ("caltech101", "dtd", "stanford_cars", "ucf101")
TEN = (
    *("caltech101", "oxford_pets", "oxford_flowers", "food101", "fgvc_aircraft"),
    *("sun397", "dtd", "stanford_cars", "eurosat", "ucf101"),
)


def _ablation(title: str, shown: str, *varied: Mapping[str, Any], evicts: bool = False) -> Part:
    return Part(title, CLEAN, FOUR, _variants(shown, varied), ablation=True, evicts=evicts)


PARTS: dict[str, Part] = {
    "table1": Part(
        "Table 1: TPT, and TPT that takes no step on the 1 % most uncertain images",
        CLEAN,
        ("dtd", "stanford_cars", "oxford_pets", "food101"),
        (*BASELINES, "tpt", "tpt_skip"),
    ),
    "table2": Part(
        "Table 2: sets the prompts were not trained on",
        CLEAN,
        TEN,
        (*BASELINES, "tpt", "coop", "cocoop", "proda", "maple+tpt", "promptalign", TAPS, UNQUERIED),
    ),
    "table3": Part(
        "Table 3: the source's classes under another distribution, with alignment",
        SHIFTED,
        ("imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r"),
        (
            *(*BASELINES, "tpt", "coop", "cocoop", "cocoop+tpt", "promptalign", TAPS, UNQUERIED),
            ("taps, alignment as printed", TAPS, {"align": "paper"}),
            ("promptalign, alignment as printed", "promptalign", {"align": "paper"}),
        ),
    ),
    "figure2a": _ablation(
        "Figure 2a: how many questions are needed?",
        "rate",
        *({"rate": rate} for rate in (0.01, 0.05, 0.1)),
    ),
    "coefficient": _ablation(
        "Loss coefficient: how much do labels weigh against entropy?",
        "alpha",
        *({"weight_ce": alpha} for alpha in (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)),
    ),
    "buffer": _ablation(
        "Buffer size: how large must the memory be?",
        "buffer",
        *({"buffer": size} for size in (25, 50, 100, 150)),
        evicts=True,
    ),
    "figure2b": _ablation(
        "Figure 2b: is uncertainty the right reason to ask?",
        "asks at",
        *({"policy": name} for name in ("random", "dynamic")),
    ),
    "figure2c": _ablation(
        "Figure 2c: does a class-balanced memory help?",
        "evicts at",
        *({"eviction": name} for name in ("random", "balanced")),
        evicts=True,
    ),
    "figure2d": Part(
        "Figure 2d: which statistics are images aligned to?",
        SHIFTED,
        ("imagenet_a", "imagenet_r"),
        (
            ("taps, not aligned", TAPS, UNALIGNED),
            ("whole set, unlabelled image alone", TAPS, {"weight_fine": 0.0}),
            ("whole set, labelled images too", TAPS, {"align_labelled": "whole"}),
            TAPS,
        ),
        ablation=True,
    ),
}
PROPOSITIONS = "propositions"
NAMES = (*PARTS, PROPOSITIONS)


def find_parts(names: Sequence[str]) -> tuple[str, ...]:
    """The wanted parts in the paper's order; all where none is named."""
    unknown = sorted({*names} - {*NAMES})
    if unknown:
        raise SettingsError(f"The paper has no part {unknown[0]!r}; use some of {', '.join(NAMES)}.")
    return tuple(name for name in NAMES if name in names or not names)
