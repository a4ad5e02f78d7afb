"""TAPS: one step of MaPLe prompts on entropy and on the labelled memory for each image. Read this first.

`as_printed` is the paper's stream from the first image to the last. `PromptTuner` is the same as a method for
learners, services and tables: its state is saved, prompts may carry over, and without a memory it is TPT or
PromptAlign.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from taps.asking.base import Decision, Policy
from taps.asking.buffer import Buffer
from taps.asking.dynamic import Dynamic
from taps.asking.policy import first_threshold
from taps.errors import SettingsError, StateError
from taps.learning.alignment import Alignment, find_alignment
from taps.learning.fast import Engine, Start, report, shared_start
from taps.learning.fast.warm_up import try_step_kernels
from taps.learning.gradient import Gradient, point_at
from taps.learning.memory import Memory, ReplayItem, check_item, replay_item_from
from taps.learning.optimiser import fresh_moments
from taps.learning.step import StepResult, StepSettings, take_step
from taps.methods import AskSettings, BatchedMethod, HeadInputs, MethodOutput, Snapshot, TuneSettings, method
from taps.methods.base import tuned_from, tuned_tensors, with_prefix, without_prefix
from taps.methods.collapse_guard import CollapseGuard
from taps.methods.settings import reset_period
from taps.model.clip import Clip
from taps.model.images.views import make_views, sample_generator
from taps.model.prompts import Parameters, Prompts
from taps.model.prompts.choose import starting_prompts
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.classify import placed, prompt_classifier
from taps.saved import check_arrays, check_like, check_plain, flag, whole
from taps.types import PixelArray

log = logging.getLogger("taps")
EPISODIC_LR, CONTINUAL_LR = 4e-3, 5e-5
Launched = tuple[StepResult, MethodOutput]
"""A step, and its image's output as far as the host need not wait for the device."""


class TapsSettings(AskSettings):
    """The paper's: what prompts, memory and questions need."""


def as_printed(
    images: Iterable[PixelArray],
    expert: Callable[[int], int],
    classifier: Classifier,
    prompts: Prompts,
    s: TapsSettings,
    classes: tuple[str, ...] = (),
    seed: int = 0,
) -> Iterator[tuple[int, Tensor, Decision]]:
    """The paper's stream, made of the product's parts; each prompt step starts at θ0 (`reset="sample"`).

    Numbers are the steps of docs/paper.md. A test holds `taps.stream` with a learner of the method "taps" to
    exactly these probabilities, entropies and questions.

    Args:
        images: Pixels H×W×3, one image after the other.
        expert: Says the class of image t; called only where the method asks.
        classifier: The frozen model and the class names (`taps.model.prompts.classify.prompt_classifier`).
        prompts: Those that are tuned, trained on a source set.
        s: α, β, γ, ρ, L, T_min, τ0 and the learning rate under their names in this package.
        classes: Their names, where images are aligned to the statistics of their class (γ).
        seed: Of the views' crops, and of an eviction at random.

    Yields:
        t, the probabilities of the classes, and the decision: whether the expert is asked, and the threshold.
    """
    theta0 = point_at(classifier, placed(prompts, classifier))
    moments, alignment = fresh_moments(theta0.parameters), alignment_of(s, prompts, classifier, classes)
    tau0 = first_threshold(s.tau0, s.tau0_relative, len(theta0.text))
    policy, buffer = Dynamic(s.rate, s.warmup, tau0, s.switch_at), Buffer(s.buffer, s.eviction, seed)
    alpha, gamma = s.weight_ce, s.weight_fine
    memory = Memory(buffer, anchor=theta0, weight_ce=alpha, weight_fine=gamma, alignment=alignment)
    for t, image in enumerate(images):
        generator = sample_generator(seed, t)
        views = make_views(image, views=s.views, generator=generator, **classifier.clip.config.framing)
        decision = Decision(False, 0.0)

        def learns(entropy: Tensor) -> bool:
            nonlocal decision
            decision = policy.decide(float(entropy))  # 5, 6: Algorithm 1, by the entropy before the update
            return s.update_queried or not decision.ask

        step = take_step(  # 1 every image starts at θ0; 2–4; 7, 8
            classifier, theta0, moments, views, memory, step_settings(s), alignment=alignment, update=learns
        )
        yield t, torch.softmax(step.logits, dim=-1), decision  # committed before a label can be seen
        if decision.ask:  # 9: used from t + 1 on; Algorithm 2 makes room
            aligned = views if s.align == "paper" else views[step.chosen]
            item = ReplayItem(views[0].to(torch.uint8), aligned if s.weight_fine else None, step.features[0])
            memory.insert(classifier, theta0, t, expert(t), item)


def step_settings(settings: TuneSettings) -> StepSettings:
    """The numbers of a step; its learning rate depends on whether prompts carry over."""
    usual = EPISODIC_LR if reset_period(settings.reset) == 1 else CONTINUAL_LR
    return StepSettings(
        fraction=settings.fraction,
        lr=usual if settings.lr is None else settings.lr,
        weight_decay=settings.weight_decay,
        weight_entropy=settings.weight_entropy,
        weight_coarse=settings.weight_coarse,
        tsallis=settings.tsallis,
    )


def alignment_of(
    settings: TuneSettings, prompts: Prompts, classifier: Classifier, classes: tuple[str, ...]
) -> Alignment | None:
    """The alignment that the settings ask for; None where both of its weights are 0."""
    fine = settings.align_labelled if isinstance(settings, AskSettings) and settings.weight_fine else ""
    if not settings.weight_coarse and not fine:
        return None
    form, layers, source = settings.align, settings.align_layers, settings.source
    return find_alignment(form, layers, source, prompts, classifier, classes, fine=fine)


class PromptTuner(BatchedMethod):
    """Prompts that take one gradient step for each image.

    Args:
        clip: The frozen model.
        classes: Class names.
        settings: With a labelled memory where they are `AskSettings`.
        seed: For random eviction.
        gate: Picks out the images that are too uncertain to learn from; None to learn from all.
    """

    starts_from = "hand"  # which prompts are tuned, as in `@method(prompts=…)`

    def __init__(
        self,
        clip: Clip,
        classes: tuple[str, ...],
        settings: TuneSettings,
        seed: int = 0,
        *,
        gate: Policy | None = None,
    ) -> None:
        self.settings = settings
        self.classes = classes
        self.gate = gate
        self.prompts = starting_prompts(clip, settings.prompts, self.starts_from)
        try_step_kernels(clip, self.prompts)
        self.period = reset_period(settings.reset)
        self.classifier = prompt_classifier(clip, classes, self.prompts)
        self.alignment = alignment_of(settings, self.prompts, self.classifier, classes)
        self.step_settings = step_settings(settings)
        self.start = self._make_start() if self.key is None else shared_start(self.key, self._make_start)
        self.engine, self.anchor = self.start.engine, self.start.anchor
        self.fresh = fresh_moments(self.anchor.parameters)
        self.point, self.moments = self.anchor, self.fresh
        self.memory: Memory | None = None
        if isinstance(settings, AskSettings):
            self.memory = Memory(
                Buffer(settings.buffer, settings.eviction, seed),
                anchor=self.anchor if self.episodic else None,
                weight_ce=settings.weight_ce,
                weight_fine=settings.weight_fine,
                alignment=self.alignment,
                chunk=settings.chunk,
            )
        guarded = settings.guard and not self.episodic
        self.guard = CollapseGuard(settings.guard_window) if guarded else None
        self.seen = 0
        self.skipped_updates = self.held_back = 0

    @property
    def asks(self) -> bool:
        return self.memory is not None

    @cached_property
    def key(self) -> Hashable:
        """Equal where episodic streams start from the same prompts and take the same steps."""
        if not self.episodic or self.alignment is not None:
            return None
        settings = self.settings
        weight = settings.weight_ce if isinstance(settings, AskSettings) else None
        clip = id(self.classifier.clip)
        return clip, self.classes, self.prompts.fingerprint, settings.engine, self.step_settings, weight

    def _make_start(self) -> Start:
        engine = Engine(self.settings.engine, self.classifier.clip.device, episodic=self.episodic)
        return Start(engine, engine.point_at(self.classifier, placed(self.prompts, self.classifier)))

    @property
    def episodic(self) -> bool:
        """Whether every image starts from the loaded prompts."""
        return self.period == 1

    @property
    def stateless(self) -> bool:
        return self.episodic and self.memory is None and self.gate is None

    @property
    def _decides(self) -> bool:
        """Whether it is decided image by image if there is a step at all."""
        return self.gate is not None or not getattr(self.settings, "update_queried", True)

    def batch_key(self) -> Hashable:
        return None if self._decides else self.key

    def encode_batch(self, methods: Sequence[PromptTuner], views: Sequence[Tensor]) -> list[Launched]:
        memories = [method.memory for method in methods]
        stacked = torch.stack(list(views))
        steps = self.engine.steps(self.classifier, self.anchor, stacked, memories, self.step_settings)
        return [one._launched(own, step) for one, own, step in zip(methods, views, steps, strict=True)]

    def predict(self, views: Tensor, ahead: Launched | None = None) -> MethodOutput:
        outcome, output = self._launched(views, self._step(views)) if ahead is None else ahead
        self.seen += 1
        leaders = None if self.guard is None else self._leaders(outcome.logits, output.feature)
        # Everything is launched; from here on the host waits for the device.
        outcome.note()
        arrived = (outcome.arrived or report(output.probs, outcome.entropy, outcome.taken).cpu)()
        entropy, updated = arrived[-2:].tolist()
        if updated and not self.episodic:  # a step that was skipped leaves the optimiser as it was, too
            self.point, self.moments = outcome.end, outcome.moments
        if self.guard is not None and leaders is not None and self.guard.collapsed(*leaders.tolist()):
            self._start_afresh()
            log.warning(
                "The prompts collapsed to few classes at image %d and were restored (time %d); "
                "a lower lr or more resets may prevent it.",
                self.seen,
                self.guard.collapses,
            )
        self.skipped_updates += not updated
        return replace(output, probs=arrived[:-2], entropy=entropy, updated=bool(updated))

    def _launched(self, views: Tensor, outcome: StepResult) -> Launched:
        feature = outcome.features[0] if self.episodic else outcome.anchored
        if feature is None:
            feature = self._anchor_feature(views, outcome.features[0])
        output = MethodOutput(
            torch.softmax(outcome.logits, dim=-1),
            float("nan"),
            self._replay_item(views, outcome.chosen, feature),
            feature=feature,
            features=outcome.features if self.episodic else None,
            ensemble=outcome.ensemble if self.episodic else None,  # elsewhere the prompts have moved
        )
        return outcome, output

    def _step(self, views: Tensor) -> StepResult:
        if self.period and self.seen % self.period == 0:
            self._start_afresh()  # 1
        return self.engine.step(
            self.classifier,
            self.point,
            self.moments,
            views,
            self.memory,
            self.step_settings,
            alignment=self.alignment,
            update=self._learns_from if self._decides else None,
            anchor=self.anchor,
        )

    def _learns_from(self, entropy: Tensor) -> bool:
        if self.gate is not None:
            held = self.gate.decide(float(entropy)).ask
        elif self.will_ask is not None:
            held = self.will_ask(float(entropy))
        else:
            raise SettingsError(
                "update_queried=False needs questions by the entropy of the prompts' own predictions; "
                "leave it True for this method."
            )
        self.held_back += held
        return not held

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        assert self.memory is not None
        self.engine.learn(self.classifier, self.point, self.memory, id, label, item)
        if self.guard is not None:
            self.guard.labelled()

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """The sample leaves the buffer; prompts that carry over keep the steps they took because of it."""
        assert self.memory is not None
        self.memory.remove(id)

    def remembers(self, id: int) -> bool:
        return self.memory is not None and id in self.memory.buffer

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def head_inputs(self) -> HeadInputs:
        bases = ("zero_shot", "view_ensemble", "adapted") if self.episodic else ("zero_shot", "adapted")
        return HeadInputs(self.classifier, self.anchor.text.detach(), bases, self.episodic)

    def _start_afresh(self) -> None:
        self.point, self.moments = self.anchor, self.fresh

    @torch.no_grad()
    def _anchor_feature(self, views: Tensor, feature: Tensor) -> Tensor:
        """View 0's feature at the loaded prompts; the step has it where prompts leave images alone."""
        if self.anchor.tokens.vision is None or self.point is self.anchor:
            return feature
        return self.classifier.image(self.classifier.clip.preprocess(views[:1]), self.anchor.tokens.vision)[0]

    @torch.no_grad()
    def _leaders(self, logits: Tensor, feature: Tensor | None) -> Tensor:
        """The predicted class, and the one the loaded prompts would have predicted [2]."""
        assert feature is not None
        anchored = self.classifier.logits(feature[None], self.anchor.text)[0]
        return torch.stack([logits.argmax(), anchored.argmax()])

    def summary(self) -> dict[str, Any]:
        counts: dict[str, Any] = {"skipped_updates": self.skipped_updates}
        if self._decides:
            counts = {"skipped_updates": self.skipped_updates - self.held_back, "held_back": self.held_back}
        if self.guard is not None:
            counts["collapses"] = self.guard.collapses
        if self.memory is None:
            return counts
        held = sorted(self.memory.buffer.counts().items())
        return counts | {
            "buffer_fill": len(self.memory.buffer),
            "buffer_full": self.memory.buffer.ever_full,
            "buffer_classes": {self.classes[label]: count for label, count in held},
        }

    def snapshot(self) -> Snapshot:
        tensors = with_prefix("anchor.", self.anchor.parameters)
        if not self.episodic:
            tensors |= tuned_tensors(self.point.parameters, self.moments)
        values: dict[str, Any] = {
            "seen": self.seen,
            "skipped_updates": self.skipped_updates,
            "held_back": self.held_back,
            "optimiser_steps": self.moments.steps,
            **self._identity(),
            **{name: part.state_dict() for name, part in self._parts().items()},
        }
        if self.memory is not None:
            tensors |= with_prefix("memory.", dict(self.memory.tensors()))
            values["buffer"] = self.memory.buffer.state_dict()
        return Snapshot(tensors, values)

    def restore(self, snapshot: Snapshot) -> None:
        values, device = snapshot.values, self.classifier.clip.device
        counts = ("seen", "skipped_updates", "optimiser_steps")
        check_plain(values, dict.fromkeys(counts, whole()), "method")
        tensors = {name: tensor.to(device) for name, tensor in snapshot.tensors.items()}
        self._check_snapshot(values, without_prefix("anchor.", tensors))
        self.seen, self.skipped_updates = values["seen"], values["skipped_updates"]
        self.held_back = values.get("held_back", 0)
        if not self.episodic:
            check_like(tensors, tuned_tensors(self.anchor.parameters, self.fresh))
            moved, self.moments = tuned_from(tensors, values["optimiser_steps"])
            at_anchor = _same(moved, self.anchor.parameters)
            self.point = self.anchor if at_anchor else point_at(self.classifier, moved)
        if self.memory is not None:
            kept = without_prefix("memory.", tensors)
            count = len({name.split(".")[1] for name in kept if name.startswith("entry.")})
            payloads = [replay_item_from(f"entry.{index}", kept) for index in range(count)]
            self._check_memory(values["buffer"], payloads, kept)
            self.memory.buffer.load_state_dict(values["buffer"], payloads)
            self.memory.total = Gradient(kept.get("total.text"), kept.get("total.vision"))
        for name, part in self._parts().items():
            if name in values:
                part.load_state_dict(values[name])

    def _check_memory(
        self, buffer: dict[str, Any], payloads: list[ReplayItem], tensors: Mapping[str, Tensor]
    ) -> None:
        ids, labels = [whole()], [whole(len(self.classes) - 1)]
        losses = [lambda value: isinstance(value, float)]  # also those that are not finite
        wanted = {"ids": ids, "labels": labels, "orders": ids, "losses": losses}
        check_plain(buffer, wanted | {"next_order": whole(), "ever_full": flag}, "buffer")
        for payload in payloads:
            self.check_item(payload)
        for name, tokens in vars(self.anchor.tokens).items():
            if f"total.{name}" in tensors and tokens is not None:
                check_arrays(tensors, {f"total.{name}": tuple(tokens.shape)})

    def check_item(self, item: ReplayItem) -> None:
        kind, size = self.anchor.text.dtype, self.classifier.clip.config.image_size
        check_item(item, kind, feature=self.anchor.text.shape[1:])
        if item.gradient is None:
            return check_item(item, torch.uint8, pixels=(3, size, size))
        for name, tokens in vars(self.anchor.tokens).items():
            if (part := getattr(item.gradient, name)) is not None:
                check_like({"gradient": part}, {"gradient": tokens.to(kind)})

    def _parts(self) -> dict[str, Policy | CollapseGuard]:
        named = {"gate": self.gate, "guard": self.guard}
        return {name: part for name, part in named.items() if part is not None}

    def _check_snapshot(self, values: dict[str, Any], anchor: Parameters) -> None:
        """Refuse a state whose cached gradients or moments belong to other prompts or another loss."""
        for name, mine in self._identity().items():
            if values.get(name) != mine:
                raise StateError(
                    f"The saved state has {name}={values.get(name)!r}, this learner {mine!r}; "
                    "make it with the saved settings, or with `Learner.load`."
                )
        if not _same(anchor, self.anchor.parameters):
            raise StateError("The saved state began with other prompts; give the learner the same ones.")

    def _identity(self) -> dict[str, Any]:
        own = {"kind": self.prompts.kind, "suffix": self.prompts.suffix, "period": self.period}
        if self.memory is None:
            return own
        own |= {"weight_ce": self.memory.weight_ce, "weight_fine": self.memory.weight_fine}
        whole = getattr(self.settings, "align_labelled", "class") == "whole"
        return own | ({"align_labelled": "whole"} if whole and self.memory.weight_fine else {})

    def _replay_item(self, views: Tensor, chosen: Tensor, feature: Tensor) -> ReplayItem | None:
        if self.memory is None:
            return None
        aligned = None
        if self.memory.weight_fine:
            aligned = views if self.settings.align == "paper" else views[chosen.to(views.device)]
        # View 0 holds whole numbers even beside AugMix; copies, since a slice keeps all views alive.
        return ReplayItem(pixels=views[0].to(torch.uint8, copy=True), views=aligned, feature=feature.clone())


@method("taps", TapsSettings, prompts="any", by_dataset=True)
class Taps(PromptTuner):
    starts_from = "any"


def _same(one: Parameters, other: Parameters) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
