"""One whole step of TPT, PromptAlign, MaPLe and CoCoOp against the equations, written out in `literal`."""

from dataclasses import replace

import pytest
import torch

import taps
from taps.methods import contexts
from taps.methods.registry import find_method, method_settings
from taps.model.prompts import Prompts
from taps.model.prompts.cocoop import Cocoop
from taps.model.prompts.maple import Maple
from taps.model.prompts.source import SourceStats
from taps.study.training.recipe import Recipe
from taps.study.training.train import Trainer
from tests.methods import literal
from tests.methods.literal import NAMES

VIEWS, FRACTION, KEPT = 12, 0.3, 3
TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def clip():
    return taps.load_clip("tiny", dtype=torch.float64, device="cpu")


@pytest.fixture(scope="module")
def weights(clip):
    return {name: value.clone() for name, value in clip.state_dict().items()}


@pytest.fixture(scope="module")
def views():
    generator = torch.Generator().manual_seed(3)
    coarse = torch.randint(0, 256, (VIEWS, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return coarse.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)


def build(name, clip, **settings):
    given = method_settings(name, settings)
    return find_method(name).build(clip, NAMES, given, 0)


def literal_step(weights, views, parameters, lr, tokens_of, suffix, align=None):
    """Entropy (and alignment) step from `parameters`; loss, H, gradient, prediction after the update."""

    def see(values, images):
        text, vision = tokens_of(values)
        texts = [literal.text_feature(weights, name, text, suffix) for name in NAMES]
        seen = [literal.image_feature(weights, image, vision) for image in images]
        return literal.logits_of(weights, [feature for feature, _ in seen], texts), [kept for _, kept in seen]

    with torch.no_grad():
        logits, _ = see(parameters, views)
    kept = literal.confident(logits, KEPT)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    logits, inputs = see(leaves, [views[i] for i in kept])
    uncertainty = literal.mean_prediction_entropy(logits)
    loss = uncertainty if align is None else uncertainty + align(inputs)
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    gradient = {
        name: torch.zeros_like(leaf) if g is None else g
        for (name, leaf), g in zip(leaves.items(), grads, strict=True)
    }
    with torch.no_grad():
        moved = {name: literal.adamw_step(value, gradient[name], lr) for name, value in parameters.items()}
        after, _ = see(moved, views[:1])
    return float(uncertainty.detach()), gradient, literal.softmax_rows(after)[0]


def agree(mine, theirs):
    return float((mine - theirs).abs().max()) < TOLERANCE


def test_tpt(clip, weights, views):
    start = {"context": weights["token_embedding.weight"][[320, 1125, 539, 320]]}
    expected = literal_step(weights, views, start, 5e-3, lambda p: ([p["context"]], None), "{}.")
    output = build("tpt", clip, views=VIEWS, fraction=FRACTION).predict(views)
    assert abs(output.entropy - expected[0]) < TOLERANCE
    assert agree(output.probs, expected[2])
    # Where prompts carry over, the optimiser's first moment is a tenth of the gradient, and is saved.
    carried = build("tpt", clip, views=VIEWS, fraction=FRACTION, reset="never", guard=False)
    assert agree(carried.predict(views).probs, expected[2])
    assert agree(carried.snapshot().tensors["first.context"], 0.1 * expected[1]["context"])


def trained_maple(clip):
    prompts = Maple().initial(clip, torch.Generator().manual_seed(1))
    return replace(prompts, parameters={name: value.double() for name, value in prompts.parameters.items()})


def test_promptalign(clip, weights, views):
    prompts = trained_maple(clip)
    generator = torch.Generator().manual_seed(2)
    tokens = clip.config.patches + 1 + 2
    mean = torch.randn(2, tokens, 64, generator=generator, dtype=torch.float64)
    variance = torch.rand(2, tokens, 64, generator=generator, dtype=torch.float64)
    stats = SourceStats(
        layers=(0, 1),
        count=9,
        mean=mean,
        variance=variance,
        classes=(),
        class_counts=torch.zeros(0),
        class_means=mean.new_zeros(0, *mean.shape),
        class_variances=mean.new_zeros(0, *mean.shape),
        model=clip.fingerprint,
        prompts=prompts.fingerprint,
    )
    expected = literal_step(
        weights,
        views,
        prompts.parameters,
        4e-3,
        literal.maple_tokens,
        "of a {}.",
        align=lambda inputs: literal.alignment(inputs, mean, variance, own=2),
    )
    settings = {"prompts": prompts, "source": stats, "views": VIEWS, "fraction": FRACTION, "lr": 4e-3}
    output = build("promptalign", clip, **settings).predict(views)
    assert abs(output.entropy - expected[0]) < TOLERANCE
    assert agree(output.probs, expected[2])
    carried = build("promptalign", clip, **settings, reset="never", guard=False)
    carried.predict(views)
    for name, gradient in expected[1].items():
        assert agree(carried.snapshot().tensors[f"first.{name}"], 0.1 * gradient), name


def test_maple_plus_tpt(clip, weights, views):
    prompts = trained_maple(clip)
    expected = literal_step(weights, views, prompts.parameters, 5e-3, literal.maple_tokens, "of a {}.")
    output = build("maple+tpt", clip, prompts=prompts, views=VIEWS, fraction=FRACTION).predict(views)
    assert abs(output.entropy - expected[0]) < TOLERANCE
    assert agree(output.probs, expected[2])


def filled_cocoop(clip):
    """CoCoOp prompts whose net does something."""
    generator = torch.Generator().manual_seed(5)
    start = Cocoop().initial(clip, generator)
    moved = {
        name: value.double() + 0.05 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        for name, value in start.parameters.items()
    }
    return replace(start, parameters=moved)


def test_cocoop_and_tpt_on_top(clip, weights, views, monkeypatch):
    prompts = filled_cocoop(clip)
    with torch.no_grad():
        feature, _ = literal.image_feature(weights, views[0], None)
        written = literal.cocoop_context(prompts.parameters, feature)
        texts = [literal.text_feature(weights, name, [written], "{}.") for name in NAMES]
        plain = literal.softmax_rows(literal.logits_of(weights, [feature], texts))[0]
    assert agree(build("cocoop", clip, prompts=prompts).predict(views[:1]).probs, plain)

    expected = literal_step(
        weights, views, {"context": written}, 5e-3, lambda p: ([p["context"]], None), "{}."
    )
    taken = []

    def spy(parameters, gradients, *args, **kwargs):
        taken.append(gradients)
        return adamw(parameters, gradients, *args, **kwargs)

    adamw = contexts.adamw
    monkeypatch.setattr(contexts, "adamw", spy)
    output = build("cocoop+tpt", clip, prompts=prompts, views=VIEWS, fraction=FRACTION).predict(views)
    assert abs(output.entropy - expected[0]) < TOLERANCE
    assert agree(output.probs, expected[2])
    assert agree(taken[0]["context"], expected[1]["context"])
    assert float((output.probs - plain).abs().max()) > 1e-4  # the step did move something


class Plain:
    """A data set in memory."""

    name, classes = "plain", NAMES

    def __init__(self, pixels, labels):
        self.pixels, self.labels = pixels, labels

    def image(self, index):
        return self.pixels[index].permute(1, 2, 0).numpy()

    def __len__(self):
        return len(self.labels)


@pytest.mark.parametrize("kind", ["maple", "cocoop"])
def test_one_training_step(clip, weights, views, kind):
    """Cross-entropy of a batch: loss, gradient, prediction, and SGD's update with weight decay."""
    prompts: Prompts = trained_maple(clip) if kind == "maple" else filled_cocoop(clip)
    labels = [0, 2, 1, 2]
    images = views[: len(labels)]
    leaves = {name: value.clone().requires_grad_() for name, value in prompts.parameters.items()}
    rows = []
    for image in images:
        if kind == "maple":
            text, vision = literal.maple_tokens(leaves)
            feature, _ = literal.image_feature(weights, image, vision)
        else:
            feature, _ = literal.image_feature(weights, image, None)
            text = [literal.cocoop_context(leaves, feature)]
        texts = [literal.text_feature(weights, name, text, prompts.suffix) for name in NAMES]
        rows.append(literal.logits_of(weights, [feature], texts)[0])
    probs = literal.softmax_rows(torch.stack(rows))
    loss = -sum(probs[i, label].log() for i, label in enumerate(labels)) / len(labels)
    gradient = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    recipe = Recipe(epochs=2, batch=4, lr=0.1)
    trainer = Trainer(clip, Plain(images, labels), list(range(4)), labels, prompts, recipe, seed=0)
    inputs = clip.preprocess(images)
    if kind == "cocoop":
        inputs = trainer.classifier.image(inputs, None)
    value, correct = trainer._step(inputs, torch.tensor(labels), 0.1)
    assert abs(value - float(loss.detach())) < TOLERANCE
    assert correct == int((probs.argmax(1) == torch.tensor(labels)).sum())
    for name, before in prompts.parameters.items():
        velocity = gradient[name] + 5e-4 * before
        assert agree(trainer.velocity[name], velocity), name
        assert agree(trainer.parameters[name], before - 0.1 * velocity), name
