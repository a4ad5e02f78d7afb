"""`load_clip`: a frozen CLIP from a name, a file, a directory or a hub repository."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import torch
from torch import nn

from taps.errors import SettingsError, WeightsError
from taps.model.clip.config import ClipConfig, architectures
from taps.model.clip.find import ModelFiles, find, plain_name
from taps.model.clip.hub import TOKENIZER_FILES
from taps.model.clip.keys import to_openai_keys
from taps.model.clip.model import Clip, count_parameters, initialise, unfilled
from taps.model.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer, read_tokenizer
from taps.model.clip.weights import build, read_file

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
CONTAINER_LIMITS = (  # memory limits of Linux's control groups, version 2 and 1
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
            first that `taps models` lists by default), a checkpoint file, or `random`.
        device: CUDA by default where there is one, else the CPU.
        dtype: Precision of the frozen weights, such as "bf16"; float32 by default.

    >>> load_clip("tiny").config.embed_dim
    32
    """
    check_name(name_or_path)
    files = find(str(name_or_path), None if pretrained is None else str(check_name(pretrained)))
    device, dtype = find_device(device), find_dtype(dtype or torch.float32)
    check_memory(files.config, device, dtype)
    clip = _read(files, device, dtype)
    clip.source, clip.pretrained = _absolute(name_or_path), _absolute(pretrained)
    return clip


def check_name(given: object) -> object:
    """What was given, if it is a name or a path, be there something or not."""
    try:
        if not isinstance(given, str | Path) or not str(given):
            raise ValueError(f"it is no text, but {type(given).__name__}" if given != "" else "it is empty")
        Path(given).expanduser().exists()
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise WeightsError(
            f"A model is loaded by its name or its path, which {repr(given)[:60]} is not ({why})."
        ) from None
    return given


def _absolute(given: str | Path | None) -> str | None:
    """A name as it is, a path in full: a saved learner may be loaded from another directory."""
    if given is None:
        return None
    path = Path(given).expanduser()
    is_path = path.exists() and plain_name(str(given)) not in ("pocket", *architectures())
    return str(path.resolve()) if is_path else str(given)


def _read(files: ModelFiles, device: torch.device, dtype: torch.dtype) -> Clip:
    """The model with its weights, which are never held as a whole in another precision."""
    config = files.config
    if files.weights is None:
        name, tokenizer = f"random-{config.name}", random_words(config)
        clip = unfilled(config, fingerprint=name, tokenizer=tokenizer, device=device, dtype=dtype)
        return initialise(clip, torch.Generator().manual_seed(0))
    tokenizer = CLIP_TOKENIZER
    if files.tokenizer is not None:
        tokenizer = read_tokenizer(files.tokenizer, cleaning=config.clean, end_marker=config.end_marker)
    state = to_openai_keys(read_file(files.weights))
    if tokenizer.size > config.vocab_size:
        raise WeightsError(
            f"{config.name} knows {config.vocab_size:,} tokens, and its tokenizer makes {tokenizer.size:,}: "
            f"put its own {' and '.join(TOKENIZER_FILES)} beside the weights."
        )
    return build(config, state, source=str(files.weights), tokenizer=tokenizer, device=device, dtype=dtype)


def random_words(config: ClipConfig) -> TextTokenizer:
    """A tokenizer for random weights: CLIP's ids, modulo the size of the vocabulary."""
    if config.tokenizer == "clip":
        return CLIP_TOKENIZER

    def encode(text: str) -> list[int]:
        return [3 + id % (config.vocab_size - 3) for id in CLIP_TOKENIZER.encode(text)]

    return TextTokenizer(encode, (0,) if config.causal else (), (2,) if config.end_marker else (), 1)


def host_memory() -> int:
    """Bytes of memory that this machine or container may use."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [path.read_text().strip() for path in CONTAINER_LIMITS if path.is_file()]
    return min([installed, *(int(limit) for limit in limits if limit.isdecimal())])


def check_memory(config: ClipConfig, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a model whose weights alone do not fit the device, before they are read."""
    needed = count_parameters(config) * dtype.itemsize
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    elif device.type == "cpu" and hasattr(os, "sysconf"):
        free = host_memory()
    else:
        return
    if needed > free:
        raise WeightsError(
            f"{config.name} takes {needed / 2**30:.1f} GB in {str(dtype).removeprefix('torch.')}, and "
            f"{device} has {free / 2**30:.1f} GB; use bfloat16, another device or a smaller model."
        )


def find_device(name: str | torch.device | None) -> torch.device:
    """A device that works; CUDA where there is one, unless another is named."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise SettingsError(
            f"The device {str(name)!r} cannot be used here ({reason}); use cpu, or leave it out."
        ) from None
    return device


def find_dtype(name: str | torch.dtype) -> torch.dtype:
    """A precision by its name.

    >>> find_dtype("bf16")
    torch.bfloat16
    """
    if isinstance(name, torch.dtype) and name.is_floating_point:
        return name
    full = DTYPES.get(str(name), name)
    if full not in DTYPES.values():
        raise SettingsError(f"The dtype {name!r} is unknown; use fp32, bf16, fp16 or fp64.")
    return getattr(torch, str(full))  # type: ignore[no-any-return]


class SharedClip:
    """A model on the CPU to send to other processes of this machine, its weights in memory once for all.

    The weights are a file in memory (Linux) that every process maps, this one too. It lives while this
    process does.
    """

    def __init__(self, clip: Clip) -> None:
        weights = clip.state_dict(keep_vars=True)
        shapes = {id(each): nn.Parameter(each.to("meta"), requires_grad=False) for each in weights.values()}
        self._shell: Clip = copy.deepcopy(clip, dict(shapes))
        file = os.memfd_create("weights")
        self._file = f"/proc/{os.getpid()}/fd/{file}"
        torch.save(dict(weights), self._file)
        self._fill(clip)

    def clip(self) -> Clip:
        """The model, in the process that received this; torch computes on one core there."""
        torch.set_num_threads(1)
        return self._fill(self._shell)

    def _fill(self, clip: Clip) -> Clip:
        clip.load_state_dict(torch.load(self._file, mmap=True, weights_only=True), assign=True)
        return clip
