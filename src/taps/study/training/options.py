"""Options of `taps stats`. Nothing here imports torch: a mistyped option is refused at once."""

from __future__ import annotations

from dataclasses import dataclass, field

AT_LEAST_1 = {"min": 1}


PARTS = ("parts.json", "*.safetensors")  # files of a pass under way on a cluster


@dataclass(frozen=True)
class StatsOptions:
    """What source statistics are made with, all of them or a part.

    Attributes:
        model: pocket, ViT-B-16, a checkpoint's path, …
        pretrained: Weights for an architecture: a file, openai, laion2b.
        prompts: Directory of the prompts that will be aligned; the shipped MaPLe ones if not given.
        per_class: Statistics of each class, too.
        layers: Vision blocks, separated by commas, or all; the printed alignment needs all.
        batch: Images per forward.
        device: cpu or cuda; by default a GPU where one is found.
    """

    model: str = "pocket"
    pretrained: str | None = None
    prompts: str | None = None
    per_class: bool = field(default=False, metadata={"flags": ("--per-class",)})
    layers: str = "0,1"
    batch: int = field(default=64, metadata=AT_LEAST_1)
    device: str | None = None


@dataclass(frozen=True)
class StatsCluster:
    """Where statistics are made in parts.

    Attributes:
        ray: Make parts on a Ray cluster: auto, local or HOST:PORT; paths must be shared.
        parts: Parts, each a task of the cluster.
        cpus_per_run: Cores of each task.
        gpus_per_run: GPUs of each task; may be a share.
    """

    ray: str | None = field(default=None, metadata={"metavar": "[ADDRESS]"})
    parts: int = field(default=64, metadata=AT_LEAST_1)
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0
