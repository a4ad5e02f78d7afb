"""The head's predictions beside the model are those on the host; here the CPU plays the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import taps
from taps.head import whitening
from taps.head.experts import HeadSettings
from taps.head.head import Head
from taps.learner import Learner
from taps.learning.fast import device_head as on_device
from taps.learning.fast.capture import CudaCapture, overwrite
from taps.learning.fast.device_head import DeviceHead
from taps.methods import headed

CPU = torch.device("cpu")
CLASSES = ["cat", "dog", "car", "tree"]
KINDS = {
    "zero_shot+": {},
    "view_ensemble+": {"views": 6, "fraction": 0.34},
    "taps+": {"views": 6, "fraction": 0.34, "prompts": "hand"},
    "neighbours+": {"views": 6, "fraction": 0.34},
}


def stream(count: int, classes: int, dim: int, views: int):
    rng = np.random.default_rng(3)
    centres, labels = rng.normal(size=(classes, dim)), rng.integers(classes, size=count)
    features = centres[labels][:, None] + rng.normal(size=(count, views, dim))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    logits = rng.normal(size=(count, 2, classes)) + np.eye(classes)[labels][:, None]
    return features, logits - np.log(np.exp(logits).sum(-1, keepdims=True)), labels


class Rerun:
    """Captured work as a graph replays it: into the tensors of the first result."""

    def __init__(self, work):
        self.work, self.result = work, work()

    def replay(self):
        overwrite(self.result, self.work())


class RerunCapture:
    def capture(self, work):
        return Rerun(work)


class WrongCapture:
    def capture(self, work):
        wrong = Rerun(work)
        wrong.replay = lambda: wrong.result.told.zero_()
        return wrong


class NoCapture:
    def capture(self, work):
        raise RuntimeError("this device cannot")


def places(device):
    """Where in memory everything lies that captured work may read."""
    return {name: value.data_ptr() for name, value in vars(device).items() if isinstance(value, torch.Tensor)}


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CAPTURES = [RerunCapture(), NoCapture(), WrongCapture(), None, pytest.param("cuda", marks=needs_cuda)]


@pytest.mark.parametrize("graphs", CAPTURES)
@pytest.mark.parametrize("several", [True, False])
def test_it_says_what_the_head_says(several, graphs, monkeypatch):
    """With labels refitted and let go, answers of all kinds, one taken back, and a state taken over."""
    features, logs, labels = stream(80, 5, 7, views=3)
    heads = [Head(7, 5, bases=2, several=several, settings=HeadSettings(refit=6)) for _ in range(2)]
    monkeypatch.setattr(on_device, "LAST", 32)
    monkeypatch.setattr(whitening, "LAST", 32)
    place = torch.device("cuda") if graphs == "cuda" else CPU
    graphs = CudaCapture(place) if graphs == "cuda" else graphs
    captures = isinstance(graphs, (RerunCapture, CudaCapture))
    device, before, at = DeviceHead(heads[1], place, graphs), None, {}
    for i, label in enumerate(labels.tolist()):
        look = heads[0].see(features[i], logs[i])
        given = [torch.from_numpy(array[i]).to(place) for array in (features, logs)]
        if i % 10 == 5:  # an image that is seen, but not kept, leaves nothing behind
            device.see(given[0] + 1, given[1])
        seen = device.see(*given)
        device.keep(seen)
        at = places(device) if i == 20 else at
        expected = heads[0].predict(look)
        np.testing.assert_allclose(seen.told[:5].cpu().numpy(), expected, atol=1e-6)
        assert seen.told[5].item() == pytest.approx(look.density, abs=1e-6)
        np.testing.assert_allclose(
            np.sort(seen.look.cpu().numpy(), axis=0), np.sort(look.rows, axis=0), atol=1e-5
        )
        if i == 39 and captures:
            assert places(device) == at  # a graph goes on reading where it read
        if i == 40:
            device.bring()
            heads[1].restore({name: array.copy() for name, array in heads[1].arrays().items()})
            device.load()
        if i == 60:
            for head in heads:
                head.go_to(before)
            device.learned()
        if i % 3 == 0:
            device.bring_stream()
            np.testing.assert_allclose(heads[1].stream, heads[0].stream)
            for head in heads:
                head.learn(look, label, no=((label + 1) % 5,) if i % 9 == 0 else ())
            device.learned()
            before = before or (heads[0].state() if i == 30 else None)
    assert heads[0].experts.logistic[0].weights.any()
    if captures:
        assert device.captured
        assert device.keepers.keys() == device.captured.keys()
    else:
        assert device.graphs is None
    assert heads[0].trust > 0.2


@pytest.mark.parametrize("several", [True, False])
def test_it_says_what_the_head_says_of_a_class_added_later(several):
    features, logs, labels = stream(80, 5, 7, views=3)
    old = Head(7, 4, bases=2, several=several)
    for i in range(30):
        look = old.see(features[i], np.log(np.exp(logs[i, :, :4]) / np.exp(logs[i, :, :4]).sum(1)[:, None]))
        if i % 5 == 0:
            old.learn(look, int(labels[i]) % 4)
    heads = [Head(7, 5, bases=2, several=several) for _ in range(2)]
    for head in heads:
        head.restore(old.arrays())
    device, named = DeviceHead(heads[1], CPU), 0
    for i in range(30, 80):
        look, seen = (
            heads[0].see(features[i], logs[i]),
            device.see(*map(torch.from_numpy, (features[i], logs[i]))),
        )
        device.keep(seen)
        expected = heads[0].predict(look)
        np.testing.assert_allclose(seen.told[:5].numpy(), expected, atol=1e-6)
        named += expected.argmax() == 4
        if i % 5 == 0:
            device.bring_stream()
            for head in heads:
                head.learn(look, int(labels[i]))
            device.learned()
    assert named > 0


def run(learner: Learner, images: np.ndarray) -> list[np.ndarray]:
    said = []
    for i, image in enumerate(images):
        prediction = learner.predict_one(image)
        said.append(prediction.probs)
        if prediction.ask:
            learner.learn_one(prediction.id, i % len(CLASSES))
    return said


@pytest.mark.parametrize("method", KINDS)
def test_a_method_with_a_head_on_the_device(monkeypatch, tmp_path, method):
    """The same predictions; saved and resumed to the bit; what gives no numbers leaves no trace."""
    clip = taps.load_clip("tiny")
    images = np.random.default_rng(0).integers(0, 256, size=(40, 40, 36, 3), dtype=np.uint8)
    settings = {"rate": 0.3, "acquisition": "random", **KINDS[method]}
    host = run(Learner(clip, CLASSES, method, **settings), images)
    monkeypatch.setattr(headed, "DEVICES", ("cpu",))
    learner = Learner(clip, CLASSES, method, **settings)
    assert learner.method.device_head is not None
    said = run(learner, images[:20])
    learner.save(tmp_path)
    resumed = Learner.load(tmp_path, clip)
    said += run(learner, images[20:])
    np.testing.assert_allclose(said, host, atol=2e-5)
    np.testing.assert_array_equal(run(resumed, images[20:]), said[20:])
    some = next(iter(learner.method.examples))
    for one in (learner, resumed):
        one.undo(some)
    assert learner.summary() == resumed.summary()
    before = learner.method.snapshot().tensors
    size = clip.config.image_size
    assert (
        learner.method.predict(torch.full((learner.settings.views, 3, size, size), float("nan"))).item is None
    )
    for name, value in learner.method.snapshot().tensors.items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
