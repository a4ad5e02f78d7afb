"""Prompts trained by the public codes of CoOp, CoCoOp and MaPLe: their checkpoints, read safely."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from taps.clip import Clip
from taps.errors import PromptsError
from taps.prompts.base import Parameters, Prompts, check_shapes

# Not learned: the fixed words' vectors, and the frozen CLIP that MaPLe's code saves along.
IGNORED = re.compile(r"token_(prefix|suffix)|logit_scale|(image_encoder|text_encoder)\..*")
SUFFIX = {"coop": "{}.", "cocoop": "{}.", "maple": "of a {}."}


def import_prompts(path: str | Path, kind: str, clip: Clip) -> Prompts:
    """Read a public checkpoint.

    Args:
        path: A file written by `torch.save`; nothing in it is executed.
        kind: coop, cocoop or maple.
        clip: The model the prompts were trained for.
    """
    if kind not in SUFFIX:
        raise PromptsError(f"There is no import of {kind!r} prompts; use one of {', '.join(SUFFIX)}.")
    state = {name.removeprefix("prompt_learner."): value for name, value in read_state(Path(path)).items()}
    state = {name: value for name, value in state.items() if not IGNORED.fullmatch(name)}
    parameters = READERS[kind](state)
    if state:  # a reader takes out what it knows
        raise PromptsError(
            f"{path} holds unknown keys, {', '.join(sorted(state)[:6])}: it is no {kind} checkpoint."
        )
    prompts = Prompts(
        kind=kind,
        parameters={name: value.float() for name, value in parameters.items()},
        suffix=SUFFIX[kind],
        base=clip.config.name,
        base_fingerprint=clip.fingerprint,
        record={"imported": Path(path).name},
    )
    check_shapes(prompts, clip)
    return prompts


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, with or without the trainer's wrapping."""
    try:
        raw: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PromptsError(f"{path} cannot be read as a checkpoint of tensors alone ({reason}).") from error
    state = raw.get("state_dict", raw) if isinstance(raw, dict) else raw
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise PromptsError(f"{path} holds no state dict of tensors; give the file the public code saved.")
    return state


def take(state: dict[str, Tensor], name: str) -> Tensor:
    if name not in state:
        raise PromptsError(
            f"The checkpoint has no {name}; it has {', '.join(sorted(state)[:6]) or 'nothing'}."
        )
    return state.pop(name)


def read_coop(state: dict[str, Tensor]) -> Parameters:
    context = take(state, "ctx")
    if context.ndim != 2:
        raise PromptsError(
            "The checkpoint has one context for each class; only a context for all can be imported."
        )
    return {"context": context}


def read_cocoop(state: dict[str, Tensor]) -> Parameters:
    layers = (("net.down", "linear1"), ("net.up", "linear2"))
    net = {
        f"{own}.{part}": take(state, f"meta_net.{theirs}.{part}")
        for own, theirs in layers
        for part in ("weight", "bias")
    }
    return {"context": take(state, "ctx"), **net}


def read_maple(state: dict[str, Tensor]) -> Parameters:
    context = take(state, "ctx")
    deep: list[Tensor] = []
    weights, biases = [take(state, "proj.weight")], [take(state, "proj.bias")]
    while f"compound_prompts_text.{len(deep)}" in state:
        place = len(deep)
        deep.append(take(state, f"compound_prompts_text.{place}"))
        weights.append(take(state, f"compound_prompt_projections.{place}.weight"))
        biases.append(take(state, f"compound_prompt_projections.{place}.bias"))
    if any(len({part.shape for part in group}) > 1 for group in ([context, *deep], weights, biases)):
        raise PromptsError("The checkpoint's prompts differ in shape from block to block; it may be damaged.")
    return {
        "context": context,
        "deep": torch.stack(deep) if deep else context.new_zeros(0, *context.shape),
        "coupling.weight": torch.stack(weights),
        "coupling.bias": torch.stack(biases),
    }


READERS: dict[str, Callable[[dict[str, Tensor]], Parameters]] = {
    "coop": read_coop,
    "cocoop": read_cocoop,
    "maple": read_maple,
}
