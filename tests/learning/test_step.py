"""One whole TAPS step against the equations written out in float64 (tests/literal.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from taps import load_clip
from taps.asking.buffer import Buffer
from taps.learning.alignment import Alignment, Target, make_alignment
from taps.learning.gradient import Point, point_at
from taps.learning.losses import ALIGN
from taps.learning.memory import Memory, ReplayItem
from taps.learning.optimiser import fresh_moments
from taps.learning.step import StepSettings, take_step
from taps.model.clip import Clip
from taps.model.clip.tokenizer import encode
from taps.model.prompts import Prompts
from taps.model.prompts.classify import prompt_classifier
from taps.model.prompts.coop import Coop
from tests import literal
from tests.literal import Adam, Judged, Labelled, Literal, Weights, draw_source

CLASSES = ("cat", "hot dog", "ship")
LR = 4e-3
VIEWS = 12


def random_views(seed: int, count: int = VIEWS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)


class Case:
    """The package's step and the literal one, side by side, from the same prompts."""

    def __init__(
        self, clip: Clip, prompts: Prompts, weights: Weights, *, layers: tuple[int, ...] = (), chunk: int = 2
    ) -> None:
        self.clip, self.prompts, self.weights, self.chunk = clip, prompts, weights, chunk
        self.classifier = prompt_classifier(clip, CLASSES, prompts)
        self.start = {name: value.double() for name, value in prompts.parameters.items()}
        self.ids = [encode(prompts.suffix.replace("{}", name)) for name in CLASSES]
        tokens = clip.config.patches + 1 + (2 if prompts.kind == "maple" else 0)
        self.source = draw_source(layers, tokens, clip.config.vision_width, len(CLASSES)) if layers else None
        self.labelled = [
            Labelled(random_views(100 + index, 1)[0], label, random_views(200 + index, 5))
            for index, label in enumerate((2, 0, 2))
        ]
        self.settings = StepSettings(
            fraction=weights.fraction,
            lr=LR,
            weight_decay=0.01,
            weight_entropy=weights.entropy,
            weight_coarse=weights.coarse,
        )

    def alignment(self) -> Alignment | None:
        if self.source is None:
            return None
        stats = self.source.stats(CLASSES, self.clip, self.prompts)
        return make_alignment(
            self.weights.form,
            self.source.layers,
            stats,
            CLASSES,
            self.classifier,
            fine="class" if self.weights.fine else "",
            depth=1 + len(self.prompts.parameters["deep"]),
        )

    def memory(self, point: Point, *, episodic: bool) -> Memory:
        memory = Memory(
            Buffer(150),
            anchor=point if episodic else None,
            weight_ce=self.weights.ce,
            weight_fine=self.weights.fine,
            alignment=self.alignment(),
            chunk=self.chunk,
        )
        for index, item in enumerate(self.labelled):
            with torch.no_grad():
                images = self.clip.preprocess(item.pixels[None])
                feature = self.classifier.image(images, point.tokens.vision)[0]
            memory.insert(
                self.classifier, point, index, item.label, ReplayItem(item.pixels, item.views, feature)
            )
        return memory

    def literal(self, parameters: dict[str, Tensor], views: Tensor) -> tuple[Judged, dict[str, Tensor]]:
        leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
        judged = literal.judge(
            Literal(self.clip),
            self.prompts.kind,
            leaves,
            self.ids,
            views,
            self.labelled,
            self.weights,
            self.source,
        )
        return judged, dict(zip(leaves, torch.autograd.grad(judged.loss, list(leaves.values())), strict=True))

    def predict(self, parameters: dict[str, Tensor], view: Tensor) -> Tensor:
        return literal.predict(Literal(self.clip), self.prompts.kind, parameters, self.ids, view)


CASES = {
    "entropy": (Weights(ce=0.0), ()),
    "labels": (Weights(ce=0.7, entropy=0.5), ()),
    "coarse": (Weights(coarse=0.3), (0, 1)),
    "all": (Weights(ce=0.5, coarse=0.2, fine=0.4), (0, 1)),
    "paper": (Weights(ce=0.5, coarse=0.01, fine=0.02, form="paper"), (0, 2, 3)),
    "text only": (Weights(ce=0.7), ()),
}


@pytest.mark.parametrize("episodic", [True, False])
@pytest.mark.parametrize("name", list(CASES))
def test_a_whole_step(tiny64: Clip, maple_prompts: Prompts, name: str, episodic: bool) -> None:
    weights, layers = CASES[name]
    prompts = Coop().initial(tiny64) if name == "text only" else maple_prompts
    case = Case(tiny64, prompts, weights, layers=layers)
    views = random_views(1)
    start = point_at(case.classifier, case.start)
    outcome = take_step(
        case.classifier,
        start,
        fresh_moments(start.parameters),
        views,
        case.memory(start, episodic=episodic),
        case.settings,
        alignment=case.alignment(),
    )
    judged, gradients = case.literal(case.start, views)
    assert outcome.chosen.tolist() == judged.chosen
    assert outcome.entropy.item() == pytest.approx(judged.entropy.item(), abs=1e-9)
    assert bool(outcome.taken)
    for key, wanted in gradients.items():
        assert wanted.abs().max() > 1e-6, f"nothing to compare in {key}"
        gradient = outcome.moments.first[key] / 0.1  # from fresh moments the first is a tenth of the gradient
        assert (gradient - wanted).abs().max() < 1e-9 * max(1, wanted.abs().max().item()), key
    moved = Adam(LR).step(case.start, gradients)
    for key, wanted in moved.items():
        # A sign step: where a gradient is nearly 0 its rounding shows.
        sure = gradients[key].abs() > 1e-7
        assert (outcome.end.parameters[key] - wanted)[sure].abs().max() < 1e-9, key
    probabilities = torch.softmax(outcome.logits, dim=0)
    assert (probabilities - case.predict(moved, views[0])).abs().max() < 1e-9


@pytest.mark.parametrize("chunk", [1, 2, 32])
def test_prompts_that_carry_over_for_three_images(tiny64: Clip, maple_prompts: Prompts, chunk: int) -> None:
    """Continual: the memory at the prompts of each step, the optimiser's memory with them."""
    weights, layers = CASES["all"]
    case = Case(tiny64, maple_prompts, weights, layers=layers, chunk=chunk)
    point = point_at(case.classifier, case.start)
    moments, memory = fresh_moments(point.parameters), case.memory(point, episodic=False)
    adam, parameters = Adam(LR), case.start
    for seed in range(3):
        views = random_views(seed)
        outcome = take_step(
            case.classifier,
            point,
            moments,
            views,
            memory,
            case.settings,
            alignment=case.alignment(),
            keep_graph=True,
        )
        judged, gradients = case.literal(parameters, views)
        parameters = adam.step(parameters, gradients)
        assert outcome.chosen.tolist() == judged.chosen
        assert outcome.entropy.item() == pytest.approx(judged.entropy.item(), abs=1e-9)
        held = [entry.loss for entry in memory.buffer.entries()]
        assert held == pytest.approx(judged.cross_entropies, abs=1e-9)
        for key, wanted in adam.first.items():
            assert (outcome.moments.first[key] - wanted).abs().max() < 1e-9, key
        probabilities = torch.softmax(outcome.logits, dim=0)
        assert (probabilities - case.predict(parameters, views[0])).abs().max() < 1e-8
        # The package's own prompts go on, so that a sign that rounding turned does not grow.
        point, moments = outcome.end, outcome.moments
        parameters = dict(point.parameters)


def test_images_the_update_declines_are_predicted_and_change_nothing(
    tiny64: Clip, maple_prompts: Prompts
) -> None:
    case = Case(tiny64, maple_prompts, Weights())
    start = point_at(case.classifier, case.start)
    moments = fresh_moments(start.parameters)
    seen: list[float] = []

    def decline(entropy: Tensor) -> bool:
        seen.append(float(entropy))
        return False

    views = random_views(3)
    outcome = take_step(case.classifier, start, moments, views, None, case.settings, update=decline)
    assert outcome.end is start
    assert outcome.moments is moments
    assert not bool(outcome.taken)
    assert seen == [outcome.entropy.item()]
    probabilities = torch.softmax(outcome.logits, dim=0)
    assert (probabilities - case.predict(case.start, views[0])).abs().max() < 1e-9


def test_a_gradient_that_is_not_finite_is_skipped(tiny64: Clip, maple_prompts: Prompts) -> None:
    broken = {name: value.double().clone() for name, value in maple_prompts.parameters.items()}
    broken["coupling.bias"][0] = 1e200  # finite, but its squares are not
    case = Case(tiny64, maple_prompts, Weights())
    start = point_at(case.classifier, broken)
    moments = fresh_moments(start.parameters)
    outcome = take_step(case.classifier, start, moments, random_views(4), None, case.settings)
    assert not bool(outcome.taken)
    for name, value in outcome.end.parameters.items():
        assert torch.equal(value, broken[name])


def test_half_precision_steps_are_near_the_exact_one(tiny64: Clip, maple_prompts: Prompts) -> None:
    """The frozen weights in bfloat16; prompts, optimiser and losses stay in float32."""
    half = load_clip("tiny", device="cpu", dtype=torch.bfloat16)
    views = random_views(5)
    outcomes = []
    for clip in (tiny64, half):
        case = Case(clip, maple_prompts, Weights(ce=0.5))
        case.start = {name: value.to(case.classifier.dtype) for name, value in case.start.items()}
        start = point_at(case.classifier, case.start)
        memory = case.memory(start, episodic=True)
        moments = fresh_moments(start.parameters)
        outcomes.append(take_step(case.classifier, start, moments, views, memory, case.settings))
    exact, rough = outcomes
    assert rough.logits.dtype == torch.float32
    assert {value.dtype for value in rough.end.parameters.values()} == {torch.float32}
    assert rough.entropy.item() == pytest.approx(exact.entropy.item(), abs=0.02)
    for name, value in exact.moments.first.items():
        cosine = torch.nn.functional.cosine_similarity(
            value.flatten(), rough.moments.first[name].double().flatten(), dim=0
        )
        assert cosine > 0.9, name


def literal_views(case: Case, views: Tensor, chosen: list[int]) -> tuple[Tensor, Tensor]:
    """Features of the views at the starting prompts, and the confident ones' mean probability."""
    model = Literal(case.clip)
    context, vision = literal.maple_tokens(case.start)
    features, _ = model.image(model.pixels(views), vision)
    probabilities = torch.softmax(model.logits(features, model.text(case.ids, context)), dim=1)
    return features / features.norm(dim=1, keepdim=True), probabilities[chosen].mean(dim=0)


@pytest.mark.parametrize("declined", [True, False])
def test_a_step_tells_the_feature_and_the_mean_prediction_before_the_update(
    tiny64: Clip, maple_prompts: Prompts, declined: bool
) -> None:
    case = Case(tiny64, maple_prompts, Weights())
    start = point_at(case.classifier, case.start)
    views = random_views(6)
    outcome = take_step(
        case.classifier,
        start,
        fresh_moments(start.parameters),
        views,
        None,
        case.settings,
        update=lambda entropy: not declined,
    )
    judged, _ = case.literal(case.start, views)
    features, mean = literal_views(case, views, judged.chosen)
    assert outcome.chosen.tolist() == judged.chosen
    assert (outcome.features[0] - features[0]).abs().max() < 1e-9
    assert outcome.features is not None
    assert (outcome.features - features).abs().max() < 1e-9
    assert (outcome.ensemble.exp() - mean).abs().max() < 1e-9
    assert outcome.taken.tolist() is not declined
    assert outcome.taken.dtype == torch.bool


def test_the_way_back_is_kept_only_where_the_next_step_starts_from_it(
    tiny64: Clip, maple_prompts: Prompts
) -> None:
    case = Case(tiny64, maple_prompts, Weights())
    start = point_at(case.classifier, case.start)
    given = (case.classifier, start, fresh_moments(start.parameters), random_views(6), None, case.settings)
    assert take_step(*given).end.graph is None
    assert take_step(*given, keep_graph=False).end.graph is None
    assert take_step(*given, keep_graph=True).end.graph is not None


def test_weight_decay_is_that_of_the_settings(tiny64: Clip, maple_prompts: Prompts) -> None:
    case = Case(tiny64, maple_prompts, Weights())
    start = point_at(case.classifier, case.start)
    moved = []
    for decay in (0.0, 0.5):
        settings = replace(case.settings, weight_decay=decay)
        moments = fresh_moments(start.parameters)
        moved.append(take_step(case.classifier, start, moments, random_views(6), None, settings))
    for name, value in case.start.items():
        plain, decayed = (outcome.end.parameters[name] for outcome in moved)
        assert (plain - decayed - LR * 0.5 * value).abs().max() < 1e-12, name


def test_statistics_are_left_alone_where_they_weigh_nothing(tiny64: Clip, maple_prompts: Prompts) -> None:
    case = Case(tiny64, maple_prompts, Weights(coarse=0.0), layers=(0, 1))
    start = point_at(case.classifier, case.start)
    nonsense = Target(torch.zeros(2, 1, 1), torch.zeros(7))
    broken = Alignment("promptalign", (0, 1), (1,), nonsense, {})
    given = (case.classifier, start, fresh_moments(start.parameters), random_views(6), None)
    with pytest.raises(ValueError, match="zip"):
        take_step(*given, replace(case.settings, weight_coarse=0.1), alignment=broken)
    take_step(*given, case.settings, alignment=broken)


@pytest.mark.parametrize("form", ["paper", "promptalign"])
def test_alignment_is_computed_in_the_precision_of_the_losses(
    maple_prompts: Prompts, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    half = load_clip("tiny", device="cpu", dtype=torch.bfloat16)
    case = Case(half, maple_prompts, Weights(coarse=0.1, form=form), layers=(0, 2))
    start = point_at(case.classifier, {name: value.float() for name, value in case.start.items()})
    seen: list[torch.dtype] = []

    def spy(features: list[Tensor], means: list[Tensor], variances: list[Tensor]) -> Tensor:
        seen.extend(feature.dtype for feature in features)
        return torch.stack([feature.sum() for feature in features]).sum()

    monkeypatch.setitem(ALIGN, form, spy)
    moments = fresh_moments(start.parameters)
    take_step(
        case.classifier, start, moments, random_views(6), None, case.settings, alignment=case.alignment()
    )
    assert seen == [torch.float32, torch.float32]
