"""`load_clip`: a frozen CLIP from a name, a file, a directory or a hub repository."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import torch

from taps.clip.config import ClipConfig, builtin_names
from taps.clip.find import Found, find, plain_name
from taps.clip.keys import to_openai_keys
from taps.clip.model import Clip, count_parameters, initialise, unfilled
from taps.clip.ops import levels_kernel
from taps.clip.place import find_device, find_dtype
from taps.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer, read_tokenizer
from taps.clip.weights import build, read_file
from taps.errors import WeightsError
from taps.kernels.verify import try_ahead

CONTAINER_LIMITS = (  # as Linux's control groups have them, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def load_clip(
    name_or_path: str | Path,
    *,
    pretrained: str | Path | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Clip:
    """Load a frozen CLIP.

    Args:
        name_or_path: `pocket` (comes with the package), `tiny` (random, for tests), an architecture by the
            name open_clip has for it (`ViT-B-16`, `ViT-H-14`, `ViT-B-16-SigLIP2`; `taps models` lists them),
            a checkpoint file, a directory with a Hugging Face or open_clip checkpoint, or a hub repository
            such as `openai/clip-vit-base-patch16`.
        pretrained: For an architecture: weights by open_clip's name for them (`openai`, `dfn2b`, `webli`; the
            first that `taps models` lists unless said), a checkpoint file, or `random`.
        device: Where to put it; CUDA when there is one, else the CPU.
        dtype: Precision of the frozen weights, such as "bf16"; float32 unless said.

    >>> load_clip("tiny").config.embed_dim
    32
    """
    found = find(str(name_or_path), None if pretrained is None else str(pretrained))
    device, dtype = find_device(device), find_dtype(dtype or torch.float32)
    check_room(found.config, device, dtype)
    if device.type == "cuda":  # starts Triton while the weights are read
        try_ahead([partial(levels_kernel, dtype)], device)
    clip = read(found, device, dtype)
    clip.source, clip.pretrained = _lasting(name_or_path), _lasting(pretrained)
    return clip


def _lasting(given: str | Path | None) -> str | None:
    """A name as it is, a path in full: a learner saved here may be loaded from elsewhere."""
    path = None if given is None else Path(given).expanduser()
    if path is None or plain_name(str(given)) in ("pocket", *builtin_names()):
        return None if given is None else str(given)
    return str(path.resolve()) if path.exists() else str(given)


def read(found: Found, device: torch.device, dtype: torch.dtype) -> Clip:
    """Fill the model that was found; no copy of the whole in another precision is made on the way."""
    config = found.config
    if found.weights is None:
        generator = torch.Generator().manual_seed(0)
        clip = unfilled(
            config,
            fingerprint=f"random-{config.name}",
            tokenizer=random_words(config),
            device=device,
            dtype=dtype,
        )
        return initialise(clip, generator)
    words = CLIP_TOKENIZER
    if found.words is not None:
        words = read_tokenizer(found.words, cleaning=config.clean, end_marker=config.end_marker)
    state = to_openai_keys(read_file(found.weights))
    return build(config, state, source=str(found.weights), tokenizer=words, device=device, dtype=dtype)


def random_words(config: ClipConfig) -> TextTokenizer:
    """Random weights know no words: CLIP's ids serve, folded into the vocabulary there is."""
    if config.tokenizer == "clip":
        return CLIP_TOKENIZER

    def encode(text: str) -> list[int]:
        return [3 + id % (config.vocab_size - 3) for id in CLIP_TOKENIZER.encode(text)]

    return TextTokenizer(encode, (0,) if config.causal else (), (2,) if config.end_marker else (), 1)


def host_memory() -> int:
    """Bytes of memory this machine has, or this container may use."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [path.read_text().strip() for path in CONTAINER_LIMITS if path.is_file()]
    return min([installed, *(int(limit) for limit in limits if limit.isdecimal())])


def check_room(config: ClipConfig, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a model whose weights alone do not fit the device, before anything of it is read."""
    needed = count_parameters(config) * dtype.itemsize
    if device.type == "cuda":
        room = torch.cuda.mem_get_info(device)[0]
    elif device.type == "cpu" and hasattr(os, "sysconf"):
        room = host_memory()
    else:
        return
    if needed > room:
        raise WeightsError(
            f"{config.name} takes {needed / 2**30:.1f} GB in {str(dtype).removeprefix('torch.')}, and "
            f"{device} has {room / 2**30:.1f} GB; use bfloat16, another device or a smaller model."
        )
