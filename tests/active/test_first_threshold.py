"""τ0: as given, in nats or as a share of ln K, and by the number of classes where nothing is given."""

from __future__ import annotations

import math

import pytest

from taps.active.policy import make_policy


@pytest.mark.parametrize("name", ["dynamic", "quantile", "fixed"])
def test_the_first_threshold_follows_the_classes_unless_given(name):
    assert make_policy(name, classes=7).decide(0.0).threshold == pytest.approx(0.4 * math.log(7))
    assert make_policy(name, classes=7, tau0=2.0).decide(0.0).threshold == 2.0
    relative = make_policy(name, classes=7, tau0_relative=0.9)
    assert relative.decide(0.0).threshold == pytest.approx(0.9 * math.log(7))
    assert make_policy(name).decide(0.0).threshold == 2.0
