"""Settings that methods have in common: dataclasses that build on each other, fields only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from taps.adapt.graphs import ENGINES
from taps.errors import SettingsError
from taps.images.views import BACKENDS
from taps.prompts import Prompts
from taps.prompts.source import SourceStats


@dataclass(frozen=True)
class TextSettings:
    """For methods that need class texts and one view.

    Attributes:
        template: The sentence a class name is put into, where no learned context takes its place.
    """

    template: str = "a photo of a {}."


@dataclass(frozen=True)
class ViewSettings(TextSettings):
    """For methods that look at several views of an image.

    Attributes:
        views: How many, view 0 included.
        fraction: ρ, the share of most confident views that is kept.
        augmix: Whether random views are also mixed with distorted copies of themselves.
        view_backend: "tensor" or "pillow".
    """

    views: int = 64
    fraction: float = 0.1
    augmix: bool = False
    view_backend: str = "tensor"


@dataclass(frozen=True)
class TuneSettings(ViewSettings):
    """For methods that tune prompts on each image.

    Attributes:
        prompts: What is tuned: "hand" (a context that starts as "a photo of a"), "coop", "maple", a directory
            made by `taps train`, or a `Prompts`; None for the method's own choice.
        lr: Learning rate; None for 4e-3 where every image starts afresh, 5e-5 where prompts carry over.
        weight_decay: Of AdamW.
        weight_entropy: Weight of H_t in the loss.
        weight_coarse: β, weight of alignment to the source set's statistics.
        align: "promptalign" (PromptAlign's published form) or "paper" (the printed equation).
        align_layers: Vision blocks whose inputs are aligned; None for the form's own choice.
        source: Source statistics, or the path of a file made by `taps stats`.
        reset: When prompts go back to the loaded ones: "sample", "never", or "every:k".
        guard: Whether prompts that carry over are restored when they collapse to few classes.
        guard_window: How many of the last images the guard looks at.
        engine: "auto" (recorded as CUDA graphs where there is a GPU), "eager" or "graph"; same numbers.
    """

    prompts: str | Path | Prompts | None = None
    lr: float | None = None
    weight_decay: float = 0.01
    weight_entropy: float = 1.0
    weight_coarse: float = 0.0
    align: str = "promptalign"
    align_layers: tuple[int, ...] | None = None
    source: str | Path | SourceStats | None = None
    reset: str = "sample"
    guard: bool = True
    guard_window: int = 100
    engine: str = "auto"


@dataclass(frozen=True)
class AskSettings(TuneSettings):
    """For methods that ask an expert.

    Attributes:
        weight_ce: α, weight of the labelled memory's cross-entropy.
        weight_fine: γ, weight of its alignment to class statistics.
        buffer: L, how many labelled images are kept.
        eviction: "balanced" (Algorithm 2), "random", "oldest" or "age_uncertainty".
        chunk: Memory entries per forward where prompts carry over; on a GPU two forwards run at once.
        policy: "dynamic" (Algorithm 1), "quantile", "random" or "fixed".
        rate: Share of images to ask about.
        warmup: T_min, images before the threshold is estimated.
        tau0: τ0, threshold until then, in nats.
        tau0_relative: τ0 as a share of ln K instead.
        switch_at: Achieved rate from which the stricter threshold holds; None for `rate` itself.
        budget: "soft" (the paper: steered, not guaranteed), "hard" (never above the rate), or a number of
            questions.
        order: "predict_first" (the tables' protocol) or "ask_first" (the expert's answer is the prediction).
    """

    weight_ce: float = 1.0
    weight_fine: float = 0.0
    buffer: int = 150
    eviction: str = "balanced"
    chunk: int = 40
    policy: str = "dynamic"
    rate: float = 0.05
    warmup: int = 30
    tau0: float = 2.0
    tau0_relative: float | None = None
    switch_at: float | None = None
    budget: str | int = "soft"
    order: str = "predict_first"


S = TypeVar("S", bound=TextSettings)


def make_settings(kind: type[S], values: Mapping[str, Any], *, method: str) -> S:
    """Settings of a method from keyword arguments; unknown names and bad values are refused."""
    known = {field.name for field in fields(kind)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise SettingsError(
            f"The method {method!r} has no setting {', '.join(unknown)}; its settings are "
            f"{', '.join(sorted(known))}."
        )
    settings = kind(**values)
    check_settings(settings)
    return settings


def check_settings(settings: TextSettings) -> None:
    """Refuse values out of range, naming the field and the value."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "views": (lambda v: isinstance(v, int) and v >= 1, "a whole number of at least 1"),
        "fraction": (lambda v: 0 < v <= 1, "above 0 and at most 1"),
        "view_backend": (lambda v: v in BACKENDS, f"one of {', '.join(BACKENDS)}"),
        "lr": (lambda v: v is None or 0 <= v < math.inf, "0 or more, and finite"),
        "weight_decay": (lambda v: v >= 0, "0 or more"),
        "weight_entropy": (lambda v: v >= 0, "0 or more"),
        "weight_coarse": (lambda v: v >= 0, "0 or more"),
        "weight_ce": (lambda v: v >= 0, "0 or more"),
        "weight_fine": (lambda v: v >= 0, "0 or more"),
        "align": (lambda v: v in ("promptalign", "paper"), "promptalign or paper"),
        "order": (lambda v: v in ("predict_first", "ask_first"), "predict_first or ask_first"),
        "reset": (is_reset, '"sample", "never" or "every:k" with k of at least 1'),
        "engine": (lambda v: v in ENGINES, f"one of {', '.join(ENGINES)}"),
        "guard_window": (lambda v: isinstance(v, int) and v >= 2, "a whole number of at least 2"),
        "scale": (lambda v: v is None or 0 < v < math.inf, "above 0 and finite, or None"),
        "ties": (lambda v: v in ("views", "mean"), "views or mean"),
        "skip": (lambda v: 0 < v < 1, "above 0 and below 1"),
        "chunk": (lambda v: isinstance(v, int) and v >= 1, "a whole number of at least 1"),
        "buffer": (lambda v: isinstance(v, int) and v >= 0, "a whole number of at least 0"),
    }
    for name, (holds, wanted) in rules.items():
        if name in values and not _holds(holds, values[name]):
            raise SettingsError(f"The setting {name} is {values[name]!r}; it must be {wanted}.")


def _holds(rule: Callable[[Any], bool], value: Any) -> bool:
    try:
        return rule(value)
    except (TypeError, AttributeError):  # a word where a number belongs, or the other way round
        return False


def is_reset(value: str) -> bool:
    return value in ("sample", "never") or (
        value.startswith("every:") and value[6:].isdecimal() and int(value[6:]) >= 1
    )


def reset_period(reset: str) -> int:
    """After how many images prompts go back; 0 for never.

    >>> reset_period("sample"), reset_period("every:20"), reset_period("never")
    (1, 20, 0)
    """
    if reset.startswith("every:"):
        return int(reset.removeprefix("every:"))
    return 1 if reset == "sample" else 0
