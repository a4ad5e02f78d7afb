"""What `taps bench` is told. Nothing here imports torch: a mistyped option is told at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from taps.clip import Clip


@dataclass(frozen=True)
class Machine:
    """Where it is measured.

    Attributes:
        device: cpu or cuda; default: cuda where there is one.
        threads: Threads of torch on a CPU.
        file: Also write the figures to this file.
    """

    device: str | None = None
    threads: int | None = field(default=None, metadata={"min": 1})
    file: Path | None = field(default=None, metadata={"flags": ("--json",)})

    def find_device(self) -> torch.device:
        """The device; the number of threads is set."""
        import torch

        from taps.clip.place import find_device

        if self.threads:
            torch.set_num_threads(self.threads)
        return find_device(self.device)

    def write(self, **values: Any) -> None:
        """Figures are written as they come: an interrupted run leaves what it measured."""
        from taps.bench.measure import machine
        from taps.files import write_json

        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.file, {"machine": machine(self.find_device()), **values})


@dataclass(frozen=True)
class Target(Machine):
    """Which model is measured, and where.

    Attributes:
        model: Architecture, or anything `load_clip` takes.
        pretrained: Weights; speed does not depend on them.
        dtype: Of our frozen weights: fp32, bf16, fp16; default: bf16 on cuda, else fp32.
    """

    model: str = "ViT-B-16"
    pretrained: str = "random"
    dtype: str | None = None

    def place(self) -> tuple[torch.device, torch.dtype]:
        """The device to measure on and the dtype of our frozen weights."""
        from taps.clip.place import find_dtype

        device = self.find_device()
        return device, find_dtype(self.dtype or ("bf16" if device.type == "cuda" else "fp32"))

    def loader(self) -> Callable[[torch.dtype, torch.device], Clip]:
        """Loads once, then hands out copies."""
        import copy

        from taps.clip.load import load_clip

        built_in = self.model in ("pocket",) or Path(self.model).exists() or "/" in self.model
        master = load_clip(self.model, pretrained=None if built_in else self.pretrained)
        return lambda dtype, device: copy.deepcopy(master).to(device=device, dtype=dtype)

    def load(self) -> Clip:
        device, dtype = self.place()
        return self.loader()(dtype, device)

    def write(self, **values: Any) -> None:
        super().write(model=self.model, dtype=str(self.place()[1]), **values)


@dataclass(frozen=True)
class Small(Target):
    """A model that is quickly measured many times."""

    model: str = "tiny"
