"""The anchor of `recipes/label.py`: the same number of labels, all at the start, for a linear probe."""

from __future__ import annotations

import numpy as np

PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)
STEPS = 150


def probe_accuracy(
    features: np.ndarray, labels: np.ndarray, places: np.ndarray, *, rate: float
) -> dict[str, float]:
    """Accuracy on the whole stream of logistic regression on the mean of the views.

    It is told the labels of `rate` of the images, drawn at random, before the first one comes, and is not
    asked about these. Its penalty is the one that five folds of the labelled images favour.
    """
    means = features.astype(np.float64).mean(axis=1)
    means -= means.mean(axis=0)
    classes = int(labels.max()) + 1
    told = places[: max(2, round(rate * len(places)))]  # the order is random: so are these
    rest = places[len(told) :]
    folds = np.arange(len(told)) % min(5, len(told))
    scores = [
        np.mean([fold_accuracy(means, labels, told, folds == k, p, classes) for k in range(folds.max() + 1)])
        for p in PENALTIES
    ]
    weights = fit(means[told], labels[told], PENALTIES[int(np.argmax(scores))], classes)
    right = (constant(means[rest]) @ weights).argmax(axis=1) == labels[rest]
    return {"accuracy": 100 * float(right.mean()), "asked": len(told)}


def fold_accuracy(
    means: np.ndarray, labels: np.ndarray, told: np.ndarray, out: np.ndarray, penalty: float, classes: int
) -> float:
    weights = fit(means[told[~out]], labels[told[~out]], penalty, classes)
    return float(((constant(means[told[out]]) @ weights).argmax(axis=1) == labels[told[out]]).mean())


def fit(features: np.ndarray, labels: np.ndarray, penalty: float, classes: int) -> np.ndarray:
    """Weights of multinomial logistic regression, by steps that never overshoot (Böhning's bound)."""
    inputs, target = constant(features), np.eye(classes)[labels]
    gram = inputs @ inputs.T
    inverse = np.linalg.inv(0.5 * gram + penalty * np.eye(len(gram)))
    found = np.zeros_like(target)
    for _ in range(STEPS):
        logits = gram @ found
        probs = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        found += inverse @ (target - probs - penalty * found)
    weights: np.ndarray = inputs.T @ found
    return weights


def constant(features: np.ndarray) -> np.ndarray:
    return np.concatenate([features, np.full((len(features), 1), 0.1)], axis=1)
