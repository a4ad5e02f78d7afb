"""Methods that tune the vision tower, against CLIP in float64; the shared model stays as it was."""

from __future__ import annotations

import pytest
import torch

from taps import Learner
from taps.methods.registry import find_method, method_settings
from taps.model.clip import Clip
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


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_sar_over_a_few_images(tiny64: Clip, weights: Weights, decay: float) -> None:
    """Sure views alone, the gradient of a place nearby, SGD with momentum, the first weights at collapse."""
    generator = torch.Generator().manual_seed(5)
    coarse = torch.randint(0, 256, (5, VIEWS, 3, 4, 4), generator=generator, dtype=torch.uint8)
    images = coarse.repeat_interleave(8, dim=3).repeat_interleave(8, dim=4).flip(0)
    images = images[[0, 1, 2, 0, 3, 4]]  # the first one is unsure
    settings = {"lr": 0.05, "sure_below": 0.64, "collapsed_below": 0.63, "frozen_blocks": 2}
    settings |= {"weight_decay": decay}
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
    unsure_later = 0
    for views in images:
        second, again = {name: torch.zeros_like(at[name]) for name in tuned}, []
        first, _, sure = gradient(at, views)
        if sure:
            length = sum(float(g.pow(2).sum()) for g in first.values()) ** 0.5
            nearby = {name: at[name] + 0.05 * first[name] / length for name in tuned}
            found, loss, again = gradient(nearby, views[sure])
            if again:
                second = found
                steps += 1
                running = float(loss) if running is None else 0.9 * running + 0.1 * float(loss)
        unsure_later += bool(steps) and not again
        velocity = {name: 0.9 * velocity[name] + second[name] + decay * at[name] for name in tuned}
        at = {name: at[name] - 0.05 * velocity[name] for name in tuned}
        if running is not None and running < 0.63:  # velocity and running entropy are kept
            collapses += 1
            at = {name: weights[name] for name in tuned}
        expected = literal.softmax_rows(literal_logits({**weights, **at}, views[:1]))[0]
        assert float((method.predict(views).probs - expected).abs().max()) < 1e-9
    assert method.summary() == {"skipped_updates": len(images) - steps, "collapses": collapses}
    assert 0 < steps < len(images)
    assert collapses > 1
    assert unsure_later  # the velocity moved the weights with no view that was sure


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


def test_ttl_starts_as_xavier_does(tiny64: Clip) -> None:
    """A is normal with variance 2 / (rank + width), B is 0: at 768 and 16 a deviation of 0.051."""
    start = build("ttl", tiny64, rank=16, blocks=4).start
    drawn = torch.cat([value.flatten() for name, value in start.items() if name.endswith("down")])
    width = next(value for name, value in start.items() if name.endswith("down")).shape[1]
    deviation = (2 / (16 + width)) ** 0.5
    assert float(drawn.std()) == pytest.approx(deviation, rel=0.05)
    assert float((drawn.abs() > 2 * deviation).double().mean()) == pytest.approx(0.0455, abs=0.01)
    assert all(not value.any() for name, value in start.items() if name.endswith("up"))


def test_added_classes_keep_what_was_learned(tiny: Clip, picture) -> None:  # type: ignore[no-untyped-def]
    learner = Learner(tiny, NAMES, "tent", views=3, reset="never")
    learner.predict_one(picture(0))
    before = learner.method.snapshot().tensors
    learner.add_class("ship")
    assert all(torch.equal(value, before[name]) for name, value in learner.method.snapshot().tensors.items())
    assert learner.predict_one(picture(1)).probs.shape == (4,)


def pictures(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    coarse = torch.randint(0, 256, (count, 1, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return coarse.repeat_interleave(8, dim=3).repeat_interleave(8, dim=4)


def simatta_steps(
    weights: Weights, at: Weights, groups: list[list[tuple[torch.Tensor, int]]], decay: float
) -> Weights:
    """Two steps of a new SGD with momentum, on labelled and on sure images, weighted by their numbers."""
    velocity, count = dict.fromkeys(at, torch.zeros(())), sum(map(len, groups))
    for _ in range(2):
        leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
        loss = torch.zeros((), dtype=torch.float64)
        for group in groups:
            rows = literal_logits({**weights, **leaves}, torch.stack([image for image, _ in group]))
            said = literal.softmax_rows(rows)
            loss = loss + sum(-said[place, label].log() for place, (_, label) in enumerate(group)) / count
        grads = dict(zip(at, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        velocity = {name: 0.9 * velocity[name] + g + decay * at[name] for name, g in grads.items()}
        at = {name: at[name] - 0.01 * velocity[name] for name in at}
    return at


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_simatta_learns_from_answers_and_from_sure_images(
    tiny64: Clip, weights: Weights, decay: float
) -> None:
    """Two answers and the images the frozen model is sure of; the velocity begins anew with each answer."""
    images = pictures(5)
    method = build("simatta", tiny64, steps=2, sure_below=0.9, sure=2, lr=0.01, weight_decay=decay)
    frozen = literal_logits(weights, images[:, 0])
    uncertain = literal.entropy(literal.softmax_rows(frozen))
    at, labelled = norms(weights), []
    for i, views in enumerate(images):
        output = method.predict(views)
        expected = literal.softmax_rows(literal_logits({**weights, **at}, views))[0]
        assert float((output.probs - expected).abs().max()) < 1e-9
        if i not in (1, 3):
            continue
        assert output.item is not None
        method.learn(i, 2, output.item)
        labelled.append((images[i, 0], 2))
        sure = [j for j in range(i + 1) if float(uncertain[j]) < 0.9][-2:]
        assert sure
        at = simatta_steps(
            weights, at, [labelled, [(images[j, 0], int(frozen[j].argmax())) for j in sure]], decay
        )
    assert method.summary()["labelled"] == 2


def test_simatta_asks_at_the_end_of_a_batch_and_learns_from_its_answers_together(
    tiny64: Clip, weights: Weights
) -> None:
    settings = {"together": 12, "steps": 2, "lr": 0.01, "policy": "fixed", "tau0": 9.0}
    images = pictures(36)
    learner = Learner(tiny64, NAMES, "simatta", **settings)
    asked: list[list[int]] = []
    for views in images:
        said = learner.predict_one(views[0].permute(1, 2, 0).numpy())
        assert not said.ask
        chosen = learner.method.choose()  # type: ignore[attr-defined]
        assert bool(chosen) <= ((said.id + 1) % 12 == 0)
        if not chosen:
            continue
        assert all(said.id - 12 < id <= said.id for id in chosen)
        assert learner.method.choose() == []  # type: ignore[attr-defined]
        before = learner.method.parameters  # type: ignore[attr-defined]
        for id in chosen:
            learner.ask(id)
            learner.learn_one(id, 0)
            assert (learner.method.parameters is before) == (id != chosen[-1])  # type: ignore[attr-defined]
        asked.append(chosen)
        if len(asked) == 1:
            groups = [[(images[id, 0], 0) for id in chosen]]
            at = simatta_steps(weights, norms(weights), groups, 0.0)
            moved = learner.method.parameters  # type: ignore[attr-defined]
            visual = {name.removeprefix("visual."): value for name, value in at.items()}
            assert moved.keys() == visual.keys()
            assert max(float((moved[name] - visual[name]).abs().max()) for name in visual) < 1e-9
    assert len(asked[0]) == 10  # a cluster each
    assert 0 < sum(map(len, asked[1:])) < 12  # the others had a labelled image
    assert learner.asked == sum(map(len, asked))


def test_a_batch_of_simatta_goes_on_from_a_saved_state(tiny64: Clip) -> None:
    settings = {"together": 12, "steps": 1, "lr": 0.01, "policy": "fixed", "tau0": 9.0}
    learner = Learner(tiny64, NAMES, "simatta", **settings)
    for i, views in enumerate(pictures(24)):
        learner.predict_one(views[0].permute(1, 2, 0).numpy())
        if i == 11:
            for id in learner.method.choose()[:-1]:  # type: ignore[attr-defined]
                learner.learn_one(id, id % 3)
        if i == 17:
            other = learner.clone()
            other.load_state_dict(learner.state_dict())
        if i > 17:
            other.predict_one(views[0].permute(1, 2, 0).numpy())
    chosen = learner.method.choose()  # type: ignore[attr-defined]
    assert chosen
    assert other.method.choose() == chosen  # type: ignore[attr-defined]
    for one, two in zip(learner.method.parameters.values(), other.method.parameters.values(), strict=True):  # type: ignore[attr-defined]
        assert torch.equal(one, two)
