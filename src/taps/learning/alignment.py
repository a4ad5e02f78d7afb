"""Alignment of features to the statistics of a source set (eq. coarse and fine)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from taps.errors import SettingsError
from taps.learning.losses import ALIGN
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.choose import shipped_source
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.families import FAMILIES
from taps.model.prompts.source import SourceStats

PROMPTALIGN_LAYERS = (0, 1)


@dataclass(frozen=True)
class Target:
    """Source statistics [blocks, tokens, width], of the whole set or of a class, on the model's device."""

    means: Tensor
    variances: Tensor


@dataclass(frozen=True)
class Alignment:
    """How features are aligned, and to what."""

    form: str  # "promptalign" or "paper"
    layers: tuple[int, ...]  # the vision blocks whose inputs are compared
    tokens: tuple[int, ...]  # how many tokens of each of them are compared
    coarse: Target | None  # statistics of the whole source set
    fine: dict[int, Target]  # those of each class, for fine alignment

    @property
    def confident_only(self) -> bool:
        """Whether coarse alignment averages over the confident views alone, not over all of them."""
        return self.form == "promptalign"

    def inputs(self, classifier: Classifier, images: Tensor, vision: Tensor | None) -> list[Tensor]:
        """The inputs of `layers` for preprocessed images."""
        kept = classifier.clip.image_layers(images, vision, self.layers)
        return [layer.to(classifier.dtype) for layer in kept]

    def loss(self, features: list[Tensor], target: Target) -> Tensor:
        compared = [feature[:, :count] for feature, count in zip(features, self.tokens, strict=True)]
        return ALIGN[self.form](compared, list(target.means), list(target.variances))


def make_alignment(
    form: str,
    layers: tuple[int, ...],
    source: SourceStats,
    classes: tuple[str, ...],
    classifier: Classifier,
    fine: str,
    depth: int,
) -> Alignment:
    """Alignment to the given blocks of source statistics.

    Labelled images are aligned to the statistics of their class (`fine="class"`), to those of the whole set,
    as in the paper's ablation ("whole"), or not at all ("").

    Before each of the first `depth` blocks the prompts are inserted again, the same for every image. Their
    mean is that of the source set up to rounding, so the sign of the difference, which is its gradient, would
    be noise: there only the image's own tokens are compared.
    """

    def placed(values: Tensor) -> Tensor:
        return values.to(device=classifier.clip.device, dtype=classifier.dtype)

    rows = [source.layers.index(layer) for layer in layers]
    coarse = Target(placed(source.mean[rows]), placed(source.variance[rows]))
    targets = {}
    if fine == "class":
        for index, (means, variances) in enumerate(source.of_classes(classes)):
            targets[index] = Target(placed(means[rows]), placed(variances[rows]))
    elif fine == "whole":
        targets = dict.fromkeys(range(len(classes)), coarse)
    own = classifier.clip.config.image_tokens
    tokens = tuple(own if layer < depth else source.mean.shape[1] for layer in layers)
    return Alignment(form, layers, tokens, coarse, targets)


def find_alignment(
    form: str,
    layers: Sequence[int] | None,
    source: SourceStats | str | Path | None,
    prompts: Prompts,
    classifier: Classifier,
    classes: tuple[str, ...],
    *,
    fine: str,
) -> Alignment:
    """Alignment of prompts in the vision tower to source statistics: given, in a file, or those shipped."""
    if not FAMILIES[prompts.kind].vision:
        raise SettingsError(
            f"Alignment needs prompts in the vision tower (maple's), but these are {prompts.kind} prompts; "
            "give others or set weight_coarse and weight_fine to 0."
        )
    stats = find_statistics(source, prompts, classifier.clip)
    wanted = tuple(layers or (PROMPTALIGN_LAYERS if form == "promptalign" else stats.layers))
    if form == "paper" and layers is None:  # the printed equation is over all blocks
        wanted = tuple(range(classifier.clip.config.vision_layers))
    missing = [layer for layer in wanted if layer not in stats.layers]
    if missing:
        raise SettingsError(
            f"The source statistics hold blocks {', '.join(map(str, stats.layers))}, and {form!r} alignment "
            f"needs {', '.join(map(str, missing))} as well; make them with `taps stats --layers all`, or set "
            "align_layers."
        )
    depth = 1 + len(prompts.parameters["deep"])
    return make_alignment(form, wanted, stats, classes, classifier, fine=fine, depth=depth)


def find_statistics(source: SourceStats | str | Path | None, prompts: Prompts, clip: Clip) -> SourceStats:
    if source is None:
        shipped = shipped_source(clip, prompts)
        if shipped is None:
            raise SettingsError(
                "Alignment needs source statistics: give source=, a file made by `taps stats`."
            )
        return shipped
    stats = source if isinstance(source, SourceStats) else SourceStats.load(source)
    stats.check(model=clip.fingerprint, prompts=prompts.fingerprint)
    return stats
