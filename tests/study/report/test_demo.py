"""What the demo's page says is what happened."""

from __future__ import annotations

import numpy as np
import pytest

from taps.study.report.demo import Trace, what_labels_bought, windowed_accuracy


def test_the_interval_is_that_of_paired_differences() -> None:
    rng = np.random.default_rng(0)
    without, asking = rng.random(200) < 0.3, rng.random(200) < 0.6
    quiet = [{"correct": str(int(right)), "asked": "0"} for right in without]
    asked = [{"correct": str(int(right)), "asked": str(int(t < 3))} for t, right in enumerate(asking)]
    said = what_labels_bought(Trace("a", "", quiet), Trace("b", "", asked))
    gains = asking.astype(float) - without
    half = 1.96 * np.sqrt(np.var(gains, ddof=1) / 200)
    assert said.startswith(f"3 answers bought {100 * gains.mean():+.1f} points")
    assert f"{100 * (gains.mean() - half):+.1f} to {100 * (gains.mean() + half):+.1f}" in said


def test_a_single_image_has_no_interval() -> None:
    said = what_labels_bought(
        Trace("a", "", [{"correct": "0", "asked": "0"}]), Trace("b", "", [{"correct": "0", "asked": "1"}])
    )
    assert said == "1 answer: too few images to say what it bought."


@pytest.mark.parametrize("window", [1, 3, 10, 50])
def test_the_window_is_of_the_last_images(window: int) -> None:
    correct = (np.random.default_rng(1).random(10) < 0.5).tolist()
    size = min(window, 10)
    naive = [np.mean(correct[end - size : end]) for end in range(size, 11)]
    np.testing.assert_allclose(windowed_accuracy(correct, window), naive)
