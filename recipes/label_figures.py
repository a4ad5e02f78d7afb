"""Pictures for docs/label.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


def draw(
    out: Path,
    folder: Path,
    rows: Rows,
    chosen: Callable[..., Rows],
    by_order: Callable[..., np.ndarray],
    half_width: Callable[[np.ndarray], float],
) -> None:
    """label-curve.png (accuracy by labels) and label-outliers.png (whom entropy picks)."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    curve(folder / "label-curve.png", rows, chosen, by_order, half_width)
    names = ["tiny_coarse", "caltech101", "photo", "art_painting", "cartoon", "sketch"]
    stored = [path for name in names for path in sorted(out.glob(f"{name}-*x1.npz"))]
    if stored:
        outliers(folder / "label-outliers.png", stored)


def curve(
    file: Path,
    rows: Rows,
    chosen: Callable[..., Rows],
    by_order: Callable[..., np.ndarray],
    half_width: Callable[[np.ndarray], float],
) -> None:
    """Accuracy against the share of images asked about, one line a set and one for the mean."""
    import matplotlib.pyplot as plt

    sets = list(dict.fromkeys(row["set"] for row in rows))
    if not sets:
        return
    figure, axis = plt.subplots(figsize=(6.4, 4.2), constrained_layout=True)
    for which in [*([s] for s in sets), sets]:
        points = [(0.0, chosen(rows, "zero_shot"))]
        points += [
            (rate, chosen(rows, "zero_shot+", rate=rate, ask_by=None)) for rate in (0.01, 0.02, 0.05, 0.1)
        ]
        values = [(100 * rate, by_order(some, "accuracy", which)) for rate, some in points]
        values = [(rate, found) for rate, found in values if len(found)]
        mean = len(which) > 1
        axis.errorbar(
            [rate for rate, _ in values],
            [found.mean() for _, found in values],
            [half_width(found) if len(found) > 1 else 0.0 for _, found in values],
            label="mean" if mean else which[0],
            linewidth=2.5 if mean else 1.2,
            color="black" if mean else None,
            marker="o",
            markersize=3,
            capsize=2,
        )
    axis.set_xlabel("labels, % of the images (0: zero-shot)")
    axis.set_ylabel("accuracy of zero_shot+, %")
    axis.legend(fontsize=8)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def outliers(file: Path, stored: list[Path]) -> None:
    """Whether images of highest entropy lie apart: their density and own-class neighbours, by set."""
    import matplotlib.pyplot as plt

    names, found = [], []
    for path in stored:
        names.append(path.name.split("-")[0].replace("_", " "))
        found.append(neighbourhood(path))
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    entropy, density, _, top = found[0]
    left.scatter(density, entropy, s=5, color="tab:grey", label="all images")
    left.scatter(density[top], entropy[top], s=10, color="tab:red", label="highest entropy, 5 %")
    left.set_xlabel("mean cosine to the ten nearest, seen from the centre")
    left.set_ylabel("entropy of zero-shot, nats")
    left.set_title(names[0], fontsize=10)
    left.legend(fontsize=8)
    place = np.arange(len(names))
    for axis, which, words in (
        (middle, 1, "mean cosine to the ten nearest"),
        (right, 2, "own-class neighbours"),
    ):
        axis.bar(place - 0.2, [one[which].mean() for one in found], 0.4, color="tab:grey", label="all images")
        tops = [one[which][one[3]].mean() for one in found]
        axis.bar(place + 0.2, tops, 0.4, color="tab:red", label="highest entropy, 5 %")
        axis.set_xticks(place, names, rotation=30, ha="right", fontsize=8)
        axis.set_title(words, fontsize=10)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def neighbourhood(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Entropy, density, share of own-class neighbours, and places of the twentieth of highest entropy."""
    import taps
    from taps.prompts.classifier import Classifier, class_texts

    held = np.load(path)
    features = held["features"][:, 0].astype(np.float64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    clip = taps.load_clip("pocket", device="cpu")
    layout = clip.text_layout(class_texts(tuple(held["classes"].tolist()), "a photo of a {}."))
    texts = Classifier(clip, layout, kind=None).text(None).detach().numpy()
    logits = float(clip.scale) * features @ texts.T
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    entropy = -(probs * np.log(probs + 1e-12)).sum(axis=1)
    away = features - features.mean(axis=0)
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    likeness = away @ away.T
    np.fill_diagonal(likeness, -1)
    nearest = np.argsort(-likeness, axis=1)[:, :10]
    density = np.take_along_axis(likeness, nearest, axis=1).mean(axis=1)
    same = (held["labels"][nearest] == held["labels"][:, None]).mean(axis=1)
    return entropy, density, same, np.argsort(-entropy)[: len(entropy) // 20]
