"""Heads that take steps with every answer, written out again with gradients by hand, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from taps import Learner
from taps.asking.rules import RULES
from taps.checks import check_method
from taps.errors import SettingsError
from taps.methods.registry import all_methods, find_method, list_methods, method_settings
from taps.methods.settings import Asking
from taps.model.clip import Clip
from taps.rivals.labelled import LabelMethod
from taps.types import Answer
from tests.methods.test_features import IMAGES, NAMES, Array, Picture, Stream, entropy, same, softmax
from tests.methods.test_labelled import LABELS, RIVALS, known, run

ONE_HOT = np.eye(len(NAMES))


@pytest.fixture(scope="module")
def stream(tiny64: Clip, picture: Picture) -> Stream:
    return Stream(tiny64, picture)


def unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def through_unit(gradient: Array, rows: Array) -> Array:
    """A gradient by unit rows as one by the rows."""
    across = gradient - unit(rows) * (unit(rows) * gradient).sum(-1, keepdims=True)
    return np.asarray(across / np.linalg.norm(rows, axis=-1, keepdims=True))


class Adam:
    """AdamW by its formulas."""

    def __init__(self, lr: float, decay: float, eps: float) -> None:
        self.lr, self.decay, self.eps, self.taken = lr, decay, eps, 0
        self.first = self.second = np.zeros(())

    def step(self, w: Array, g: Array) -> Array:
        self.taken += 1
        self.first = 0.9 * self.first + 0.1 * g
        self.second = 0.999 * self.second + 0.001 * g**2
        first = self.first / (1 - 0.9**self.taken)
        second = np.sqrt(self.second / (1 - 0.999**self.taken))
        return np.asarray(w * (1 - self.lr * self.decay) - self.lr * first / (second + self.eps))


def by_answers(s: Stream, learn: Any, say: Any) -> list[Array]:
    """What is said of each image, with an answer after some of them."""
    said = []
    for i in range(IMAGES):
        said.append(say(s.x[i, 0]))
        if i in LABELS:
            held = known(s, i + 1)
            learn(np.stack([x for x, _ in held]), [y for _, y in held])
    return said


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_clap(stream: Stream, decay: float) -> None:
    s = stream
    state = {"w": 10 * s.text, "v": np.zeros_like(s.text)}

    def learn(x: Array, y: list[int]) -> None:
        own = softmax(s.scale * x @ s.text.T)[range(len(y)), y]
        hold = np.array([np.mean(own[np.array(y) == k]) if k in y else 1.0 for k in range(len(NAMES))])
        for _ in range(10):
            wrong = softmax(s.scale * x @ unit(state["w"]).T) - ONE_HOT[y]
            gradient = through_unit(s.scale * wrong.T @ x / len(y), state["w"])
            gradient += 2 * hold[:, None] * (state["w"] - 10 * s.text) / len(NAMES)
            state["v"] = 0.9 * state["v"] + gradient + decay * state["w"]
            state["w"] = state["w"] - 0.1 * state["v"]

    expected = by_answers(s, learn, lambda x: softmax(s.scale * unit(state["w"]) @ x))
    assert not np.allclose(expected[-1], s.probs[IMAGES - 1, 0], atol=1e-3)
    same(run(s, "clap", weight_decay=decay), expected)


def test_cross_modal(stream: Stream) -> None:
    s = stream
    state: dict[str, Any] = {"w": s.text.copy(), "adam": Adam(1e-3, 0.01, 1e-8)}

    def learn(x: Array, y: list[int]) -> None:
        rows, told = np.concatenate([x, s.text]), ONE_HOT[[*y, *range(len(NAMES))]]
        for _ in range(10):
            wrong = softmax(s.scale * rows @ state["w"].T) - told
            state["w"] = state["adam"].step(state["w"], s.scale * wrong.T @ rows / len(rows))

    same(run(s, "cross_modal"), by_answers(s, learn, lambda x: softmax(s.scale * state["w"] @ x)))


def test_prolip(stream: Stream) -> None:
    s, eye = stream, np.eye(stream.x.shape[-1])
    state: dict[str, Any] = {"w": eye, "adam": Adam(1e-4, 0.0, 1e-4)}

    def learn(x: Array, y: list[int]) -> None:
        shots = len(y) / len(set(y))
        for _ in range(10):
            wrong = softmax(s.scale * unit(x @ state["w"]) @ s.text.T) - ONE_HOT[y]
            by_feature = through_unit(s.scale * wrong @ s.text / len(y), x @ state["w"])
            gradient = x.T @ by_feature + 2 * (state["w"] - eye) / shots**2
            state["w"] = state["adam"].step(state["w"], gradient)

    same(run(s, "prolip"), by_answers(s, learn, lambda x: softmax(s.scale * s.text @ unit(x @ state["w"]))))


def test_proker(stream: Stream) -> None:
    """Its authors' rule: cosines with the texts are fitted to one-hot labels, by (K/λ + I)⁻¹."""
    s = stream
    said = []
    for i in range(IMAGES):
        held, out = known(s, i), s.text @ s.x[i, 0]
        if held:
            x, y = np.stack([x for x, _ in held]), [y for _, y in held]
            squared = ((x[:, None] - x[None]) ** 2).sum(-1)
            fitted = np.linalg.solve(
                np.exp(-4.0 * squared / 2) / 0.5 + np.eye(len(y)), ONE_HOT[y] - x @ s.text.T
            )
            out = out + np.exp(-4.0 * ((x - s.x[i, 0]) ** 2).sum(-1) / 2) @ fitted
        said.append(softmax(s.scale * out))
    same(run(s, "proker", penalty=0.5, sharpness=4.0), said)


def of_likeliest(p: Array, label: int) -> Array:
    """Gradient of −p_y + ln Σ exp p_k by the logits of p: the authors' cross-entropy takes p for logits."""
    by_p = np.exp(p) / np.exp(p).sum() - ONE_HOT[label]
    return np.asarray(p * (by_p - p @ by_p))


def test_bitta_without_dropout_takes_the_steps_of_its_formula(stream: Stream) -> None:
    """One "no" for the first image, "yes" for the second; the others are agreed on."""
    s = stream
    settings = method_settings("bitta", {"dropout": 0.0, "steps": 2, "lr": 1e-4})
    method: Any = find_method("bitta").build(s.clip, NAMES, settings, 0)
    w, v = s.text.copy(), np.zeros_like(s.text)
    items = [method.predict(s.views[i][:1]).item for i in range(4)]
    for answered, answer in ((0, Answer(no=(2,))), (1, Answer(1))):
        method.learn_answer(answered, answer, items[answered])
        for _ in range(2):
            gradient = np.zeros_like(w)
            for i in range(answered + 1, 4):  # entropy's kin: the likeliest class is made likelier
                p = softmax(s.scale * unit(w) @ s.x[i, 0])
                gradient += np.outer(of_likeliest(p, int(p.argmax())), s.x[i, 0]) / (3 - answered)
            gradient -= np.outer(of_likeliest(softmax(s.scale * unit(w) @ s.x[0, 0]), 2), s.x[0, 0])
            if answered:
                gradient += np.outer(of_likeliest(softmax(s.scale * unit(w) @ s.x[1, 0]), 1), s.x[1, 0])
            g = through_unit(s.scale * gradient, w)
            v = 0.9 * v + g
            w = w - 1e-4 * (g + 0.9 * v)
    np.testing.assert_allclose(method.state["weights"].numpy(), w, atol=1e-9, rtol=0)
    assert method.label_counts().tolist() == [0, 1, 0, 0]


def test_bitta_asks_by_the_confidence_of_passes_with_dropout(stream: Stream) -> None:
    s = stream
    plain: Any = find_method("bitta").build(s.clip, NAMES, method_settings("bitta", {"dropout": 0.0}), 0)
    output = plain.predict(s.views[0][:1])
    assert output.score == pytest.approx(1 - float(output.probs.max()), abs=1e-12)
    dropped: Any = find_method("bitta").build(s.clip, NAMES, method_settings("bitta", {"dropout": 0.4}), 3)
    for i in range(3):
        output = dropped.predict(s.views[i][:1])
        generator = torch.Generator().manual_seed(3 * 1_000_003 + i)
        kept = (torch.rand((4, 1, s.x.shape[-1]), generator=generator) < 0.6).numpy()[:, 0]
        p = np.mean([softmax(s.scale * s.text @ (s.x[i, 0] * mask / 0.6)) for mask in kept], axis=0)
        assert output.score == pytest.approx(1 - p[int(output.probs.argmax())], abs=1e-9)


def test_bitta_asks_for_a_yes_or_no_about_the_least_sure(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, NAMES, "bitta", policy="fixed", tau0=-1.0)
    said = learner.predict_one(picture(0))
    assert said.question == "yes_no"
    assert 0 < said.score < 1
    learner.learn_one(said.id, no=said.index)
    after = learner.predict_one(picture(0), update=False)
    assert after.probs[said.index] < said.probs[said.index]
    learner.undo(said.id)
    assert learner.method.held()[1].tolist() == []  # type: ignore[attr-defined]


def test_eatta_balances_its_two_gradients(stream: Stream) -> None:
    """Both terms have the same length in the first step: each is multiplied by the other one's norm."""
    s = stream
    settings = method_settings("eatta", {"sure_below": 1.0, "lr": 0.5})
    method: Any = find_method("eatta").build(s.clip, NAMES, settings, 0)
    items = [method.predict(s.views[i][:1]).item for i in range(3)]
    method.learn(0, 2, items[0])
    moved = unit(s.x[:3, 0])  # at scale 1 and shift 0
    p = softmax(s.scale * moved @ s.text.T)
    h = entropy(p)
    by_logit = {"ce": (p[:1] - ONE_HOT[[2]]), "entropy": -p[1:] * (np.log(p[1:]) + h[1:, None]) / 2}
    grads = {}
    for name, rows in (("ce", slice(0, 1)), ("entropy", slice(1, 3))):
        by_feature = through_unit(s.scale * by_logit[name] @ s.text, s.x[rows, 0])
        grads[name] = np.stack([(by_feature * s.x[rows, 0]).sum(0), by_feature.sum(0)])
    norms = {name: np.linalg.norm(each) for name, each in grads.items()}
    total = norms["ce"] + norms["entropy"]
    g = 2 * (norms["ce"] * grads["entropy"] + norms["entropy"] * grads["ce"]) / total
    start = np.stack([np.ones(s.x.shape[-1]), np.zeros(s.x.shape[-1])])
    np.testing.assert_allclose(method.state["weights"].numpy(), start - 0.5 * 1.9 * g, atol=1e-9, rtol=0)


def test_eatta_passes_over_the_class_it_asked_about_last(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, NAMES, "eatta", policy="fixed", tau0=-1.0, lr=1e-9)
    first = learner.predict_one(picture(0))
    assert first.score > 0
    again = learner.predict_one(picture(0), update=False).score
    learner.learn_one(first.id, first.index)
    learner.method.state["last"][1] = 1.0  # type: ignore[attr-defined]
    assert again > 0
    assert learner.predict_one(picture(0), update=False).score == 0
    learner.method.state["last"][1] = 0.0  # type: ignore[attr-defined]
    assert learner.predict_one(picture(0), update=False).score > 0


def label_methods() -> list[str]:
    builds = {name: find_method(name).build for name in list_methods()}
    return [name for name, made in builds.items() if isinstance(made, type) and issubclass(made, LabelMethod)]


def test_every_label_method_is_one_that_asks_by_any_rule() -> None:
    assert set(label_methods()) >= {*RIVALS, "bitta", "eatta"}


@pytest.mark.parametrize("name", [name for name in label_methods() if name != "ecalp_labels"])
def test_kept_images_are_predicted_again_without_being_seen(tiny: Clip, picture: Picture, name: str) -> None:
    more: dict[str, Any] = {"lr": 0.01} if "lr" in find_method(name).known else {}
    learner = Learner(tiny, NAMES, name, policy="fixed", tau0=-1.0, **more)
    said = [learner.predict_one(picture(i)) for i in range(4)]
    for each in said[:3]:
        learner.learn_one(each.id, each.id)
    again = learner.repredict_kept([3])[3]
    assert not np.array_equal(again, said[3].probs)
    np.testing.assert_allclose(again, learner.repredict(3, picture(3)).probs, atol=1e-6)


def test_a_graph_is_predicted_from_by_entering_it(tiny: Clip, picture: Picture) -> None:
    learner = Learner(tiny, NAMES, "ecalp_labels", policy="fixed", tau0=-1.0)
    learner.predict_one(picture(0))
    assert learner.repredict_kept([0]) == {}
    with pytest.raises(SettingsError, match="sensitivity"):
        Learner(tiny, NAMES, "ecalp_labels", acquisition="sensitivity")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["gda", "clap"])
def test_any_rule_with_any_head_keeps_the_contract(tiny: Clip, name: str, rule: str) -> None:
    chosen: dict[str, Any] = {"acquisition": rule, "rate": 0.3, "recent": 2, "undo": 2}
    report = check_method(lambda seed: Learner(tiny, NAMES[:3], name, seed=seed, **chosen), length=12)
    assert report.asked > 0


def test_leverage_is_that_of_the_labelled_images(stream: Stream) -> None:
    s = stream
    settings = method_settings("class_means", {"acquisition": "vessal"})
    method = find_method("class_means").build(s.clip, NAMES, settings, 0)
    x = s.x[:, 0]
    for i in range(4):
        output = method.predict(s.views[i][:1])
        inverse = np.linalg.inv(np.eye(x.shape[1]) + x[:i].T @ x[:i])
        off = output.probs.double().numpy() - np.eye(len(output.probs))[int(output.probs.argmax())]
        assert output.score == pytest.approx(off @ off * float(x[i] @ inverse @ x[i]), abs=1e-9)
        assert output.item is not None
        for id, times in ((i, 1), (50 + i, 1), (50 + i, -1)):
            (method.learn if times > 0 else method.forget)(id, 0, output.item)


@pytest.mark.parametrize("name", ["zero_shot+", "view_ensemble+", "clap"])
def test_sensitivity_is_greatest_where_the_margin_is_narrow(tiny: Clip, picture: Picture, name: str) -> None:
    learner = Learner(tiny, NAMES, name, acquisition="sensitivity", explore=0.0, rate=0.5)
    said = [learner.predict_one(picture(i)) for i in range(20)]
    scores = [each.score for each in said]
    assert all(0 < score < 1 for score in scores)
    assert len(set(scores)) == 20
    other = Learner(tiny, NAMES, name, acquisition="sensitivity", explore=0.0, rate=0.5)
    assert [other.predict_one(picture(i)).score for i in range(20)] == scores


@pytest.mark.parametrize("name", ["tda+", "tip_adapter+", "dota+", "onzeta+"])
def test_any_method_on_features_takes_a_head(tiny: Clip, name: str) -> None:
    settings = {"policy": "fixed", "tau0": 0.0, "recent": 2, "undo": 2, "refit": 3}
    known = find_method(name).known
    chosen: dict[str, Any] = {key: value for key, value in settings.items() if key in known}
    chosen |= {"views": 2, "fraction": 0.5} if "views" in known else {}
    report = check_method(lambda seed: Learner(tiny, NAMES[:3], name, seed=seed, **chosen), length=12)
    assert report.asked > 0
    assert name not in list_methods()


def test_a_head_on_what_gives_no_features_is_refused(tiny: Clip) -> None:
    with pytest.raises(SettingsError, match="gives no features"):
        Learner(tiny, NAMES, "tent+")
    with pytest.raises(SettingsError, match=r"Unknown method 'nothing\+'"):
        find_method("nothing+")
    with pytest.raises(SettingsError, match=r"dota\+"):
        Learner(tiny, NAMES, "dota_labels+")


def test_the_rate_of_questions_is_no_setting_of_methods_that_ask_none() -> None:
    """`taps eval --rate` gives it to every method that has a setting of that name."""
    silent = [each for each in all_methods().values() if not issubclass(each.settings, Asking)]
    assert [each.name for each in silent if {"rate", "budget"} & each.known] == []


def test_random_generators_are_left_alone(tiny: Clip, picture: Picture) -> None:
    """Dropout draws from a generator of its own."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    learner = Learner(tiny, NAMES, "bitta", policy="fixed", tau0=-1.0)
    learner.learn_one(learner.predict_one(picture(0)).id, 1)
    assert torch.equal(torch.get_rng_state(), before)
