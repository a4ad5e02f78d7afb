"""The settings of all methods, for type checkers. Written by recipes/typed_settings.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from taps.prompts import Prompts
    from taps.prompts.source import SourceStats


class AnySettings(TypedDict, total=False):
    """Every setting some method has. Which one has which is checked when a learner is made."""

    acquisition: str
    affinity: float
    align: float | str
    align_layers: tuple[int, ...] | None
    aligned_shots: int
    alpha: float
    anchor: float
    as_published: bool
    augmix: bool
    batch: int
    begin: str
    blocks: int
    budget: int | str
    budget_seconds: float | None
    buffer: int
    chunk: int
    class_seconds: float | None
    collapsed_below: float
    contexts: int
    doubt: float
    drop: float
    dropout: float
    early: float
    engine: str
    eviction: str
    expected: int | None
    explore: float
    feature_above: float
    feature_count: float
    fraction: float
    frozen_blocks: int
    guard: bool
    guard_window: int
    length: float
    likeliest: int
    lr: float | None
    margin: float
    mask_above: float
    memory: int
    momentum: float
    more: int
    near_images: int
    near_labelled: int
    near_texts: int
    negative_sharpness: float
    negative_shots: int
    negative_weight: float
    neighbourhood: str
    neighbours: int
    order: str
    orthogonal: float
    pace: float | str
    patch_rate: float
    patches: int
    penalty: float
    policy: str
    positive_sharpness: float
    positive_shots: int
    positive_weight: float
    power: float
    prompts: Path | Prompts | str | None
    prototype_weight: float
    questions: str | None
    radius: float
    rank: int
    rate: float
    recall_weight: float
    recent: int
    refit: int
    reset: str
    reward: str | None
    rounds: int
    scale: float | None
    share: float
    share_rate: float
    sharpness: float
    shots: int
    shrink: float
    skip: float
    source: Path | SourceStats | str | None
    spread: float
    step: float
    steps: int
    sure: int
    sure_below: float
    switch_at: float | None
    table_above: float
    table_count: float
    tau0: float | None
    tau0_relative: float | None
    temperature: float
    template: str | tuple[str, ...] | None
    text_count: float
    texts: Mapping[str, Sequence[str]] | Path | str | None
    ties: str
    tsallis: float
    undo: int
    unsure_from: float
    unsure_to: float
    variance: float
    view_backend: str
    view_rate: float
    views: int
    vote: float | None
    warmup: int
    weight: float
    weight_ce: float
    weight_coarse: float
    weight_decay: float
    weight_entropy: float
    weight_fine: float
    weight_growth: float
    weight_most: float
    window: int
    yes_no_seconds: float
    zero_shot: float
