"""Import of checkpoints of the families' public codes; nothing in them is executed."""

from __future__ import annotations

import re
from pathlib import Path

from torch import Tensor

from taps.errors import PromptsError
from taps.model.clip import Clip
from taps.model.clip.weights import read_pickled
from taps.model.prompts.base import Prompts, check_shapes, prompts_for
from taps.model.prompts.families import FAMILIES

# Not learned: the fixed words' vectors, and the frozen CLIP that MaPLe's code saves along.
IGNORED = re.compile(r"token_(prefix|suffix)|logit_scale|(image_encoder|text_encoder)\..*")


def import_prompts(
    path: str | Path, kind: str, clip: Clip, *, suffix: str | None = None, position: str | None = None
) -> Prompts:
    """Read a public checkpoint.

    Args:
        path: A file written by `torch.save`.
        kind: A family with public checkpoints: coop, cocoop, maple.
        clip: The model the prompts were trained for.
        suffix: Text behind the learned tokens, with `{}` for the class name, where it is not the usual one.
        position: Place of the class name in CoOp's training, which its files lack. Only "end" can be used.
    """
    family = FAMILIES[kind]
    if suffix is not None and "{}" not in suffix:
        raise PromptsError(f"The suffix {suffix!r} has no {{}} where the class name goes.")
    state = {name.removeprefix("prompt_learner."): value for name, value in read_state(Path(path)).items()}
    fixed = state.get("token_suffix")
    state = {name: value for name, value in state.items() if not IGNORED.fullmatch(name)}
    parameters = family.read(state, position)
    if position not in (None, "end"):
        raise PromptsError(f"Position {position!r} cannot be used: the class name must stand at the end.")
    if state:  # a family takes out what it knows
        raise PromptsError(f"{path} is no {kind} checkpoint: unknown keys {', '.join(sorted(state)[:6])}.")
    suffix = suffix or family.suffix(parameters, fixed, clip)
    single = {name: value.float() for name, value in parameters.items()}
    prompts = prompts_for(clip, kind, single, suffix, imported=Path(path).name)
    check_shapes(prompts, clip)
    return prompts


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, with or without the trainer's wrapping."""
    try:
        raw = read_pickled(path)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PromptsError(f"{path} cannot be read as a checkpoint of tensors ({reason}).") from error
    state = raw.get("state_dict", raw) if isinstance(raw, dict) else raw
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise PromptsError(f"{path} holds no state dict of tensors; give the file the public code saved.")
    return state
