"""The prompts a method starts from: given, shipped with the package, or untrained."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from taps.clip import Clip
from taps.embedded import embedded_prompts
from taps.errors import PromptsError
from taps.prompts import coop, maple
from taps.prompts.base import KINDS, Prompts, check_base, family_module
from taps.prompts.source import SourceStats

log = logging.getLogger("taps")
SOURCE_FILE = "source.safetensors"


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
        return coop.initial(clip)
    if wanted is None:
        default = "coop" if clip.config.stages else default
        found = shipped(clip, default)
        if found is None:
            log.warning(
                "No trained %s prompts are known for %s; tuning the text context 'a photo of a' instead "
                "(train some with `taps train %s`).",
                default,
                clip.config.name,
                default,
            )
        return found or coop.initial(clip)
    if wanted in KINDS:
        kind = str(wanted)
        found = shipped(clip, kind)
        if found is None and kind in ("maple", "proda"):
            log.warning("Untrained %s prompts are noise to %s: for tests only.", kind, clip.config.name)
        return found or untrained(clip, kind, torch.Generator().manual_seed(0))
    path = Path(wanted)
    if not path.is_dir():
        raise PromptsError(
            f"{str(wanted)!r} is not a directory of prompts; use 'hand', {', '.join(map(repr, KINDS))}, "
            "or a directory made by `taps train`."
        )
    prompts = Prompts.from_pretrained(path)
    check_base(prompts, clip)
    return prompts


def trained_prompts(clip: Clip, wanted: str | Path | Prompts | None, *, family: str) -> Prompts:
    """Trained prompts of one family, for a method that needs them."""
    if family == "maple":
        maple.require_tokens(clip)
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


def starting_prompts(clip: Clip, wanted: str | Path | Prompts | None, start: str) -> Prompts:
    """Prompts for a method's `start` (`taps.methods.method`): "hand", "any" or a family."""
    if start in KINDS:
        return trained_prompts(clip, wanted, family=start)
    return choose_prompts(clip, wanted, default="maple" if start == "any" else "hand")


def shipped_source(clip: Clip, prompts: Prompts) -> SourceStats | None:
    """Source statistics that come with the package for exactly this model and these prompts."""
    folder = embedded_prompts(clip.config.name, prompts.kind)
    if folder is None or not (folder / SOURCE_FILE).is_file():
        return None
    stats = SourceStats.load(folder / SOURCE_FILE)
    return stats if (stats.model, stats.prompts) == (clip.fingerprint, prompts.fingerprint) else None


def untrained(clip: Clip, kind: str, generator: torch.Generator) -> Prompts:
    """The prompts that the training of a family starts from."""
    return family_module(kind).initial(clip, generator)  # type: ignore[no-any-return]
