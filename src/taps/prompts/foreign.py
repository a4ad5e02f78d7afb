"""Import of checkpoints of the public codes of CoOp, CoCoOp and MaPLe; nothing in them is executed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from taps.clip import Clip
from taps.clip.tokenizer import decode
from taps.clip.weights import read_pickled
from taps.errors import PromptsError
from taps.prompts.base import WORDS, Parameters, Prompts, check_shapes, prompts_for

# Not learned: the fixed words' vectors, and the frozen CLIP that MaPLe's code saves along.
IGNORED = re.compile(r"token_(prefix|suffix)|logit_scale|(image_encoder|text_encoder)\..*")
NEAR = 0.02  # how far a word's vector may lie from the model's own, as a share of its length: it was halved


def import_prompts(
    path: str | Path, kind: str, clip: Clip, *, suffix: str | None = None, position: str | None = None
) -> Prompts:
    """Read a public checkpoint.

    Args:
        path: A file written by `torch.save`.
        kind: coop, cocoop or maple.
        clip: The model the prompts were trained for.
        suffix: Text behind the learned tokens, with `{}` for the class name, where it is not the usual one.
        position: Place of the class name in CoOp's training, which its files lack. Only "end" can be used.
    """
    if kind not in READERS:
        raise PromptsError(f"{kind!r} prompts cannot be imported; use one of {', '.join(READERS)}.")
    if suffix is not None and "{}" not in suffix:
        raise PromptsError(f"The suffix {suffix!r} has no {{}} where the class name goes.")
    state = {name.removeprefix("prompt_learner."): value for name, value in read_state(Path(path)).items()}
    fixed = state.get("token_suffix")
    state = {name: value for name, value in state.items() if not IGNORED.fullmatch(name)}
    parameters = READERS[kind](state)
    if kind == "coop" and position is None:
        raise PromptsError(
            "A CoOp checkpoint does not say where the class name stood; give the position it was trained "
            "with (CLASS_TOKEN_POSITION), 'end' for a name after the context."
        )
    if position not in (None, "end"):
        raise PromptsError(f"Position {position!r} cannot be used: the class name must stand at the end.")
    if state:  # a reader takes out what it knows
        raise PromptsError(f"{path} is no {kind} checkpoint: unknown keys {', '.join(sorted(state)[:6])}.")
    suffix = suffix or (maple_suffix(parameters, fixed, clip) if kind == "maple" else "{}.")
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


def maple_suffix(parameters: Parameters, fixed: Tensor | None, clip: Clip) -> str:
    """The rest of "a photo of a" behind the learned tokens, each of which has replaced a word.

    `fixed` are the vectors of the text that followed the context in training [K, tokens, width]; where the
    file has them, they must be of these words.
    """
    kept = WORDS.split()[len(parameters["context"]) :]
    if fixed is not None and (words := shared_words(fixed, clip)) != kept:
        raise PromptsError(
            f"The checkpoint's texts begin with {' '.join(words)!r}, MaPLe's own with {' '.join(kept)!r}; "
            "say what stood between context and class name by suffix, such as 'of a {}.'."
        )
    return " ".join([*kept, "{}."])


def shared_words(fixed: Tensor, clip: Clip) -> list[str]:
    """The words that all texts begin with, found by their vectors."""
    table = clip.token_embedding.weight.float().cpu()
    if fixed.ndim != 3 or fixed.shape[2] != table.shape[1]:
        raise PromptsError(f"The checkpoint's fixed texts are not {table.shape[1]} wide: another model's.")
    same = (fixed == fixed[:1]).all(dim=2).all(dim=0)
    vectors = fixed[0, : int(same.long().cumprod(0).sum())].float()
    distances, places = torch.cdist(vectors, table).min(dim=1)
    if bool((distances > NEAR * vectors.norm(dim=1)).any()):
        raise PromptsError(
            f"The checkpoint's fixed texts are no words of {clip.config.name}; load the model it was trained "
            "for, or say by suffix what stood between context and class name."
        )
    return decode(places.tolist())


def take(state: dict[str, Tensor], name: str) -> Tensor:
    if name not in state:
        raise PromptsError(f"The checkpoint has no {name}, only {', '.join(sorted(state)[:6]) or 'nothing'}.")
    return state.pop(name)


def read_coop(state: dict[str, Tensor]) -> Parameters:
    context = take(state, "ctx")
    if context.ndim != 2:
        raise PromptsError("The checkpoint has a context for each class; only one for all can be imported.")
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
