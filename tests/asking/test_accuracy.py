"""How good the predictions are: without bias whatever is asked about, and within its interval."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from taps.asking.accuracy import FEWEST, NEEDED, RunningAccuracy, forecast, quantile
from taps.asking.policy import make_policy
from taps.types import Answer


def stream(seed, images=800, rate=0.2, explore=0.5, pace="front", off=0.15):
    """A learner that grows better with its answers, over-confident by `off`, asked where it is unsure."""
    rng = np.random.default_rng(seed)
    policy = make_policy("paced", rate=rate, pace=pace, expected=images, explore=explore, seed=seed)
    running, right, possible, answers = RunningAccuracy(2), [], [], 0
    for id in range(images):
        probability = min(0.95, 0.3 + 0.05 * math.log1p(answers) + 0.5 * rng.random())
        right.append(bool(rng.random() < probability))
        sure = min(0.99, probability + off)
        decision = policy.decide(1 - sure)
        possible.append(decision.chance > 0)
        running.add(id, id % 2, sure, decision.chance, decision.ask)
        if decision.ask:
            answers += 1
            policy.answer(int(rng.integers(5)))
            running.answer(id, Answer(id % 2 if right[-1] else 1 - id % 2))
    return running, np.array(right), np.array(possible)


@pytest.mark.parametrize("pace", ["front", "even", 0.5])
def test_the_estimate_is_unbiased_and_its_interval_covers(pace):
    off, covered, asked_alone = [], [], []
    for seed in range(200):
        running, right, possible = stream(seed, pace=pace)
        found, truth = running.estimate(), right[possible].mean()
        assert found is not None
        assert found.images == possible.sum() >= 0.6 * len(right)
        off.append(found.value - truth)
        covered.append(found.low <= truth <= found.high)
        asked_alone.append(right[list(running.asked)].mean() - truth)
    error = np.std(off) / math.sqrt(len(off))
    assert abs(np.mean(off)) < 3.5 * error
    assert abs(np.mean(asked_alone)) > 10 * error  # those asked about are no fair sample
    assert np.mean(covered) >= 0.93


def test_confidence_makes_the_interval_narrower():
    def width(informed):
        rng, running = np.random.default_rng(0), RunningAccuracy(1)
        for id in range(2000):
            probability = float(rng.choice([0.05, 0.95]))
            ask = bool(rng.random() < 0.1)
            running.add(id, 0, probability if informed else 0.5, 0.1, ask)
            if ask:
                running.answer(id, Answer(int(rng.random() > probability)))
        found = running.estimate()
        return found.high - found.low

    assert width(informed=True) < 0.6 * width(informed=False)


def test_the_formula_written_out():
    rng, running = np.random.default_rng(4), RunningAccuracy(3)
    sure, chance = rng.random(60), np.where(np.arange(60) % 6 == 0, 1.0, rng.choice([0.3, 0.6], 60))
    right, total, weights, residuals = rng.random(60) < 0.5, 0.0, [], []
    for id in range(60):
        ask = bool(rng.random() < chance[id])
        running.add(id, id % 3, sure[id], chance[id], ask)
        if ask:
            running.answer(id, Answer(id % 3 if right[id] else (id + 1) % 3))
        total += right[id] if chance[id] == 1 else sure[id]
        if ask and chance[id] < 1:
            weights.append(1 / chance[id])
            residuals.append(right[id] - sure[id])
    off = np.average(residuals, weights=weights)
    expected = (total + (chance < 1).sum() * off) / 60
    assert running.estimate().value == pytest.approx(expected)
    assert running.estimate().answers == len(weights)


def test_nothing_is_said_before_enough_is_known():
    running = RunningAccuracy(2)
    for id in range(20):
        running.add(id, 0, 0.5, 0.5, asked=True)
    for id in range(NEEDED - 1):
        running.answer(id, Answer(0))
    assert running.estimate() is None
    assert running.describe() == f"not known yet: {NEEDED - 1} random answers, {NEEDED} needed"
    running.answer(10, Answer(1))
    assert running.estimate().answers == NEEDED
    running.answer(10, None)  # taken back
    assert running.estimate() is None


def test_images_that_were_all_asked_about_are_known_exactly():
    running = RunningAccuracy(2)
    for id in range(4):
        running.add(id, 0, 0.9, 1.0, asked=True)
        running.answer(id, Answer(int(id == 0)))
    found = running.estimate()
    assert (found.value, found.low, found.high, found.answers) == (0.75, 0.75, 0.75, 0)


def test_what_other_answers_say_of_a_prediction():
    running = RunningAccuracy(3)
    running.add(0, 1, 0.5, 1.0, asked=True)
    for answer, right in (
        (Answer(no=(1,)), False),
        (Answer(no=(0,)), None),
        (Answer(none=True), False),
        (Answer(1), True),
        (Answer(2), False),
    ):
        running.answer(0, answer)
        assert running.asked[0].right is right


def test_classes_have_their_own_and_may_be_added():
    running, *_ = stream(3)
    found = running.summary(("cat", "dog"))
    assert set(found["by_class"]) == {"cat", "dog"}
    assert (
        found["by_class"]["cat"]["images"] + found["by_class"]["dog"]["images"]
        == (found["estimate"]["images"])
    )
    before = running.estimate()
    running.grow(3)
    assert running.estimate() == before
    other = RunningAccuracy(3)
    other.restore(json.loads(json.dumps(running.values())))
    assert other.estimate() == before
    assert other.values() == running.values()


@pytest.mark.parametrize(("answers", "printed"), [(8, 2.3646), (15, 2.1448), (100, 1.9842)])
def test_the_quantile_is_students(answers, printed):
    """As tables of Student's t print it."""
    assert quantile(answers) == pytest.approx(printed, rel=0.005)


def test_a_forecast_shrinks_with_the_answers_and_with_what_is_left_to_gain():
    assert forecast(FEWEST - 1, 0.5) is None
    gains = [forecast(answers, 0.6).gain for answers in (10, 20, 40, 400)]
    assert gains == sorted(gains, reverse=True)
    assert forecast(20, 0.98).gain < forecast(20, 0.7).gain
    found = forecast(20, 0.7)
    assert found.low < found.gain < found.high


def folder(seed, images=300, questions=60):
    """Every fifth question is about an image drawn among those nobody was asked about."""
    rng, running = np.random.default_rng(seed), RunningAccuracy(2)
    sure = rng.random(images)
    right, left = rng.random(images) < sure, set(range(images))
    for id in range(images):
        running.add(id, 0, sure[id], 0.0, asked=False)
    truths = []
    for question in range(questions):
        drawn = question % 5 == 4
        id = int(rng.choice(sorted(left))) if drawn else min(left, key=lambda id: sure[id])
        if drawn:
            truths.append(right[sorted(left)].mean())
            running.sample(id, 0, len(left))
        left.remove(id)
        running.answer(id, Answer(0 if right[id] else 1))
    return running.estimate(), float(np.mean(truths))


def test_images_drawn_from_a_folder_are_a_fair_sample_of_what_nobody_was_asked_about():
    found = [folder(seed) for seed in range(200)]
    off = [estimate.value - truth for estimate, truth in found]
    assert abs(np.mean(off)) < 3.5 * np.std(off) / math.sqrt(len(off))
    assert np.mean([estimate.low <= truth <= estimate.high for estimate, truth in found]) >= 0.93
    assert {estimate.answers for estimate, _ in found} == {12}


def test_nothing_is_said_where_chance_has_no_part():
    running = RunningAccuracy(2)
    for id in range(40):  # the hardest image of four is asked about, and wrong
        running.add(id, 0, 0.5, float(id % 4 == 0), asked=id % 4 == 0)
        running.answer(id, Answer(1))
    assert running.estimate() is None
    assert running.describe() == "not known yet: 0 random answers, 8 needed"
    for id in range(40, 60):
        running.add(id, 0, 0.5, 0.5, asked=True)
        running.answer(id, Answer(0))
    assert running.estimate().answers == 20
    for id in range(60, 90):
        running.add(id, 0, 0.5, 0.0, asked=False)
    assert running.describe() == "unknown: most images had no chance of being asked about"
