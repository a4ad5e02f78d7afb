"""The prompts a method starts from: given, shipped with the package, or untrained."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from taps.errors import PromptsError
from taps.model.clip import Clip
from taps.model.embedded import embedded_prompts
from taps.model.prompts.base import Prompts, check_base
from taps.model.prompts.coop import Coop
from taps.model.prompts.families import FAMILIES
from taps.model.prompts.source import SourceStats
from taps.registry import nearest

log = logging.getLogger("taps")
SOURCE_FILE = "source.safetensors"
USUAL = "maple"  # the family of a method that takes any


def shipped(clip: Clip, kind: str) -> Prompts | None:
    """Trained prompts that come with the package for exactly this model."""
    folder = embedded_prompts(clip.config.name, kind)
    if folder is None:
        return None
    prompts = Prompts.from_pretrained(folder)
    return prompts if prompts.base_fingerprint == clip.fingerprint else None


def choose_prompts(clip: Clip, wanted: str | Path | Prompts | None, *, default: str) -> Prompts:
    """Prompts for a model.

    Args:
        clip: The model.
        wanted: "hand", a family's name, a directory, prompts, or None for the method's default family.
        default: The family a method uses when none is wanted.
    """
    if isinstance(wanted, Prompts):
        check_base(wanted, clip)
        return wanted
    if wanted == "hand" or (wanted is None and default == "hand"):
        return Coop().initial(clip)
    if wanted is None:
        default = Coop.name if clip.config.stages else default
        found = shipped(clip, default)
        if found is None:
            log.warning(
                "No trained %s prompts are known for %s; tuning the text context 'a photo of a' instead "
                "(train some with `taps train %s`).",
                default,
                clip.config.name,
                default,
            )
        return found or Coop().initial(clip)
    if isinstance(wanted, str) and wanted in FAMILIES:
        kind = wanted
        found = shipped(clip, kind)
        if found is None and FAMILIES[kind].noise:
            log.warning("Untrained %s prompts are noise to %s: for tests only.", kind, clip.config.name)
        return found or untrained(clip, kind, torch.Generator().manual_seed(0))
    path = Path(wanted)
    if not os.path.isdir(path):
        raise PromptsError(
            f"{str(wanted)!r} is not a directory of prompts; use 'hand', {', '.join(map(repr, FAMILIES))}, "
            f"or a directory made by `taps train`.{nearest(str(wanted), FAMILIES)}"
        )
    prompts = Prompts.from_pretrained(path)
    check_base(prompts, clip)
    return prompts


def trained_prompts(clip: Clip, wanted: str | Path | Prompts | None, *, family: str) -> Prompts:
    """Trained prompts of one family, for a method that needs them."""
    FAMILIES[family].check_model(clip)
    if wanted is None:
        found = shipped(clip, family)
        if found is None:
            raise PromptsError(
                f"No trained {family} prompts are known for {clip.config.name}; train some with "
                f"`taps train {family}` and give their directory as prompts."
            )
        return found
    prompts = choose_prompts(clip, wanted, default=family)
    if prompts.kind != family:
        raise PromptsError(f"This method takes {family} prompts, but {prompts.kind} prompts were given.")
    return prompts


def vision_prompts(clip: Clip, wanted: str | Path | Prompts | None) -> Prompts:
    """Trained prompts that enter the image tower, whose inputs can be aligned."""
    if wanted is None:
        return trained_prompts(clip, None, family=USUAL)
    prompts = choose_prompts(clip, wanted, default=USUAL)
    if not FAMILIES[prompts.kind].vision:
        raise PromptsError(
            f"Statistics need prompts in the vision tower ({USUAL}'s), but these are {prompts.kind} prompts."
        )
    return prompts


def starting_prompts(clip: Clip, wanted: str | Path | Prompts | None, start: str) -> Prompts:
    """Prompts for a method's `start` (`taps.methods.method`): "hand", "any" or a family."""
    if start in FAMILIES:
        return trained_prompts(clip, wanted, family=start)
    return choose_prompts(clip, wanted, default=USUAL if start == "any" else "hand")


def shipped_source(clip: Clip, prompts: Prompts) -> SourceStats | None:
    """Source statistics that come with the package for exactly this model and these prompts."""
    folder = embedded_prompts(clip.config.name, prompts.kind)
    if folder is None or not (folder / SOURCE_FILE).is_file():
        return None
    stats = SourceStats.load(folder / SOURCE_FILE)
    return stats if (stats.model, stats.prompts) == (clip.fingerprint, prompts.fingerprint) else None


def untrained(clip: Clip, kind: str, generator: torch.Generator) -> Prompts:
    """The prompts that the training of a family starts from."""
    return FAMILIES[kind].initial(clip, generator)
