"""The options of an evaluation: what is measured, and how the runs are carried out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taps.errors import SettingsError


def check_distinct(what: str, numbers: Sequence[int]) -> None:
    """Refuse a number that is named twice: its run would be counted once."""
    twice = [number for number, count in Counter(numbers).items() if count > 1]
    if twice:
        raise SettingsError(f"{what} has {twice[0]} twice; name each number once.")


@dataclass(frozen=True)
class Setup:
    """The streams, the model and the settings that all methods share.

    Attributes:
        dataset: Names (`taps data list`) or paths, separated by commas.
        model: pocket, ViT-B-16, a checkpoint's path, …
        pretrained: Weights for an architecture: a file, openai, laion2b.
        prompts: Trained prompts: a directory, or a directory with one a family.
        source: Source statistics made by `taps stats`.
        root: Folder that holds the named data sets.
        seeds: One run each: order of the stream and everything random.
        rate: Share of images to ask about; by default the method's own.
        buffer: Labelled images that are kept; by default the method's own number.
        limit: Only the first N images of each order.
        preset: Published settings: auto (each data set's own), or a name such as dtd.
        settings: Any other setting: name=value; methods without it ignore it.
        template: The sentence a class name is put into, such as 'a photo of a {}.'. Several, with | between
            them, are averaged; so are those of imagenet80 and imagenet7. own: the data set's.
        texts: JSON file of sentences by class, for methods with hand-written class texts. A --template that
            is given counts beside them; {text} in it stands for each sentence.
        corrupt: See every image through a corruption, or `mix`.
        severity: Of the corruption, 1 to 5; several separated by commas for one stream each.
        outside: Mix in images of no class: a data set, and after a colon their share (dtd.zip:0.2).
        order: Of the stream: shuffled, by_class, by_domain, dirichlet:0.1 (shares of classes that change); as
            papers draw it: statA:0.1, statA:separate, statA_batch:64:1-4, correlated:0.1, longtail:100.
        noise: Share of the annotator's answers that are wrong.
        delay: Images that pass before an answer comes.
    """

    dataset: tuple[str, ...] = ()
    model: str = "pocket"
    pretrained: str | None = None
    prompts: str | None = None
    source: str | None = None
    root: Path | None = field(default=None, metadata={"envvar": "TAPS_DATA"})
    seeds: tuple[int, ...] = (1, 2, 3)
    rate: float | None = None
    buffer: int | None = None
    limit: int | None = field(default=None, metadata={"min": 1})
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict, metadata={"flags": ("--set",)})
    template: str | None = None
    texts: str | None = None
    corrupt: str | None = None
    severity: tuple[int, ...] = (3,)
    outside: str | None = None
    order: str = "shuffled"
    noise: float = field(default=0.0, metadata={"max": 1})
    delay: int = 0

    @property
    def values(self) -> dict[str, Any]:
        """The settings of methods, those with an option of their own too."""
        return {"rate": self.rate, "buffer": self.buffer, "source": self.source, **self.settings}


@dataclass(frozen=True)
class Execution:
    """How runs are carried out; none of it changes a result.

    Attributes:
        jobs: Runs side by side, each a process; they share the cores.
        device: cpu or cuda; by default a GPU where one is found.
        minutes: Save and stop after so long.
        resume: Go on with what is in the folder.
        ray: Run on a Ray cluster: auto (the one this machine belongs to), local (started here) or HOST:PORT;
            without a value the first, or else the second. A folder as --out and data sets must be at the same
            paths on all its machines.
        cpus_per_run: Cores that a run takes on the cluster.
        gpus_per_run: GPUs that a run takes on the cluster: by default none; 1, or a share of one.
    """

    jobs: int = field(default=1, metadata={"min": 1})
    device: str | None = None
    minutes: float | None = None
    resume: bool = False
    ray: str | None = field(default=None, metadata={"metavar": "[ADDRESS]"})
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0

    def __post_init__(self) -> None:
        if self.ray is not None and self.jobs != 1:
            raise SettingsError(
                "With --ray as many runs go on at a time as the cluster has room for; leave out --jobs, and "
                "give each a larger share with --cpus-per-run for fewer."
            )

    def deadline(self) -> float | None:
        """Time (of `time.time`) at which runs are saved and left, counted from now."""
        return None if self.minutes is None else time.time() + 60 * self.minutes
