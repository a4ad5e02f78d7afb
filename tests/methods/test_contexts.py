"""Methods that tune the text context alone, against CLIP and AdamW written out in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from taps import Learner
from taps.errors import PromptsError
from taps.methods.registry import find_method, method_settings
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from tests.methods import literal
from tests.methods.literal import NAMES

Weights = dict[str, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
VIEWS, FRACTION, KEPT = 8, 0.4, 3
PHOTO = [320, 1125, 539, 320]  # "a photo of a"


@pytest.fixture(scope="module")
def weights(tiny64: Clip) -> Weights:
    return {name: value.clone() for name, value in tiny64.state_dict().items()}


@pytest.fixture(scope="module")
def views() -> torch.Tensor:
    return literal.coarse_views(VIEWS)


@pytest.fixture(scope="module")
def features(weights: Weights, views: torch.Tensor) -> torch.Tensor:
    return torch.stack([literal.image_feature(weights, view, None)[0] for view in views])


def texts(weights: Weights, context: torch.Tensor) -> torch.Tensor:
    return torch.stack([literal.text_feature(weights, name, [context], "{}.") for name in NAMES])


def logits(weights: Weights, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    return literal.logits_of(weights, list(x), list(text))


def adamw(
    start: torch.Tensor, gradient: Callable[[torch.Tensor], torch.Tensor], steps: int, lr: float, decay: float
) -> torch.Tensor:
    value, first, second = start, torch.zeros_like(start), torch.zeros_like(start)
    for t in range(1, steps + 1):
        g = gradient(value)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        step = (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
        value = value - lr * decay * value - lr * step
    return value


def tuned(
    weights: Weights,
    features: torch.Tensor,
    loss: Loss,
    *,
    steps: int = 1,
    lr: float = 5e-3,
    decay: float = 0.01,
) -> torch.Tensor:
    """Text features after steps on a loss of the confident views' features and the texts."""
    start = weights["token_embedding.weight"][PHOTO]
    kept = literal.confident(logits(weights, features, texts(weights, start)), KEPT)

    def gradient(context: torch.Tensor) -> torch.Tensor:
        leaf = context.clone().requires_grad_()
        return torch.autograd.grad(loss(features[kept], texts(weights, leaf)), leaf)[0]

    return texts(weights, adamw(start, gradient, steps, lr, decay))


def predict(name: str, clip: Clip, views: torch.Tensor, **settings: object) -> torch.Tensor:
    given = method_settings(name, {"views": VIEWS, "fraction": FRACTION, **settings})
    output = find_method(name).build(clip, NAMES, given, 0).predict(views)
    assert output.updated
    return output.probs


def agree(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    return float((mine - theirs).abs().max()) < 1e-9


def tpt_loss(weights: Weights) -> Loss:
    return lambda x, t: literal.mean_prediction_entropy(logits(weights, x, t))


def test_ctpt(tiny64: Clip, weights: Weights, features: torch.Tensor, views: torch.Tensor) -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        centre = sum(t) / len(t)
        spread = sum((row - centre).pow(2).sum().sqrt() for row in t) / len(t)
        return tpt_loss(weights)(x, t) - 50 * spread

    text = tuned(weights, features, loss)
    expected = literal.softmax_rows(logits(weights, features[:1], text))[0]
    assert agree(predict("ctpt", tiny64, views), expected)
    plain = tuned(weights, features, tpt_loss(weights))
    assert agree(
        predict("ctpt", tiny64, views, spread=0.0),
        literal.softmax_rows(logits(weights, features[:1], plain))[0],
    )
    assert not agree(expected, literal.softmax_rows(logits(weights, features[:1], plain))[0])


def test_otpt(tiny64: Clip, weights: Weights, features: torch.Tensor, views: torch.Tensor) -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        pairs = [(a, b) for i, a in enumerate(t) for j, b in enumerate(t) if i != j]
        return tpt_loss(weights)(x, t) + 18 * sum((a @ b) ** 2 for a, b in pairs)

    text = tuned(weights, features, loss)
    assert agree(predict("otpt", tiny64, views), literal.softmax_rows(logits(weights, features[:1], text))[0])


def test_rtpt(tiny64: Clip, weights: Weights, features: torch.Tensor, views: torch.Tensor) -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return literal.entropy(literal.softmax_rows(logits(weights, x, t))).mean()

    text = tuned(weights, features, loss)
    scores = []
    for i, view in enumerate(features):
        alike = sorted((float(view @ other) for j, other in enumerate(features) if j != i), reverse=True)
        scores.append(sum(alike[:4]) / 4)
    weight = torch.softmax(torch.tensor(scores, dtype=torch.float64) / 0.01, dim=0)
    expected = torch.softmax(
        sum(w * row for w, row in zip(weight, logits(weights, features, text), strict=True)), 0
    )
    assert agree(predict("rtpt", tiny64, views, neighbours=4), expected)


def test_tps(tiny64: Clip, weights: Weights, features: torch.Tensor, views: torch.Tensor) -> None:
    text = texts(weights, weights["token_embedding.weight"][PHOTO])
    kept = literal.confident(logits(weights, features, text), KEPT)

    def gradient(shift: torch.Tensor) -> torch.Tensor:
        leaf = shift.clone().requires_grad_()
        moved = literal.unit(text + leaf)
        return torch.autograd.grad(tpt_loss(weights)(features[kept], moved), leaf)[0]

    shift = adamw(torch.zeros_like(text), gradient, 1, 5e-3, 0.01)
    expected = literal.softmax_rows(logits(weights, features[:1], literal.unit(text + shift)))[0]
    assert agree(predict("tps", tiny64, views), expected)


@pytest.mark.parametrize("reward", [None, "tiny"])
def test_rlcf(
    tiny64: Clip, weights: Weights, features: torch.Tensor, views: torch.Tensor, reward: str | None
) -> None:
    """Three steps; the judge, here of the same weights, may be loaded by name."""
    start = texts(weights, weights["token_embedding.weight"][PHOTO])

    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        total, count = torch.zeros((), dtype=torch.float64), 0
        for feature, row in zip(x, logits(weights, x, t), strict=True):
            likeliest = row.argsort(descending=True)[:2].tolist()
            rewards = [max(0.0, 2.5 * float(feature @ start[k])) for k in likeliest]
            for k, r in zip(likeliest, rewards, strict=True):
                total = total - (r - sum(rewards) / 2) * literal.softmax_rows(row[None])[0, k].log()
                count += 1
        return total / count

    text = tuned(weights, features, loss, steps=3, lr=7e-3, decay=5e-4)
    expected = literal.softmax_rows(logits(weights, features[:1], text))[0]
    told = predict("rlcf", tiny64, views, likeliest=2, reward=reward)
    assert float((told - expected).abs().max()) < (1e-9 if reward is None else 1e-4)  # loaded in float32


def test_dynaprompt(tiny64: Clip, weights: Weights) -> None:
    """Contexts kept, tuned where they are surer than the first and have a larger gap, opened, and dropped."""
    generator = torch.Generator().manual_seed(8)
    coarse = torch.randint(0, 256, (6, VIEWS, 3, 4, 4), generator=generator, dtype=torch.uint8)
    images = coarse.repeat_interleave(8, dim=3).repeat_interleave(8, dim=4)
    given = method_settings("dynaprompt", {"views": VIEWS, "fraction": FRACTION, "contexts": 2, "lr": 0.05})
    method = find_method("dynaprompt").build(tiny64, NAMES, given, 0)
    start = weights["token_embedding.weight"][PHOTO]
    kept: list[torch.Tensor] = []  # the one tuned last stands at the end
    opened = reused = 0

    def worth(x: torch.Tensor, context: torch.Tensor) -> tuple[float, float]:
        rows = logits(weights, x, texts(weights, context))
        top = rows.max(1).values
        return float(literal.entropy(literal.softmax_rows(rows)).mean()), float((top[0] - top[1:]).mean())

    for image in images:
        x = torch.stack([literal.image_feature(weights, view, None)[0] for view in image])
        entropy, gap = worth(x, start)
        fitting = [c for c in kept if worth(x, c)[0] < entropy and worth(x, c)[1] > gap]
        if not fitting:
            kept = kept[1:] if len(kept) == 2 else kept
            fitting = [start]
            opened += 1
        else:
            reused += 1
            kept = [c for c in kept if all(c is not other for other in fitting)]
        answers = []
        for context in fitting:
            chosen = literal.confident(logits(weights, x, texts(weights, context)), KEPT)

            def gradient(at: torch.Tensor, x: torch.Tensor = x[chosen]) -> torch.Tensor:
                leaf = at.clone().requires_grad_()
                return torch.autograd.grad(tpt_loss(weights)(x, texts(weights, leaf)), leaf)[0]

            moved = adamw(context, gradient, 1, 0.05, 0.01)
            kept.append(moved)
            answers.append(logits(weights, x[:1], texts(weights, moved))[0])
        expected = torch.softmax(sum(answers) / len(answers), dim=0)  # type: ignore[arg-type]
        assert agree(method.predict(image).probs, expected)
    assert opened > 2
    assert reused > 0


def test_pcb_learns_from_answers_alone_and_asks_evenly(
    tiny64: Clip, weights: Weights, features: torch.Tensor, views: torch.Tensor
) -> None:
    given = method_settings("pcb", {"views": 1, "fraction": 1.0, "guard": False, "lr": 0.0})
    method = find_method("pcb").build(tiny64, NAMES, given, 0)
    first = method.predict(views[:1])
    assert first.score == first.entropy  # no class has a label yet
    assert first.item is not None
    predicted = int(first.probs.argmax())
    method.learn(0, predicted, first.item)
    again = method.predict(views[:1])
    assert again.score == 0.0  # its class has more labels than the mean
    leaf = weights["token_embedding.weight"][PHOTO].clone().requires_grad_()
    loss = -literal.softmax_rows(logits(weights, features[:1], texts(weights, leaf)))[0, predicted].log()
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert agree(method.snapshot().tensors["first.context"], 0.1 * gradient)


def test_prompts_in_the_vision_tower_are_refused(tiny: Clip, maple_prompts: Prompts) -> None:
    with pytest.raises(PromptsError, match="text context alone"):
        Learner(tiny, NAMES, "ctpt", prompts=maple_prompts)


def test_skipped_updates_are_still_counted_when_a_class_was_added(tiny: Clip) -> None:
    learner = Learner(tiny, ["cat", "dog"], "ctpt", views=2)
    learner.method.skipped_updates = 3  # type: ignore[attr-defined]
    learner.add_class("boat")
    assert learner.summary()["skipped_updates"] == 3
