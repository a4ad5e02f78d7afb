"""What a method's features are aligned to: source statistics, given or shipped, checked before use."""

from __future__ import annotations

from taps.adapt.memory import Alignment, make_alignment
from taps.errors import SettingsError
from taps.methods import AskSettings, TuneSettings
from taps.prompts import Prompts
from taps.prompts.choose import shipped_source
from taps.prompts.classifier import Classifier
from taps.prompts.source import SourceStats

PROMPTALIGN_LAYERS = (0, 1)


def find_alignment(
    classifier: Classifier, classes: tuple[str, ...], prompts: Prompts, settings: TuneSettings
) -> Alignment | None:
    """The alignment that the settings ask for; None where both of its weights are 0."""
    fine = bool(settings.weight_fine) if isinstance(settings, AskSettings) else False
    if not settings.weight_coarse and not fine:
        return None
    if prompts.kind != "maple":
        raise SettingsError(
            f"Alignment needs prompts in the vision tower (maple), but these are {prompts.kind} prompts; "
            "give others or set weight_coarse and weight_fine to 0."
        )
    stats = _statistics(classifier, prompts, settings)
    layers = settings.align_layers or (
        PROMPTALIGN_LAYERS if settings.align == "promptalign" else stats.layers
    )
    missing = [layer for layer in layers if layer not in stats.layers]
    if missing:
        raise SettingsError(
            f"The source statistics hold blocks {stats.layers}, not {missing}; make them again."
        )
    depth = 1 + len(prompts.parameters["deep"])
    return make_alignment(settings.align, layers, stats, classes, classifier, fine=fine, depth=depth)


def _statistics(classifier: Classifier, prompts: Prompts, settings: TuneSettings) -> SourceStats:
    source = settings.source
    if source is None:
        found = shipped_source(classifier.clip, prompts)
        if found is None:
            raise SettingsError(
                "Alignment needs source statistics: give source=, a file made by `taps stats`."
            )
        return found
    stats = source if isinstance(source, SourceStats) else SourceStats.load(source)
    stats.check(model=classifier.clip.fingerprint, prompts=prompts.fingerprint)
    return stats
