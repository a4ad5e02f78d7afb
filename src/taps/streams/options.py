"""Options of the commands over a folder of images. It imports no torch: a mistake is reported at once."""

from __future__ import annotations

import json
import os.path
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from taps.default import METHOD
from taps.errors import SettingsError


@dataclass(frozen=True)
class ImageOptions:
    """Which images, which classes, and which model.

    Attributes:
        folder: Folder (or zip) of images, with or without one folder a class.
        classes: Names separated by commas, or a file with one a line; else the folders' names. "mug | cup" is
            one class with two names.
        template: The sentence a class name is put into: 'a photo of a {}.'. Several, with | between them, are
            averaged; so are those of imagenet80 and imagenet7. own: the data set's.
        texts: JSON file of sentences by class: {"hen": ["a hen has feathers", …], …}. A --template that is
            given counts beside them; {text} in it stands for each sentence.
        model: pocket, ViT-B-16, a checkpoint's path, …
        pretrained: Weights for an architecture: a file, openai, laion2b.
        device: cpu or cuda; by default a GPU where one is found.
        dtype: Precision of the model, by default fp32. bf16 is quicker where the processor has instructions
            for it (AVX-512 BF16, AMX), slower elsewhere, and not to the same last digit.
    """

    folder: str = field(metadata={"argument": True})
    classes: str | None = None
    template: str | None = None
    texts: str | None = None
    model: str = "pocket"
    pretrained: str | None = None
    device: str | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class SortOptions:
    """Where images are sorted to by their classes.

    Attributes:
        sort_into: When done, copy each image into a folder of its class below this one.
        link: Link instead of copying.
        sure: Images below this probability are sorted under not-sure/.
    """

    sort_into: Path | None = None
    link: bool = False
    sure: float = field(default=0.5, metadata={"max": 1})


@dataclass(frozen=True)
class RunOptions(ImageOptions):
    """One run over a folder of images. Plain values only: they are stored with the run.

    Attributes:
        method: The method: `taps methods` lists them, `taps` is the paper's.
        prompts: hand, a family such as coop or maple, or a directory of trained prompts.
        source: Source statistics made by `taps stats`.
        annotator: Who answers: folder (its own labels), console (you), none; noisy:rate=0.2 or
            delayed:delay=5 (from the labels, too); or a plugin's.
        name: Your name at the console: how often each annotator is wrong is learned by name.
        rate: Share of images to ask about; by default the method's own.
        budget: Questions in all, spread over the images; no --rate is needed then.
        buffer: Labelled images that are kept; by default the method's own number.
        quick: Four views of each image: faster, and a little less accurate.
        seed: Seed of every random choice.
        limit: Stop after this many images.
        shuffle: Shuffle the stream by the seed, or take it in order of names.
        order: Of a shuffled stream: shuffled, by_class, by_domain, dirichlet:0.1; as papers draw it:
            statA:0.1, correlated:0.1, longtail:100. These read the folder's own labels.
        settings: Any other setting of the method: name=value. May be repeated.
    """

    folder: str | None = field(default=None, metadata={"argument": True})  # type: ignore[assignment]
    method: str = METHOD
    prompts: str | None = None
    source: str | None = None
    annotator: str = "folder"
    name: str | None = field(default=None, metadata={"flags": ("--as",)})
    rate: float | None = None
    budget: int | None = field(default=None, metadata={"min": 1})
    buffer: int | None = None
    quick: bool = False
    seed: int = 0
    limit: int | None = None
    shuffle: bool = True
    order: str = "shuffled"
    settings: dict[str, Any] = field(default_factory=dict, metadata={"flags": ("--set",)})

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise SettingsError(f"--limit is {self.limit}; it must be 1 or more.")
        if not self.shuffle and self.order != "shuffled":
            raise SettingsError(f"--order {self.order} shuffles the stream; leave out --no-shuffle.")

    def plain(self) -> dict[str, Any]:
        """The stored form: paths in full, so that the run can be continued from any folder."""
        values = asdict(self)
        for name in ("folder", "classes", "texts", "model", "pretrained", "prompts", "source"):
            if values[name] is not None and _is_path(values[name]):
                values[name] = str(Path(values[name]).expanduser().resolve())
        stored: dict[str, Any] = json.loads(json.dumps(values))
        return stored


def _is_path(text: str) -> bool:
    """Whether a text is the path of something, if only inside a zip, and no plain name."""
    place = Path(text).expanduser()
    return (os.path.isdir(place) or bool(place.suffix) or "/" in text) and any(
        os.path.exists(step)
        for step in (place, *place.parents[:-1])  # unlike Path's, for long lists too
    )
