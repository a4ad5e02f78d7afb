"""Which prompts a method starts from."""

from __future__ import annotations

import logging
from importlib import resources
from pathlib import Path

import torch

from taps.clip import Clip
from taps.errors import PromptsError
from taps.prompts import coop, maple
from taps.prompts.base import KINDS, Prompts, check_base

log = logging.getLogger("taps")


def shipped(clip: Clip, kind: str) -> Prompts | None:
    """Trained prompts that come with the package for exactly this model, if there are any."""
    folder = resources.files("taps.prompts") / "shipped" / f"{clip.config.name}-{kind}"
    with resources.as_file(folder) as directory:
        if not directory.is_dir():
            return None
        prompts = Prompts.from_pretrained(directory)
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
    if wanted == "coop":
        return shipped(clip, "coop") or coop.initial(clip)
    if wanted == "maple":
        return shipped(clip, "maple") or _untrained_maple(clip)
    path = Path(wanted)
    if not path.is_dir():
        raise PromptsError(
            f"{str(wanted)!r} is no directory of prompts; use 'hand', {', '.join(map(repr, KINDS))}, "
            "or a directory made by `taps train`."
        )
    prompts = Prompts.from_pretrained(path)
    check_base(prompts, clip)
    return prompts


def _untrained_maple(clip: Clip) -> Prompts:
    log.warning("These MaPLe prompts are untrained noise to %s: fine for tests only.", clip.config.name)
    return maple.initial(clip, torch.Generator().manual_seed(0))
