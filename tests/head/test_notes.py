"""Sentences about the answers."""

from __future__ import annotations

import numpy as np

from taps.head.notes import notes_on


def found(**more):
    calm = {"head_labels": 20, "head_noise": 0.05, "head_trust": 0.9, "head_fairness": 1.0}
    return calm | {"head_look_again": []} | more


def test_notes_say_what_is_wrong_and_nothing_else():
    names, even = ["cat", "dog", "car"], np.array([7.0, 7.0, 6.0])
    assert notes_on(found(), even, names) == []
    assert notes_on(found(head_labels=0), np.zeros(3), names) == []
    (noisy,) = notes_on(found(head_noise=0.31, head_look_again=[3, 9]), even, names)
    assert "31%" in noisy
    assert "3, 9" in noisy
    (useless,) = notes_on(found(head_trust=0.2), even, names)
    assert "not made predictions better" in useless
    (unfair,) = notes_on(found(head_fairness=0.2), even, names)
    assert "fewer classes" in unfair
    (missing,) = notes_on(found(), np.array([10.0, 10.0, 0.0]), names)
    assert "1 of the 3 classes: 'car'" in missing
    (single,) = notes_on(found(), np.array([20.0, 0.0, 0.0]), names)
    assert "'cat'" in single
