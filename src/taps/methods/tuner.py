"""What is behind every method that tunes prompts at test time: it owns the prompts and the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from taps.buffer import Buffer
from taps.classifier import Classifier, class_texts
from taps.clip import Clip
from taps.errors import SettingsError
from taps.gradient import Gradient, Point, point_at
from taps.memory import Alignment, Evidence, Memory, evidence_from, make_alignment
from taps.methods.base import Snapshot, Verdict
from taps.methods.settings import AskSettings, TuneSettings, reset_period
from taps.optimiser import Moments, fresh_moments
from taps.prompts import Prompts
from taps.prompts.choose import choose_prompts
from taps.source import SourceStats
from taps.step import StepSettings, always, take_step

EPISODIC_LR, CONTINUAL_LR = 4e-3, 5e-5


class Tuner:
    """Prompts that take one gradient step for each image.

    Args:
        clip: The frozen model.
        classes: Class names.
        settings: Of the method; with a memory where they are `AskSettings`.
        default: Family of prompts the method uses unless told otherwise.
        seed: For random eviction.
        update: Whether to learn from an image of a given entropy.
    """

    def __init__(
        self,
        clip: Clip,
        classes: tuple[str, ...],
        settings: TuneSettings,
        *,
        default: str,
        seed: int = 0,
        update: Callable[[Tensor], bool] = always,
    ) -> None:
        self.settings = settings
        self.classes = classes
        self.update = update
        self.prompts = choose_prompts(clip, settings.prompts, default=default)
        self.period = reset_period(settings.reset)
        self.classifier = prompt_classifier(clip, classes, self.prompts)
        self.anchor = self._anchor(self.prompts)
        self.point, self.moments = self.anchor, fresh_moments(self.anchor.parameters)
        self.alignment = self._alignment()
        self.step_settings = StepSettings(
            fraction=settings.fraction,
            lr=self.lr,
            weight_decay=settings.weight_decay,
            weight_entropy=settings.weight_entropy,
            weight_coarse=settings.weight_coarse,
        )
        self.memory = self._memory(settings, seed) if isinstance(settings, AskSettings) else None
        self.seen = 0
        self.skipped_updates = 0

    @property
    def asks(self) -> bool:
        return self.memory is not None

    @property
    def episodic(self) -> bool:
        """Whether every image starts from the loaded prompts."""
        return self.period == 1

    @property
    def lr(self) -> float:
        if self.settings.lr is not None:
            return self.settings.lr
        return EPISODIC_LR if self.episodic else CONTINUAL_LR

    def predict(self, views: Tensor) -> Verdict:
        if self.period and self.seen % self.period == 0:
            self.point, self.moments = self.anchor, fresh_moments(self.anchor.parameters)  # 1
        outcome = take_step(
            self.classifier,
            self.point,
            self.moments,
            views,
            self.memory,
            self.step_settings,
            alignment=self.alignment,
            update=self.update,
            keep_graph=not self.episodic,
        )
        self.seen += 1
        if not self.episodic:
            self.point, self.moments = outcome.end, outcome.moments
        probs = torch.softmax(outcome.logits, dim=-1)
        updated = bool(outcome.taken)
        self.skipped_updates += not updated
        return Verdict(
            probs, float(outcome.entropy), self._evidence(views, outcome.chosen, outcome.feature), updated
        )

    def learn(self, id: int, label: int, evidence: Evidence) -> None:
        assert self.memory is not None
        self.memory.insert(self.classifier, self.point, id, label, evidence)

    def summary(self) -> dict[str, Any]:
        counts = {"skipped_updates": self.skipped_updates}
        if self.memory is None:
            return counts
        by_class = {
            self.classes[label]: count for label, count in sorted(self.memory.buffer.counts().items())
        }
        return counts | {
            "buffer_fill": len(self.memory.buffer),
            "buffer_full": self.memory.buffer.ever_full,
            "buffer_classes": by_class,
        }

    def snapshot(self) -> Snapshot:
        tensors = {f"anchor.{name}": value for name, value in self.anchor.parameters.items()}
        if not self.episodic:
            tensors |= {f"parameters.{name}": value for name, value in self.point.parameters.items()}
            tensors |= {f"first.{name}": value for name, value in self.moments.first.items()}
            tensors |= {f"second.{name}": value for name, value in self.moments.second.items()}
        values: dict[str, Any] = {
            "seen": self.seen,
            "skipped_updates": self.skipped_updates,
            "optimiser_steps": self.moments.steps,
            "kind": self.prompts.kind,
            "suffix": self.prompts.suffix,
        }
        if self.memory is not None:
            tensors |= {f"memory.{name}": value for name, value in self.memory.tensors()}
            values["buffer"] = self.memory.buffer.state_dict()
        return Snapshot(tensors, values)

    def restore(self, snapshot: Snapshot) -> None:
        values, device = snapshot.values, self.classifier.clip.device
        tensors = {name: tensor.to(device) for name, tensor in snapshot.tensors.items()}
        self.seen, self.skipped_updates = values["seen"], values["skipped_updates"]
        if not self.episodic:
            self.point = point_at(self.classifier, _under("parameters.", tensors))
            self.moments = Moments(
                _under("first.", tensors), _under("second.", tensors), values["optimiser_steps"]
            )
        if self.memory is not None:
            kept = _under("memory.", tensors)
            count = len({name.split(".")[1] for name in kept if name.startswith("entry.")})
            payloads = [evidence_from(f"entry.{index}", kept) for index in range(count)]
            self.memory.buffer.load_state_dict(values["buffer"], payloads)
            self.memory.total = Gradient(kept.get("total.text"), kept.get("total.vision"))

    def _anchor(self, prompts: Prompts) -> Point:
        device, dtype = self.classifier.clip.device, self.classifier.dtype
        parameters = {
            name: value.to(device=device, dtype=dtype) for name, value in prompts.parameters.items()
        }
        return point_at(self.classifier, parameters)

    def _memory(self, settings: AskSettings, seed: int) -> Memory:
        return Memory(
            Buffer(settings.buffer, settings.eviction, seed),
            anchor=self.anchor if self.episodic else None,
            weight_ce=settings.weight_ce,
            weight_fine=settings.weight_fine,
            alignment=self.alignment,
            chunk=settings.chunk,
        )

    def _alignment(self) -> Alignment | None:
        settings = self.settings
        fine = settings.weight_fine if isinstance(settings, AskSettings) else 0.0
        if not settings.weight_coarse and not fine:
            return None
        if self.anchor.tokens.vision is None:
            raise SettingsError(
                "Alignment needs prompts in the vision tower (maple); set weight_coarse to 0."
            )
        source = settings.source
        if source is None:
            raise SettingsError(
                "Alignment needs source statistics: give source=, a file made by `taps stats`."
            )
        stats = source if isinstance(source, SourceStats) else SourceStats.load(source)
        stats.check(model=self.classifier.clip.fingerprint, prompts=self.prompts.fingerprint)
        layers = settings.align_layers or ((0, 1) if settings.align == "promptalign" else stats.layers)
        missing = [layer for layer in layers if layer not in stats.layers]
        if missing:
            raise SettingsError(
                f"The source statistics hold blocks {stats.layers}, not {missing}; make them again."
            )
        return make_alignment(settings.align, layers, stats, self.classes, self.classifier, fine=bool(fine))

    def _evidence(self, views: Tensor, chosen: Tensor, feature: Tensor) -> Evidence | None:
        if self.memory is None:
            return None
        aligned = None
        if self.memory.weight_fine:
            aligned = views if self.settings.align == "paper" else views[chosen.to(views.device)]
        return Evidence(pixels=views[0].clone(), views=aligned, feature=feature)


def prompt_classifier(clip: Clip, classes: tuple[str, ...], prompts: Prompts) -> Classifier:
    """A classifier whose class texts follow a learned context."""
    context = prompts.parameters["context"].shape[-2]
    layout = clip.text_layout(class_texts(classes, prompts.suffix), context=context)
    return Classifier(clip, layout, prompts.kind)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
