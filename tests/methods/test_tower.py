"""Methods that tune the vision tower, against CLIP in float64; the shared model stays as it was."""

from __future__ import annotations

import pytest
import torch

from taps import Learner
from taps.clip import Clip
from taps.methods.registry import find_method, method_settings
from tests.methods import literal
from tests.methods.literal import NAMES

Weights = dict[str, torch.Tensor]
VIEWS, LR = 5, 1e-3
PHOTO = (320, 1125, 539, 320)  # "a photo of a"


@pytest.fixture(scope="module")
def weights(tiny64: Clip) -> Weights:
    return {name: value.clone() for name, value in tiny64.state_dict().items()}


@pytest.fixture(scope="module")
def views() -> torch.Tensor:
    return literal.coarse_views(VIEWS)


def build(name: str, clip: Clip, **settings: object):  # type: ignore[no-untyped-def]
    return find_method(name).build(clip, NAMES, method_settings(name, settings), 0)


def norms(weights: Weights) -> Weights:
    """Weights and biases of the vision tower's layer norms."""
    return {name: value for name, value in weights.items() if name.startswith("visual.") and ".ln_" in name}


def literal_logits(weights: Weights, images: torch.Tensor) -> torch.Tensor:
    photo = [weights["token_embedding.weight"][list(PHOTO)]]
    texts = [literal.text_feature(weights, name, photo, "{}.") for name in NAMES]
    return literal.logits_of(
        weights, [literal.image_feature(weights, image, None)[0] for image in images], texts
    )


def literal_gradient(weights: Weights, images: torch.Tensor, loss) -> tuple[Weights, torch.Tensor]:  # type: ignore[no-untyped-def]
    leaves = {name: value.clone().requires_grad_() for name, value in norms(weights).items()}
    logits = literal_logits({**weights, **leaves}, images)
    found = torch.autograd.grad(loss(logits), list(leaves.values()))
    return dict(zip(leaves, found, strict=True)), logits.detach()


def mean_of_entropies(logits: torch.Tensor) -> torch.Tensor:
    return literal.entropy(literal.softmax_rows(logits)).mean()


def test_tent_takes_adams_step_on_the_mean_of_the_views_entropies(
    tiny64: Clip, weights: Weights, views: torch.Tensor
) -> None:
    gradient, before = literal_gradient(weights, views, mean_of_entropies)
    moved = {name: literal.adamw_step(weights[name], g, LR, decay=0.0) for name, g in gradient.items()}
    after = literal.softmax_rows(literal_logits({**weights, **moved}, views[:1]))[0]
    output = build("tent", tiny64, lr=LR).predict(views)
    assert float((output.probs - after).abs().max()) < 1e-9
    assert abs(output.entropy - float(literal.mean_prediction_entropy(before))) < 1e-9
    assert float((after - literal.softmax_rows(before)[0]).abs().max()) > 1e-6  # the step did move something


def test_tent_carries_over_only_where_it_is_told_to(
    tiny64: Clip, weights: Weights, views: torch.Tensor
) -> None:
    once = build("tent", tiny64).predict(views).probs
    afresh, carried = build("tent", tiny64), build("tent", tiny64, reset="never")
    twice = [method.predict(views).probs for method in (afresh, carried) for _ in range(2)]
    assert torch.equal(twice[1], once)
    assert not torch.equal(twice[3], once)
    every = build("tent", tiny64, reset="every:2")
    assert torch.equal([every.predict(views).probs for _ in range(3)][2], once)
    for name, value in tiny64.state_dict().items():  # others use the same model
        assert torch.equal(value, weights[name]), name


def test_weights_are_shared_and_modules_are_not(tiny64: Clip) -> None:
    own = build("tent", tiny64).tower
    assert all(a is b for a, b in zip(own.parameters(), tiny64.visual.parameters(), strict=True))
    assert not set(map(id, own.modules())) & set(map(id, tiny64.visual.modules()))


def test_memo_takes_the_step_on_the_entropy_of_the_views_mean(
    tiny64: Clip, weights: Weights, views: torch.Tensor
) -> None:
    gradient, _ = literal_gradient(weights, views, literal.mean_prediction_entropy)
    moved = {name: literal.adamw_step(weights[name], g, LR, decay=0.0) for name, g in gradient.items()}
    after = literal.softmax_rows(literal_logits({**weights, **moved}, views[:1]))[0]
    assert float((build("memo", tiny64, lr=LR).predict(views).probs - after).abs().max()) < 1e-9


def test_sar_over_a_few_images(tiny64: Clip, weights: Weights) -> None:
    """Sure views alone, the gradient of a place nearby, SGD with momentum, a fresh start at collapse."""
    generator = torch.Generator().manual_seed(5)
    coarse = torch.randint(0, 256, (5, VIEWS, 3, 4, 4), generator=generator, dtype=torch.uint8)
    images = coarse.repeat_interleave(8, dim=3).repeat_interleave(8, dim=4).flip(0)  # the first one is unsure
    settings = {"lr": 0.05, "sure_below": 0.64, "collapsed_below": 0.63, "frozen_blocks": 2}
    method = build("sar", tiny64, **settings)
    limit = 0.64 * float(torch.log(torch.tensor(3.0, dtype=torch.float64)))
    tuned = [n for n in norms(weights) if not any(f"s.{b}." in n for b in (2, 3)) and "post" not in n]

    def gradient(at: Weights, views: torch.Tensor) -> tuple[Weights, torch.Tensor, list[int]]:
        leaves = {name: at[name].clone().requires_grad_() for name in tuned}
        found = literal.entropy(literal.softmax_rows(literal_logits({**weights, **leaves}, views)))
        sure = [i for i in range(len(views)) if float(found[i].detach()) < limit]
        if not sure:
            return {}, found.detach(), sure
        loss = torch.stack([found[i] for i in sure]).mean()
        grads = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(tuned, grads, strict=True)), loss.detach(), sure

    at = {name: weights[name] for name in tuned}
    velocity = {name: torch.zeros_like(weights[name]) for name in tuned}
    running, collapses, steps = None, 0, 0
    for views in images:
        first, _, sure = gradient(at, views)
        if sure:
            length = sum(float(g.pow(2).sum()) for g in first.values()) ** 0.5
            nearby = {name: at[name] + 0.05 * first[name] / length for name in tuned}
            second, loss, again = gradient(nearby, views[sure])
            if again:
                velocity = {name: 0.9 * velocity[name] + second[name] for name in tuned}
                at = {name: at[name] - 0.05 * velocity[name] for name in tuned}
                steps += 1
                running = float(loss) if running is None else 0.9 * running + 0.1 * float(loss)
                if running < 0.63:
                    collapses, running = collapses + 1, None
                    at = {name: weights[name] for name in tuned}
                    velocity = {name: torch.zeros_like(weights[name]) for name in tuned}
        expected = literal.softmax_rows(literal_logits({**weights, **at}, views[:1]))[0]
        assert float((method.predict(views).probs - expected).abs().max()) < 1e-9
    assert method.summary() == {"skipped_updates": 5 - steps, "collapses": collapses}
    assert 0 < steps < 5
    assert collapses


def test_ttl_changes_queries_and_values_of_the_last_blocks(
    tiny64: Clip, weights: Weights, views: torch.Tensor
) -> None:
    method = build("ttl", tiny64, rank=2, alpha=8.0, blocks=2, lr=0.01)
    start = {name: value.clone() for name, value in method.start.items()}
    names = [f"visual.transformer.resblocks.{block}.attn.in_proj_weight" for block in (2, 3)]

    def changed(low: Weights) -> Weights:
        found = {}
        for name in names:
            short, width = name.removeprefix("visual."), weights[name].shape[1]
            parts = list(weights[name].split(width))
            for place, part in ((0, "query"), (2, "value")):
                parts[place] = parts[place] + 4.0 * low[f"{short}.{part}.up"] @ low[f"{short}.{part}.down"]
            found[name] = torch.cat(parts)
        return found

    leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
    h = literal.entropy(literal.softmax_rows(literal_logits({**weights, **changed(leaves)}, views)))
    loss = (torch.exp(0.4 - h.detach()) * h).sum() / VIEWS
    grads = torch.autograd.grad(loss, list(leaves.values()))
    moved = {
        name: literal.adamw_step(value, g, 0.01)
        for (name, value), g in zip(start.items(), grads, strict=True)
    }
    after = literal.softmax_rows(literal_logits({**weights, **changed(moved)}, views[:1]))[0]
    assert float((method.predict(views).probs - after).abs().max()) < 1e-9


def test_added_classes_keep_what_was_learned(tiny: Clip, picture) -> None:  # type: ignore[no-untyped-def]
    learner = Learner(tiny, NAMES, "tent", views=3, reset="never")
    learner.predict_one(picture(0))
    before = learner.method.snapshot().tensors
    learner.add_class("ship")
    assert all(torch.equal(value, before[name]) for name, value in learner.method.snapshot().tensors.items())
    assert learner.predict_one(picture(1)).probs.shape == (4,)


def test_simatta_learns_from_answers_and_from_sure_images(tiny64: Clip, weights: Weights) -> None:
    """Two answers and the images the frozen model is sure of; Adam's steps on both kinds' cross-entropies."""
    generator = torch.Generator().manual_seed(5)
    coarse = torch.randint(0, 256, (5, 1, 3, 4, 4), generator=generator, dtype=torch.uint8)
    images = coarse.repeat_interleave(8, dim=3).repeat_interleave(8, dim=4)
    method = build("simatta", tiny64, steps=2, sure_below=0.9, sure=2, lr=0.01)
    frozen = literal_logits(weights, images[:, 0])
    uncertain = literal.entropy(literal.softmax_rows(frozen))
    at = norms(weights)
    first = {name: torch.zeros_like(value) for name, value in at.items()}
    second, steps = dict(first), 0
    labelled: list[tuple[int, int]] = []
    for i, views in enumerate(images):
        output = method.predict(views)
        expected = literal.softmax_rows(literal_logits({**weights, **at}, views))[0]
        assert float((output.probs - expected).abs().max()) < 1e-9
        if i not in (1, 3):
            continue
        assert output.item is not None
        method.learn(i, 2, output.item)
        labelled.append((i, 2))
        sure = [j for j in range(i + 1) if float(uncertain[j]) < 0.9][-2:]
        assert sure
        for _ in range(2):
            leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
            loss = torch.zeros((), dtype=torch.float64)
            for group in (labelled, [(j, int(frozen[j].argmax())) for j in sure]):
                rows = literal_logits({**weights, **leaves}, torch.stack([images[j, 0] for j, _ in group]))
                said = literal.softmax_rows(rows)
                wrong = sum(-said[place, label].log() for place, (_, label) in enumerate(group))
                loss = loss + wrong / (len(labelled) + len(sure))
            grads = dict(zip(at, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            steps += 1
            for name, g in grads.items():
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g * g
                step = (first[name] / (1 - 0.9**steps)) / ((second[name] / (1 - 0.999**steps)).sqrt() + 1e-8)
                at = {**at, name: at[name] - 0.01 * step}
    assert method.summary()["labelled"] == 2
