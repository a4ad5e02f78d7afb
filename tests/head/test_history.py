"""Answers taken back, classes added, a stop and a start: against heads that never knew otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.head.head import Head
from taps.head.history import SPACING, History


def stream(count: int, classes: int = 4, dim: int = 6, seed: int = 0):
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(count, 3, dim))
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    return views, np.log(rng.dirichlet(np.ones(classes), size=(count, 2))), rng.integers(classes, size=count)


def told(views, logs, labels, silent=(), undo=100) -> History:
    """Every image is seen and answered, but for those in `silent`."""
    history = History(Head(views.shape[2], logs.shape[2], 2, several=True), undo)
    for id, (view, said, label) in enumerate(zip(views, logs, labels, strict=True)):
        look = history.head.see(view, said)
        if id not in silent:
            history.learn(id, look, int(label))
    return history


def same(one: History, other: History) -> None:
    """To the bit."""
    for name, array in other.head.arrays().items():
        np.testing.assert_array_equal(one.head.arrays()[name], array, err_msg=name)
    assert one.head.summary() == other.head.summary()
    assert list(one.examples) == list(other.examples)
    for id, example in other.examples.items():
        assert (one.examples[id].gain, one.examples[id].doubt) == (example.gain, example.doubt)


@settings(max_examples=8)
@given(st.integers(1, 70), st.integers(0, 1000))
def test_an_answer_taken_back_was_never_given(count, seed):
    views, logs, labels = stream(count, seed=seed)
    gone = np.random.default_rng(seed).permutation(count)[: 1 + count // 10].tolist()
    amended = told(views, logs, labels)
    for id in gone:
        amended.forget(id)
    same(amended, told(views, logs, labels, silent=gone))


def test_the_last_answers_are_remembered_in_constant_memory():
    views, logs, labels = stream(150)
    history = told(views, logs, labels, undo=30)
    assert [id for id in range(150) if history.remembers(id)] == list(range(120, 150))
    assert len(history.examples) < 30 + 2 * SPACING
    assert len(history.marks) <= 3
    history.forget(120)
    never = told(views, logs, labels, silent=(120,), undo=30)
    for name, array in never.head.state().items():
        np.testing.assert_array_equal(history.head.state()[name], array, err_msg=name)
    assert not told(views[:5], logs[:5], labels[:5], undo=0).remembers(4)


def test_nothing_is_learned_again_where_nothing_was_taken_back_or_loaded(monkeypatch):
    views, logs, labels = stream(90)
    monkeypatch.setattr(Head, "go_to", None)
    assert len(told(views, logs, labels, undo=30).examples) == 40


@pytest.mark.parametrize(("undo", "spacing"), [(0, 1), (1, 1), (2, 2), (7, 7), (26, 25)])
def test_states_lie_so_far_apart_and_so_far_back(undo, spacing):
    """The oldest state is the newest that has `undo` answers after it; nothing before it is kept."""
    views, logs, labels = stream(55)
    history = History(Head(6, 4, 2, several=True), undo)
    for id in range(55):
        history.learn(id, history.head.see(views[id], logs[id]), int(labels[id]))
        oldest = max(range(0, max(1, min(id, id + 1 - undo) + 1), spacing))
        assert list(history.examples) == list(range(oldest, id + 1))
        assert list(history.marks) == list(range(oldest, id + 1, spacing))


def test_whatever_is_said_reaches_the_head():
    views, logs, _ = stream(9)
    history, head = History(Head(6, 4, 2, several=True), 5), Head(6, 4, 2, several=True)
    for id in range(9):
        said = {"no": (id % 4, (id + 1) % 4), "person": id % 3} if id % 2 else {}
        label = -1 if id % 2 else id % 4
        history.learn(id, history.head.see(views[id], logs[id]), label, *said.values())
        head.learn(head.see(views[id], logs[id]), label, **said)
    for name, array in head.arrays().items():
        np.testing.assert_array_equal(history.head.arrays()[name], array, err_msg=name)
    assert history.examples[7].no == (3, 0)
    assert (history.examples[7].person, history.examples[8].person) == (1, 0)


def copied(history: History, classes: int = 4) -> History:
    """A history made from what another one saves."""
    head = Head(6, classes, 2, several=True)
    head.restore({name: array.copy() for name, array in history.head.arrays().items()})
    other = History(head, history.undo)
    other.restore({name: array.copy() for name, array in history.arrays().items()})
    return other


def grown(history: History, classes: int) -> History:
    """The same with more classes, as a method makes it."""
    wider = copied(history, classes)
    wider.learn_all_again()
    return wider


@pytest.mark.parametrize("count", [0, 3, 60])
def test_it_goes_on_where_it_was_saved(count):
    views, logs, labels = stream(80)
    one = told(views[:count], logs[:count], labels[:count])
    other = copied(one)
    for history in (one, other):
        if count:
            history.forget(count // 2)
        for id in range(count, 80):
            history.learn(id, history.head.see(views[id], logs[id]), int(labels[id]))
        history.forget(70)
    same(one, other)


def test_memory_stays_constant_where_it_is_saved_and_loaded_all_the_time():
    views, logs, labels = stream(150)
    history, unbroken = (told(views[:0], logs[:0], labels[:0], undo=30) for _ in range(2))
    for id in range(150):
        for each in (history, unbroken):
            each.learn(id, each.head.see(views[id], logs[id]), int(labels[id]))
        assert list(history.examples) == list(unbroken.examples)
        history = copied(history)
    history.forget(121)
    never = told(views, logs, labels, silent=(121,), undo=30)
    for name, array in never.head.state().items():
        np.testing.assert_array_equal(history.head.state()[name], array, err_msg=name)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([3, 6, 30]), st.sampled_from([4, 7]))
def test_saved_and_loaded_or_not_its_whole_state_is_the_same(seed, undo, classes):
    rng = np.random.default_rng(seed)
    views, logs, _ = stream(60, classes=classes + 5, seed=seed)
    unbroken = History(Head(6, classes, 2, several=True), undo)
    broken = copied(unbroken, classes)
    for id in range(60):
        if rng.random() < 0.1 and classes < logs.shape[2]:
            classes += 1
            unbroken, broken = grown(unbroken, classes), grown(broken, classes)
        if rng.random() < 0.2:
            broken = copied(broken, classes)
        label, gone = int(rng.integers(classes)), int(rng.integers(60))
        for each in (unbroken, broken):
            each.learn(id, each.head.see(views[id], logs[id][:, :classes]), label)
            if each.remembers(gone):
                each.forget(gone)
    same(broken, unbroken)
    assert broken.arrays().keys() == unbroken.arrays().keys()
    for name, array in unbroken.arrays().items():
        np.testing.assert_array_equal(broken.arrays()[name], array, err_msg=name)


def test_classes_added_later_are_learned_and_older_answers_can_still_be_taken_back():
    views, logs, labels = stream(40, classes=3)
    wider = np.log(np.concatenate([np.exp(logs) * 0.9, np.full((40, 2, 1), 0.1)], axis=2))
    found = []
    for silent in ((), (4,)):
        small = told(views[:20], logs[:20], labels[:20], silent=silent)
        larger = grown(small, classes=4)
        for id in range(20, 40):
            larger.learn(id, larger.head.see(views[id], wider[id]), 3)
        if not silent:
            larger.forget(4)
        found.append(larger)
    for name, array in found[1].head.state().items():
        np.testing.assert_array_equal(found[0].head.state()[name], array, err_msg=name)
    assert found[0].head.predict(found[0].examples[39].look).argmax() == 3


def test_what_was_thought_of_each_answer_is_saved_with_it():
    history, other = told(*stream(10)), History(Head(6, 4, 2, several=True), 100)
    other.restore(history.arrays())
    found = {id: (one.gain, one.doubt, one.alike) for id, one in other.examples.items()}
    assert found == {id: (one.gain, one.doubt, one.alike) for id, one in history.examples.items()}
    assert len({gain for gain, *_ in found.values()}) > 5
    assert history.remembers(0)
