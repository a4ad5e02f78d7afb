"""TAPS: one step of MaPLe prompts on entropy and on the labelled memory for each image. Read this first.

`as_printed` is the paper's stream from the first image to the last. The class below it is the same as a
method, which learners, services and tables use; it takes the steps that `Tuner` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from taps.active.base import Decision
from taps.active.buffer import Buffer
from taps.active.dynamic import Dynamic
from taps.active.policy import first_threshold
from taps.adapt.gradient import point_at
from taps.adapt.memory import Memory, ReplayItem
from taps.adapt.optimiser import fresh_moments
from taps.adapt.step import take_step
from taps.images.views import make_views, sample_generator
from taps.methods import AskSettings, method
from taps.methods.tuner import Tuner, alignment_of, step_settings
from taps.prompts.base import Prompts
from taps.prompts.classifier import Classifier
from taps.prompts.classify import placed
from taps.types import PixelArray


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
        classifier: The frozen model and the class names (`taps.prompts.classify.prompt_classifier`).
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


@method("taps", TapsSettings, prompts="any", by_dataset=True)
class Taps(Tuner):
    starts_from = "any"
