"""A model whose weights are in memory once, however many processes of this machine compute with it."""

from __future__ import annotations

import copy
import os

import torch
from torch import nn

from taps.clip.model import Clip


class SharedClip:
    """Stands for a model on its way to another process: it carries where the weights are, and none of them.

    They are a file in memory (Linux), which each process maps as it is. It is there while this process lives.

    Args:
        clip: On the CPU; it goes on with the same numbers, in the memory that is shared.
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
        """The model, in the process this was sent to, which has one core."""
        torch.set_num_threads(1)
        return self._fill(self._shell)

    def _fill(self, clip: Clip) -> Clip:
        clip.load_state_dict(torch.load(self._file, mmap=True, weights_only=True), assign=True)
        return clip
